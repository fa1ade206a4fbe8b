"""The fix for a wrong argument, from the expected type and the value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger.checks.arguments.annotations import accepts, alternatives
from cdk_intake_ledger.checks.arguments.wording import expected_text

FEW = 6
"""Constants of a class that a message lists."""

Fix = Callable[[Any], str | None]


def _of_text(code: str) -> Fix:
    """The code with the value in it, if the value is a text."""
    return lambda value: code.format(repr(value)) if isinstance(value, str) else None


def _of(kinds: type | tuple[type, ...], code: str) -> Fix:
    return lambda value: code.format(value) if isinstance(value, kinds) else None


def _duration(value: object) -> str:
    return f"Duration.seconds({value})" if type(value) in (int, float) else "Duration.seconds(60), for example"


def _processor(value: object) -> str:
    if isinstance(value, lambda_.FunctionBase):
        return "Processor.from_function(function)"
    if isinstance(value, sfn.StateMachine):
        return "Processor.from_state_machine(machine)"
    return 'Processor.from_asset("folder", entrypoint="module:function")'


BY_TYPE: Mapping[str, Fix] = {
    "AuditOptions": _of(bool, "AuditOptions(interval=...), or omit it: the audit cannot be switched off"),
    "Code": lambda value: (
        _of(lambda_.DockerImageCode, "it to Processor.from_image")(value)
        or _of_text("lambda_.Code.from_asset({})")(value)
    ),
    "ConcurrencyOptions": _of(int, "ConcurrencyOptions(threads={})"),
    "Duration": _duration,
    "IBucket": _of_text('s3.Bucket.from_bucket_name(self, "Existing", {})'),
    "IFunction": _of_text('lambda_.Function.from_function_name(self, "Existing", {})'),
    "IKey": _of_text('kms.Key.from_key_arn(self, "Existing", {})'),
    "ILayerVersion": _of_text('lambda_.LayerVersion.from_layer_version_arn(self, "Existing", {})'),
    "ILogGroup": _of_text('logs.LogGroup.from_log_group_name(self, "Existing", {})'),
    "IQueue": _of_text('sqs.Queue.from_queue_arn(self, "Existing", {})'),
    "ISecurityGroup": _of_text('ec2.SecurityGroup.from_security_group_id(self, "Existing", {})'),
    "IStateMachine": _of_text('sfn.StateMachine.from_state_machine_arn(self, "Existing", {})'),
    "IStream": _of_text('kinesis.Stream.from_stream_arn(self, "Existing", {})'),
    "ITable": _of_text('dynamodb.Table.from_table_name(self, "Existing", {})'),
    "ITopic": _of_text('sns.Topic.from_topic_arn(self, "Existing", {})'),
    "IVpc": _of_text('ec2.Vpc.from_lookup(self, "Existing", vpc_id={})'),
    "IntakeLedger": _of((dynamodb.Table, dynamodb.TableV2), 'IntakeLedger(self, "Ledger", table=...)'),
    "IntakeQueue": _of(sqs.QueueBase, 'IntakeQueue(self, "Queue", queue=..., dead_letter_queue=...)'),
    "NotificationKeyFilter": _of_text("s3.NotificationKeyFilter(prefix={})"),
    "MessageSource": _of(sqs.QueueBase, "MessageSource.sqs(queue)"),
    "Processor": _processor,
    "SetForm": _of_text("SetForm.manifest({}), or another form"),
    "Size": _of((int, float), "Size.mebibytes({}), or another unit"),
}
"""By the name of the expected type: the code that makes it of a value, or None for other values."""


def right_argument(annotation: Any, value: object) -> str:
    """What to pass, as code where it is known.

    Args:
        annotation: of the argument.
        value: which does not fit.

    """
    return _fix(annotation, value) or expected_text(annotation)


def _fix(annotation: Any, value: object) -> str | None:
    fixes = (_fix_of(kind, value) for kind in alternatives(annotation) if kind is not NoneType)
    return next(filter(None, fixes), None)


def _fix_of(kind: Any, value: object) -> str | None:
    if get_origin(kind) is Sequence:
        return _in_list(get_args(kind)[0], value)
    if not isinstance(kind, type):
        return None
    fix = BY_TYPE.get(kind.__name__)
    return (fix and fix(value)) or _by_kind(kind, value)


def _by_kind(kind: type, value: object) -> str | None:
    if issubclass(kind, Enum):
        return _names(kind, kind.__members__)
    if isinstance(value, Mapping) and kind is not dict:
        return f"{kind.__name__}({', '.join(f'{name}={part!r}' for name, part in value.items())})"
    if kind is int and isinstance(value, str) and value.strip().isdecimal():
        return f"{value.strip()}, without quotes"
    return _constant(kind, value) if isinstance(value, str) else None


def _constant(kind: type, value: str) -> str | None:
    """The constant of the class that the text resembles, or all of a few: `Architecture.ARM_64` for `arm64`."""
    constants = [name for name in dir(kind) if name.isupper()]
    found = [name for name in constants if _letters(name) == _letters(value)]
    return _names(kind, found or constants) if found or 0 < len(constants) <= FEW else None


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _names(kind: type, names: Iterable[str]) -> str:
    return " or ".join(f"{kind.__name__}.{name}" for name in names)


def _in_list(kind: Any, value: object) -> str | None:
    """The fix for the first element that has one, or a list of the one value."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return next(filter(None, (f"[{fix}]" for element in value if (fix := _fix(kind, element)))), None)
    if accepts(kind, value):
        return f"a list: [{value!r}]" if isinstance(value, str) else "a list with it: [...]"
    return f"[{fix}]" if (fix := _fix(kind, value)) else None
