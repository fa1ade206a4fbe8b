"""Templates against what AWS publishes: quotas, IAM's actions, and who may send to which queue."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.truth.policies import ACCOUNT, REGION, Json, Template, as_list, like
from tests.truth.reference import authorization

QUOTAS = {
    "resources of a stack": 500,
    "bytes of a template": 1_000_000,
    "outputs of a stack": 200,
    "bytes of a function's environment": 4096,
    "layers of a function": 5,
    "seconds of a function": 900,
    "characters of a description": 256,
    "metrics of an alarm": 10,
    "characters of an alarm's description": 1024,
    "children of a composite alarm": 100,
    "characters of an alarm's rule": 10_240,
    "days of an alarm with short periods": 1,
    "days of an alarm with periods of an hour": 7,
    "characters of a role's policies": 10_240,
    "seconds of visibility": 43_200,
    "bytes of a queue's policy": 8192,
    "bytes of an event pattern": 2048,
    "bytes of a state machine": 1_048_576,
    "notifications of a bucket": 100,
    "indexes of a table": 20,
    "minimum receives of a batch above ten without a window": 0,
}
"""The largest number of each. Sources: the quotas of CloudFormation, Lambda, CloudWatch, IAM, SQS, EventBridge, Step
Functions, S3 and DynamoDB.
"""
ACCEPTED = {
    "dynamodb:GetRecords: takes no ": "CDK's `grantReadWriteData` of a processor's own table.",
    "dynamodb:GetShardIterator: takes no ": "As above.",
    "kinesis:DescribeStreamConsumer: takes no ": "CDK's `grantRead` names the stream. Only a fan-out needs the action.",
    "kinesis:ListStreams: takes no ": "As above. The action takes no resource, and Lambda does not need it.",
    "kinesis:SubscribeToShard: takes no ": "As above. Only a fan-out needs it.",
    "states:RedriveExecution: takes no ": "CDK's distributed map names the executions of a map run.",
}
"""Misfits with their reasons."""
_NETWORK = "Vpc"
"""The flow log of a test's network has a role of CDK's."""
_LONGEST_REFERENCE = "x" * 128
"""Stands for a value that only an account has: the ARN of a table or a queue with a long name."""


def sizes(template: Template) -> Iterator[tuple[str, str, float]]:
    """Each number of a template that has a quota, with its place."""
    body = template.body
    yield "resources of a stack", template.name, len(body.get("Resources", ()))
    yield "bytes of a template", template.name, len(json.dumps(body, separators=(",", ":")))
    yield "outputs of a stack", template.name, len(body.get("Outputs", {}))
    for type_, of in _SIZES.items():
        for name, properties in template.of_type(type_):
            for quota, number in of(template, properties):
                yield quota, f"{template.name}/{name}", number
    for role in template.roles():
        documents = [one.document for one in template.statements(role)]
        yield "characters of a role's policies", f"{template.name}/{role}", len(_compact(documents))


def _of_function(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    variables = template.resolve(properties.get("Environment", {}).get("Variables", {}))
    texts = [re.sub(r"<[^>]*>", _LONGEST_REFERENCE, str(value)) for value in variables.values()]
    yield "bytes of a function's environment", sum(map(len, [*variables, *texts]))
    yield "layers of a function", len(properties.get("Layers", []))
    yield "seconds of a function", properties.get("Timeout", 3)
    yield "characters of a description", len(str(template.resolve(properties.get("Description", ""))))


def _of_alarm(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    metrics = [one["MetricStat"] for one in properties.get("Metrics", []) if "MetricStat" in one]
    period = properties.get("Period") or max((one["Period"] for one in metrics), default=0)
    kind = "periods of an hour" if period >= 3600 else "short periods"
    yield f"days of an alarm with {kind}", period * properties.get("EvaluationPeriods", 1) / 86_400
    yield "metrics of an alarm", len(metrics)
    yield "characters of an alarm's description", len(str(template.resolve(properties.get("AlarmDescription", ""))))


def _of_composite(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    rule = re.sub(r"<[^>]*>", _LONGEST_REFERENCE, str(template.resolve(properties["AlarmRule"])))
    yield "children of a composite alarm", rule.count('("')
    yield "characters of an alarm's rule", len(rule)
    yield "characters of an alarm's description", len(str(template.resolve(properties["AlarmDescription"])))


def _of_mapping(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    del template
    queue = "StartingPosition" not in properties
    unbatched = properties.get("BatchSize", 10) > 10 and not properties.get("MaximumBatchingWindowInSeconds")
    yield "minimum receives of a batch above ten without a window", int(queue and unbatched)


def _of_queue(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    del template
    yield "seconds of visibility", properties.get("VisibilityTimeout", 30)


def _of_queue_policy(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    yield "bytes of a queue's policy", len(_compact(template.resolve(properties["PolicyDocument"])))


def _of_rule(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    yield "bytes of an event pattern", len(_compact(template.resolve(properties.get("EventPattern", {}))))


def _of_machine(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    yield "bytes of a state machine", len(str(template.resolve(properties.get("DefinitionString", ""))))


def _of_bucket(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    del template
    configuration = properties.get("NotificationConfiguration", {})
    yield "notifications of a bucket", len(configuration.get("QueueConfigurations", []))


def _of_table(template: Template, properties: Json) -> Iterator[tuple[str, float]]:
    del template
    yield "indexes of a table", len(properties.get("GlobalSecondaryIndexes", []))


_SIZES = {
    "AWS::CloudWatch::Alarm": _of_alarm,
    "AWS::CloudWatch::CompositeAlarm": _of_composite,
    "AWS::DynamoDB::Table": _of_table,
    "AWS::Events::Rule": _of_rule,
    "AWS::Lambda::EventSourceMapping": _of_mapping,
    "AWS::Lambda::Function": _of_function,
    "AWS::S3::Bucket": _of_bucket,
    "AWS::SQS::Queue": _of_queue,
    "AWS::SQS::QueuePolicy": _of_queue_policy,
    "AWS::StepFunctions::StateMachine": _of_machine,
}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def misfits(template: Template) -> Iterator[str]:
    """Actions that do not exist, that take none of their resources, or that do not know a condition key."""
    for role in template.roles():
        for statement in [] if role.startswith(_NETWORK) else template.statements(role):
            resources = [str(one) for one in as_list(statement.document.get("Resource", "*"))]
            conditions = {key for keys in statement.document.get("Condition", {}).values() for key in keys}
            for action in statement.actions:
                yield from (f"{action}: {problem}" for problem in _misfits(action, resources, conditions))


def _misfits(action: str, resources: list[str], conditions: set[str]) -> Iterator[str]:
    service, name = action.split(":")
    known = authorization(service)
    matching = [one for one in known["privileges"] if re.fullmatch(name.replace("*", ".*"), one)]
    if not matching:
        yield "no such action"
    for types in [known["privileges"][one]["resource_types"] for one in matching] if "*" not in name else []:
        formats = [known["resources"][one]["arn"] for one in types if one]
        if resources != ["*"] and not any(_fits(one, arn) for one in resources for arn in formats):
            yield f"takes no {resources[0]}"
        keys = {key.lower() for one in types.values() for key in one["condition_keys"]}
        for condition in conditions:
            if not condition.startswith("aws:") and condition.lower() not in keys:
                yield f"knows no condition key {condition}"


def _fits(resource: str, arn: str) -> bool:
    """True if an ARN, or a pattern of ARNs, may be of a format such as `arn:${Partition}:s3:::${BucketName}`."""
    if resource.startswith("<"):
        return True  # of another stack
    resource = re.sub(r"<[^>]*>", "x", resource)
    parts = re.split(r"\$\{(\w+)\}", arn)
    example = "".join(_KNOWN.get(part, "x") if at % 2 else part for at, part in enumerate(parts))
    pattern = "".join(
        (".+" if part == "ObjectName" else "[^/:]+") if at % 2 else re.escape(part) for at, part in enumerate(parts)
    )
    return like(resource, example) or re.fullmatch(pattern, resource) is not None


_KNOWN = {"Partition": "aws", "Region": REGION, "Account": ACCOUNT}


def unheard(template: Template) -> Iterator[str]:
    """Senders of events whose queue, or its key, does not accept them, and sources that a function may not read."""
    queues, keys = _queue_policies(template), dict(template.of_type("AWS::KMS::Key"))
    for name, properties in template.of_type("AWS::S3::Bucket"):
        waits = as_list(template.body["Resources"][name].get("DependsOn", []))
        for one in properties.get("NotificationConfiguration", {}).get("QueueConfigurations", []):
            queue = _logical_id(one["Queue"])
            if queue in queues and not set(waits) & queues[queue].keys():
                yield f"{name} is notified before {queue} has its policy"
            yield from _refusals(template, queues, keys, queue, "s3.amazonaws.com")
    for _, properties in template.of_type("AWS::Events::Rule"):
        for target in properties.get("Targets", []):
            for arn in (target["Arn"], target.get("DeadLetterConfig", {}).get("Arn")):
                yield from _refusals(template, queues, keys, _logical_id(arn), "events.amazonaws.com")
    for name, properties in template.of_type("AWS::Lambda::EventSourceMapping"):
        function = template.body["Resources"].get(_logical_id(properties["FunctionName"]), {}).get("Properties", {})
        source = template.body["Resources"].get(_logical_id(properties.get("EventSourceArn")), {}).get("Type")
        if (role := template.role_of(function)) and source:
            allowed = {action for one in template.statements(role) for action in one.actions}
            yield from (f"{name} lacks {action}" for action in sorted(_POLLING[source] - allowed))


_POLLING = {
    "AWS::DynamoDB::Table": {
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
    },
    "AWS::Kinesis::Stream": {
        "kinesis:DescribeStream",
        "kinesis:DescribeStreamSummary",
        "kinesis:GetRecords",
        "kinesis:GetShardIterator",
        "kinesis:ListShards",
        "kinesis:SubscribeToShard",
    },
    "AWS::SQS::Queue": {"sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"},
}
"""The actions without which Lambda makes no event source mapping, from the Lambda guide."""


def _queue_policies(template: Template) -> dict[str, dict[str, list[Json]]]:
    found: dict[str, dict[str, list[Json]]] = defaultdict(dict)
    for name, properties in template.of_type("AWS::SQS::QueuePolicy"):
        for queue in properties["Queues"]:
            found[_logical_id(queue)][name] = template.resolve(properties["PolicyDocument"])["Statement"]
    return found


def _refusals(
    template: Template, queues: dict[str, dict[str, list[Json]]], keys: Json, queue: str, service: str
) -> Iterator[str]:
    resource = template.body["Resources"].get(queue, {})
    if resource.get("Type") != "AWS::SQS::Queue":
        return
    statements = [one for policy in queues.get(queue, {}).values() for one in policy]
    if not any("sqs:SendMessage" in as_list(one["Action"]) and _names(one, service) for one in statements):
        yield f"{queue} refuses {service}"
    key = _logical_id(resource.get("Properties", {}).get("KmsMasterKeyId"))
    if key in keys and not any(_names(one, service) for one in template.resolve(keys[key]["KeyPolicy"])["Statement"]):
        yield f"the key of {queue} refuses {service}"


def _names(statement: Json, service: str) -> bool:
    principal = statement.get("Principal")
    return (
        statement["Effect"] == "Allow" and isinstance(principal, dict) and service in as_list(principal.get("Service"))
    )


def _logical_id(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    target = value.get("Ref") or value.get("Fn::GetAtt")
    return str(target[0] if isinstance(target, list) else target)


@pytest.mark.failure_mode("F412")
def test_each_number_is_within_its_quota(templates: list[Template]) -> None:
    """A quota that no template has a number of is not checked, so that is an error too."""
    found = [one for template in templates for one in sizes(template)]
    assert len(templates) > 50
    assert [one for one in found if one[2] > QUOTAS[one[0]]] == []
    assert {quota for quota, _, _ in found} == set(QUOTAS)


@pytest.mark.failure_mode("F412")
def test_each_action_exists_and_fits_its_resources(templates: list[Template]) -> None:
    """The service authorization reference has the resources and condition keys of each action."""
    found = {problem.partition("arn:")[0] for template in templates for problem in misfits(template)}
    assert found == set(ACCEPTED)


@pytest.mark.failure_mode("F412")
def test_each_sender_is_accepted_and_each_source_is_readable(templates: list[Template]) -> None:
    assert [f"{template.name}: {problem}" for template in templates for problem in unheard(template)] == []


def test_what_does_not_fit_is_found() -> None:
    """A queue without a policy, a role with an unknown action and a wrong resource, and a pattern that is too long."""
    queue = {"Fn::GetAtt": ["Queue", "Arn"]}
    statement = {
        "Effect": "Allow",
        "Action": ["s3:GetObjects", "s3:GetObject"],
        "Resource": "arn:aws:sqs:us-east-1:0:q",
    }
    resources = {
        "Queue": {"Type": "AWS::SQS::Queue"},
        "Rule": {
            "Type": "AWS::Events::Rule",
            "Properties": {"EventPattern": {"source": ["x" * 2048]}, "Targets": [{"Arn": queue}]},
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {"Policies": [{"PolicyDocument": {"Statement": [statement]}}]},
        },
    }
    template = Template("Wrong", {"Resources": resources})
    assert list(unheard(template)) == ["Queue refuses events.amazonaws.com"]
    assert list(misfits(template)) == [
        "s3:GetObjects: no such action",
        "s3:GetObject: takes no arn:aws:sqs:us-east-1:0:q",
    ]
    assert [quota for quota, _, number in sizes(template) if number > QUOTAS[quota]] == ["bytes of an event pattern"]
