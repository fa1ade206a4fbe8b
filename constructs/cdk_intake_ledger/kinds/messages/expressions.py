"""Checks the expressions of a message intake: those that cannot work, and identities that would lose messages.

Two messages with one key and one identity are copies, and one of them is processed. So an identity that is the same for
different messages loses all but one, and no alarm can tell.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jmespath  # type: ignore[import-untyped] # Powertools depends on it, so the CDK app has it
from aws_cdk import CfnResource, Token
from constructs import Construct
from jmespath.functions import Functions  # type: ignore[import-untyped]

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.message_rules import (
    MESSAGE_EXPRESSION,
    MESSAGE_FIELD,
    MESSAGE_FINGERPRINT_CONSTANT,
    MESSAGE_FINGERPRINT_SAME,
    MESSAGE_FUNCTION,
    MESSAGE_IDENTITY_CONSTANT,
    MESSAGE_IDENTITY_FALLBACK,
    MESSAGE_IDENTITY_FEW,
    MESSAGE_IDENTITY_IS_KEY,
    MESSAGE_IDENTITY_SHARED,
    MESSAGE_IDENTITY_TYPES,
    MESSAGE_RECORD_TOO_LONG,
    MESSAGE_REMOVALS,
)
from cdk_intake_ledger.kinds.messages.message_source import MessageSource
from cdk_intake_ledger.resources.cloudformation import properties_of
from intake_ledger.messages.settings import MessageSourceType

Path = tuple[str, ...]
"""Names of fields, from the message inwards."""
Envelope = Mapping[Path, Iterable[str]]
"""The names below each known place of a message. Other places may have any name."""

_EVENT = ("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail", "replay-name")
"""https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html"""
_RECORD = (
    *("eventID", "eventName", "eventVersion", "eventSource", "awsRegion", "eventSourceARN"),
    *("userIdentity", "dynamodb"),
)
"""Fields of a record of a DynamoDB stream."""
_SNS_ENVELOPE = frozenset(
    {
        *("Type", "MessageId", "SequenceNumber", "TopicArn", "Subject", "Message", "Timestamp", "MessageAttributes"),
        *("SignatureVersion", "Signature", "SigningCertURL", "UnsubscribeURL"),
    }
)
"""https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html"""
_CHANGE = (
    "ApproximateCreationDateTime",
    "Keys",
    "NewImage",
    "OldImage",
    "SequenceNumber",
    "SizeBytes",
    "StreamViewType",
)
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamRecord.html"""
_IMAGES_THAT_LACK = {
    "KEYS_ONLY": ("NewImage", "OldImage"),
    "NEW_IMAGE": ("OldImage",),
    "OLD_IMAGE": ("NewImage",),
}
"""By the view type of the stream."""
_SHARED: Mapping[MessageSourceType, tuple[Path, ...]] = {
    MessageSourceType.EVENTBRIDGE: tuple((name,) for name in _EVENT if name not in ("id", "detail")),
    MessageSourceType.DYNAMODB: (
        ("eventName",),
        ("eventVersion",),
        ("eventSource",),
        ("awsRegion",),
        ("eventSourceARN",),
        ("userIdentity",),
        ("dynamodb", "Keys"),
        ("dynamodb", "ApproximateCreationDateTime"),
        ("dynamodb", "SizeBytes"),
        ("dynamodb", "StreamViewType"),
    ),
}
"""Fields that have the same value in different messages of a source."""
_SNS_SHARED = ("Type", "TopicArn", "SignatureVersion", "SigningCertURL", "UnsubscribeURL")
_FEW_VALUES = frozenset({"comparator", "not_expression", "contains", "ends_with", "length", "starts_with", "type"})
"""Nodes and functions whose value is the same for many messages."""
_ANY = {"or_expression", "not_null"}
"""Nodes whose value is that of one of their children."""


def expression_problems(source: MessageSource, expressions: Mapping[str, str]) -> Iterator[Problem]:
    """Reasons why the expressions `key` and `identity` cannot work.

    Args:
        source: the source of the messages, whose envelope may be known.
        expressions: the expressions by the names of their options.

    """
    # Each look at a table is a call of the CDK's process.
    envelope = _envelope(source)
    for name, expression in expressions.items():
        if Token.is_unresolved(expression):
            continue
        try:
            parsed = jmespath.compile(expression).parsed
        except jmespath.exceptions.JMESPathError as error:
            # The error draws the position below the expression, in more lines.
            text = str(error).splitlines()[0].rstrip(".:")
            yield MESSAGE_EXPRESSION.problem(name=name, expression=expression, error=text[:1].lower() + text[1:])
            continue
        wrong_functions = [*_function_problems(name, parsed)]
        yield from wrong_functions
        paths = [*_paths(parsed)]
        if not paths and name == "fingerprint":
            yield MESSAGE_FINGERPRINT_CONSTANT.problem(expression=expression)
        elif not paths and name == "identity":
            yield MESSAGE_IDENTITY_CONSTANT.problem(expression=expression)
        elif name == "identity" and not wrong_functions and not [*_paths(parsed, without=_FEW_VALUES)]:
            yield MESSAGE_IDENTITY_FEW.problem(expression=expression)
        same = next((one for one in ("identity", "key") if expressions.get(one, "").strip() == expression.strip()), "")
        if name == "fingerprint" and same:
            yield MESSAGE_FINGERPRINT_SAME.problem(expression=expression, name=same)
        if (missing := _impossible(envelope, parsed)) is not None:
            where = {MessageSourceType.EVENTBRIDGE: "detail"}.get(source.kind, "dynamodb.Keys or dynamodb.NewImage")
            yield MESSAGE_FIELD.problem(name=name, expression=expression, where=where, **missing)


def warn_about_identity(scope: Construct, source: MessageSource, *, key: str, identity: str) -> None:
    """Warn if different messages may have the same identity.

    Args:
        scope: the intake.
        source: the source of its messages.
        key: the expression of the key, which compiles.
        identity: the expression of the identity, which compiles.

    """
    if Token.is_unresolved(identity):
        return
    if identity.strip() == key.strip():
        warn(scope, MESSAGE_IDENTITY_IS_KEY, expression=identity)
    parsed = jmespath.compile(identity).parsed
    if _falls_back(parsed):
        warn(scope, MESSAGE_IDENTITY_FALLBACK, expression=identity)
    shared = _SHARED.get(source.kind, ())
    if not source.is_stream and source.event_pattern is None and not source.unwrap_sns:
        shared = tuple((name,) for name in _SNS_SHARED)
    paths = [*_paths(parsed)]
    if paths and all(any(path[: len(one)] == one for one in shared) for path in paths):
        own = {MessageSourceType.EVENTBRIDGE: "id", MessageSourceType.DYNAMODB: "eventID"}.get(source.kind, "MessageId")
        warn(scope, MESSAGE_IDENTITY_SHARED, expression=identity, own=own)
    types = (source.event_pattern and source.event_pattern.detail_type) or ()
    if len(types) > 1 and not any(path[:1] in ((), ("id",), ("detail-type",)) for path in paths):
        warn(scope, MESSAGE_IDENTITY_TYPES, expression=identity, count=len(types))


def warn_about_records(scope: Construct, source: MessageSource, expressions: Mapping[str, str]) -> None:
    """Warn if removals of items of a table have no value of an expression, and about records that are too long.

    Args:
        scope: the intake.
        source: the source of its messages.
        expressions: those of key, identity and fingerprint by name, which compile.

    """
    if source.is_stream:
        warn(scope, MESSAGE_RECORD_TOO_LONG)
    if source.kind is not MessageSourceType.DYNAMODB:
        return
    for name, expression in expressions.items():
        if Token.is_unresolved(expression):
            continue
        fields = {path[:2] for path in _paths(jmespath.compile(expression).parsed)}
        if ("dynamodb", "NewImage") in fields and not fields & {("dynamodb", "OldImage"), ("dynamodb", "Keys")}:
            warn(scope, MESSAGE_REMOVALS, name=name, expression=expression)


def _falls_back(node: Mapping[str, Any]) -> bool:
    """True if the value of a message without the fields is one that names none."""
    children = node["children"]
    if node["type"] in _ANY or (node["type"] == "function_expression" and node["value"] in _ANY):
        return any(_falls_back(child) or not [*_paths(child)] for child in children)
    # A function of one argument, such as `to_string`.
    return node["type"] == "function_expression" and len(children) == 1 and _falls_back(children[0])


def reads_sns_envelope(*expressions: str) -> bool:
    """True if each expression names a field of the envelope of SNS, or is not known yet."""
    return all(
        Token.is_unresolved(one)
        or all(path[:1] and path[0] in _SNS_ENVELOPE for path in _paths(jmespath.compile(one).parsed))
        for one in expressions
    )


def _function_problems(name: str, node: Mapping[str, Any]) -> Iterator[Problem]:
    """Functions that the runtime does not have, or with another number of arguments. They fail for each message."""
    functions = Functions.FUNCTION_TABLE
    for each in _nodes(node):
        if each["type"] != "function_expression":
            continue
        error = "JMESPath does not have it"
        if each["value"] in functions:
            signature, count = functions[each["value"]]["signature"], len(each["children"])
            variadic = bool(signature) and signature[-1].get("variadic", False)
            if count == len(signature) or (variadic and count > len(signature)):
                continue
            error = f"it has {count} arguments, and takes {'at least ' if variadic else ''}{len(signature)}"
        known = ", ".join(sorted(functions))
        yield MESSAGE_FUNCTION.problem(name=name, function=each["value"], error=error, functions=known)


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node["children"]:
        # The children of a slice are numbers.
        if isinstance(child, Mapping):
            yield from _nodes(child)


def _paths(node: Mapping[str, Any], *, without: frozenset[str] = frozenset()) -> Iterator[Path]:
    """The fields of the message that a value depends on, also without what is in some nodes and functions. The whole
    message is the empty path.
    """
    kind, children = node["type"], node["children"]
    if kind in without or (kind == "function_expression" and node["value"] in without):
        return
    if kind in ("current", "identity"):
        yield ()
    elif kind == "field":
        yield (node["value"],)
    elif kind in ("subexpression", "pipe"):
        paths = [*_paths(children[0], without=without)]
        for child in children[1:]:
            # Behind a pipe, a value without a field is the same for each message.
            paths = [before + after for before in paths for after in _paths(child, without=without)]
        yield from paths
    elif kind == "and_expression" and not [*_paths(children[-1], without=without)]:
        return  # the value of a message that has the first field is the second, which names none
    elif kind in ("projection", "filter_projection", "value_projection", "index_expression"):
        yield from _paths(children[0], without=without)
    else:
        inner = (child for child in children if isinstance(child, Mapping))
        yield from (path for child in inner for path in _paths(child, without=without))


def _impossible(envelope: Envelope, node: Mapping[str, Any]) -> dict[str, str] | None:
    """The values of the problem if no message of the source has a value. None if a message may have one."""
    is_function = node["type"] == "function_expression"
    is_any = node["type"] in _ANY or (is_function and node["value"] in _ANY)
    if is_any and node["children"]:
        found = [_impossible(envelope, child) for child in node["children"]]
        return found[0] if all(found) else None
    if node["type"] in ("function_expression", "multi_select_list", "multi_select_dict", "key_val_pair"):
        each = (_impossible(envelope, child) for child in node["children"])
        return next(filter(None, each), None)
    return next(filter(None, (_missing(envelope, path) for path in _paths(node))), None)


def _missing(envelope: Envelope, path: Path) -> dict[str, str] | None:
    for place, names in envelope.items():
        depth = len(place)
        if path[:depth] == place and len(path) > depth and path[depth] not in names:
            return {"field": ".".join(path[: depth + 1]), "names": ", ".join(names)}
    return None


def _envelope(source: MessageSource) -> Envelope:
    """Read the names from the source, and from the table of a stream."""
    if source.kind is MessageSourceType.EVENTBRIDGE:
        return {(): _EVENT}
    if source.kind is not MessageSourceType.DYNAMODB or source.table is None:
        return {}
    resource = source.table.node.default_child
    properties = properties_of(resource) if isinstance(resource, CfnResource) else {}
    stream, schema = properties.get("streamSpecification"), properties.get("keySchema")
    view = stream.get("streamViewType") if isinstance(stream, Mapping) else None
    without = _IMAGES_THAT_LACK.get(str(view), ())
    places: dict[Path, Iterable[str]] = {(): _RECORD, ("dynamodb",): [name for name in _CHANGE if name not in without]}
    if isinstance(schema, list):
        places["dynamodb", "Keys"] = [str(one["attributeName"]) for one in schema]
    return places
