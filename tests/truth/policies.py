"""Read the policies of templates, and evaluate them as IAM does."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
ACCOUNT, REGION = "000000000000", "us-east-1"
_ARNS: dict[str, Callable[[str], str]] = {
    "AWS::DynamoDB::Table": lambda name: f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}",
    "AWS::Events::Rule": lambda name: f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{name}",
    "AWS::IAM::Role": lambda name: f"arn:aws:iam::{ACCOUNT}:role/{name}",
    "AWS::KMS::Key": lambda name: f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}",
    "AWS::Kinesis::Stream": lambda name: f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{name}",
    "AWS::Lambda::Function": lambda name: f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}",
    "AWS::Logs::LogGroup": lambda name: f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}:*",
    "AWS::S3::Bucket": lambda name: f"arn:aws:s3:::{name}",
    "AWS::SNS::Topic": lambda name: name,
    "AWS::SQS::Queue": lambda name: f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name.rsplit('/', 1)[-1]}",
    "AWS::StepFunctions::StateMachine": lambda name: (
        name if name.startswith("arn:") else f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}"
    ),
}
_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::NoValue": None,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::URLSuffix": "amazonaws.com",
}
_BASIC_EXECUTION = {
    "Effect": "Allow",
    "Action": ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
    "Resource": "*",
}


@dataclass(frozen=True)
class Need:
    """An action on a resource, which a request is denied without."""

    action: str
    resource: str
    context: Mapping[str, list[str]] = field(default_factory=dict)
    """Condition keys in lower case with their values."""


@dataclass(frozen=True)
class Statement:
    """A statement of a role, with the name of its policy."""

    policy: str
    document: Json

    @property
    def actions(self) -> list[str]:
        """The actions that it names."""
        return as_list(self.document.get("Action", []))

    def action_for(self, need: Need) -> str | None:
        """The action of the statement that matches the need, or None if the statement does not apply."""
        action = next((one for one in self.actions if like(one.lower(), need.action.lower())), None)
        resources = [one for one in as_list(self.document.get("Resource", "*")) if isinstance(one, str)]
        if action is None or not any(like(one, need.resource) for one in resources):
            return None
        return action if _holds(self.document.get("Condition", {}), need.context) else None


@dataclass(frozen=True)
class Template:
    """A template with the physical IDs of its resources, if it was deployed."""

    name: str
    body: Json
    ids: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, Any] = field(default_factory=dict)

    def of_type(self, type_: str) -> Iterator[tuple[str, Json]]:
        """Logical IDs and properties of all resources of a type."""
        for name, resource in self.body.get("Resources", {}).items():
            if resource["Type"] == type_:
                yield name, resource.get("Properties", {})

    def resolve(self, value: Any) -> Any:
        """Replace CloudFormation's functions. A value that only an account has becomes `<its name>`."""
        if isinstance(value, list):
            return [self.resolve(one) for one in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((function, argument),) = value.items()
            if function in _FUNCTIONS:
                return _FUNCTIONS[function](self, argument)
        return {name: self.resolve(one) for name, one in value.items()}

    def ref(self, name: str) -> Any:
        """The value of `Ref`."""
        if name in _PSEUDO:
            return _PSEUDO[name]
        if name == "AWS::StackName":
            return self.name
        default = self.body.get("Parameters", {}).get(name, {}).get("Default")
        return self.ids.get(name, default if default is not None else f"<{name}>")

    def attribute(self, argument: Any) -> str:
        """The value of `Fn::GetAtt`."""
        name, attribute = argument if isinstance(argument, list) else argument.split(".", 1)
        type_ = self.body["Resources"].get(name, {}).get("Type")
        if attribute in ("Arn", "StateMachineArn") and type_ in _ARNS:
            return _ARNS[type_](self.ids.get(name, f"<{name}>"))
        if attribute == "StreamArn":
            return f"{_ARNS[type_](self.ids.get(name, f'<{name}>'))}/stream/1"
        if attribute == "QueueName":
            return self.ids.get(name, f"<{name}>").rsplit("/", 1)[-1]
        return f"<{name}.{attribute}>"

    def roles(self) -> Iterator[str]:
        """The logical IDs of all roles."""
        for name, _ in self.of_type("AWS::IAM::Role"):
            yield name

    def statements(self, role: str) -> list[Statement]:
        """All statements of a role."""
        properties = self.body["Resources"][role]["Properties"]
        documents = [("inline", policy["PolicyDocument"]) for policy in properties.get("Policies", [])]
        for type_ in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            documents += [
                (name, policy["PolicyDocument"])
                for name, policy in self.of_type(type_)
                if {"Ref": role} in policy.get("Roles", [])
            ]
        found = [Statement(name, one) for name, document in documents for one in self.resolve(document)["Statement"]]
        if any("AWSLambdaBasicExecutionRole" in one for one in self.resolve(properties.get("ManagedPolicyArns", []))):
            found.append(Statement("AWSLambdaBasicExecutionRole", _BASIC_EXECUTION))
        return found

    def role_of(self, function: Json) -> str | None:
        """The logical ID of a function's role, or None if the role is in another stack."""
        role = function.get("Role")
        return role["Fn::GetAtt"][0] if isinstance(role, dict) and "Fn::GetAtt" in role else None


def granted(statements: list[Statement], need: Need) -> list[tuple[Statement, str]]:
    """The statements that allow a need, with their actions. Empty if nothing allows it, or if one denies it."""
    hits = [(one, action) for one in statements if (action := one.action_for(need)) is not None]
    return [] if any(one.document["Effect"] == "Deny" for one, _ in hits) else hits


def as_list(value: Any) -> list[Any]:
    """A value, or a list of values."""
    return value if isinstance(value, list) else [value]


def like(pattern: str, value: str) -> bool:
    """Match as IAM does: `*` and `?` stand for any characters, also for a slash."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), value, re.DOTALL) is not None


def _sub(template: Template, argument: Any) -> str:
    text = argument if isinstance(argument, str) else argument[0]
    return re.sub(r"\$\{([^}]+)\}", lambda found: str(template.ref(found[1])), text)


def _select(template: Template, argument: Any) -> Any:
    number, values = int(argument[0]), template.resolve(argument[1])
    return values[number] if isinstance(values, list) and number < len(values) else "<select>"


_FUNCTIONS: dict[str, Callable[[Template, Any], Any]] = {
    "Ref": Template.ref,
    "Fn::GetAtt": Template.attribute,
    "Fn::Join": lambda template, argument: argument[0].join(str(one) for one in template.resolve(argument[1])),
    "Fn::Sub": _sub,
    "Fn::Select": _select,
    "Fn::Split": lambda template, argument: str(template.resolve(argument[1])).split(argument[0]),
    "Fn::ImportValue": lambda template, name: template.exports.get(str(template.resolve(name)), f"<{name}>"),
    "Fn::If": lambda template, argument: template.resolve(argument[1]),
}

_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "ArnEquals": lambda have, want: like(want, have),
    "ArnLike": lambda have, want: like(want, have),
    "Bool": lambda have, want: have.lower() == want.lower(),
    "StringEquals": lambda have, want: have == want,
    "StringLike": lambda have, want: like(want, have),
}
_NEGATIVE = {"StringNotEquals": "StringEquals", "StringNotLike": "StringLike"}


def _holds(condition: Json, context: Mapping[str, list[str]]) -> bool:
    return all(
        _key_holds(operator, context.get(key.lower()), [str(one) for one in as_list(wanted)])
        for operator, keys in condition.items()
        for key, wanted in keys.items()
    )


def _key_holds(operator: str, have: list[str] | None, wanted: list[str]) -> bool:
    quantifier, _, name = operator.rpartition(":")
    base = name.removesuffix("IfExists")
    if base == "Null":
        return (have is None) is (wanted[0].lower() == "true")
    if have is None:
        # Negative operators hold for a key that is absent.
        return quantifier == "ForAllValues" or name != base or base in _NEGATIVE
    if base in _NEGATIVE:
        test = _OPERATORS[_NEGATIVE[base]]
        return not any(test(one, want) for one in have for want in wanted)
    test = _OPERATORS[base]  # an unknown operator is an error
    every = all if quantifier == "ForAllValues" else any
    return every(any(test(one, want) for want in wanted) for one in have)
