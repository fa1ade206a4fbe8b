"""The settings of a message intake. The construct sets them as environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import (
    MESSAGE_IDENTITY,
    MESSAGE_KEY,
    MESSAGE_SOURCE,
    ConsumerSettings,
    Variable,
    settings_from,
    variable_of,
)


class MessageSourceType(StrEnum):
    """The source of an intake's messages."""

    SQS = "sqs"
    """An SQS standard queue."""
    FIFO = "fifo"
    """An SQS FIFO queue."""
    KINESIS = "kinesis"
    """A Kinesis stream."""
    DYNAMODB = "dynamodb"
    """The stream of a DynamoDB table."""
    EVENTBRIDGE = "eventbridge"
    """A rule of EventBridge, which sends its events to an SQS standard queue."""

    @property
    def is_stream(self) -> bool:
        """True if Lambda polls shards, in which the order of records counts."""
        return self in (MessageSourceType.KINESIS, MessageSourceType.DYNAMODB)


def compiled(expression: str) -> Any:
    """The compiled JMESPath expression. JMESPath comes with boto3, which Lambda's runtime has.

    Raises:
        ValueError: The expression is malformed.

    """
    # Constructs, which write these settings, run without it.
    import jmespath  # type: ignore[import-untyped]  # noqa: PLC0415
    from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        return jmespath.compile(expression)
    except JMESPathError as problem:
        raise ValueError(f"{expression!r} is not JMESPath: {problem}") from None


def _expression(name: str, text: str) -> str:
    try:
        compiled(text)
    except ValueError as problem:
        raise SettingsError(f"{name}: {problem}") from None
    return text


@dataclass(frozen=True, slots=True)
class MessageSettings:
    """The settings of an intake."""

    consumer: ConsumerSettings
    source: Annotated[MessageSourceType, Variable(MESSAGE_SOURCE)]
    key: Annotated[str, Variable(MESSAGE_KEY, parse=_expression)]
    """The JMESPath expression of a message's key."""
    identity: Annotated[str, Variable(MESSAGE_IDENTITY, parse=_expression)]
    """The JMESPath expression of its identity. Two messages with the same key and identity are the same message."""
    unwrap_sns: Annotated[bool, Variable("INTAKE_MESSAGE_UNWRAP_SNS")] = False
    """True if a notification of SNS is replaced by the message in it."""
    fingerprint: Annotated[str, Variable("INTAKE_MESSAGE_FINGERPRINT", parse=_expression)] = ""
    """The JMESPath expression of the content that copies must have in common. Empty: copies may differ, and count."""
    letter_seconds: Annotated[int, Variable("INTAKE_MESSAGE_LETTER_SECONDS", 0)] = 14 * 86_400
    """The time for which the dead-letter queue keeps a message. 0: it is not known."""
    deployed: Annotated[str, Variable("INTAKE_DEPLOYED")] = ""
    """The sources in JSON, for `intake_ledger.delivery_check.sources`."""


def message_settings(environment: Mapping[str, str]) -> MessageSettings:
    """Read the settings.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    consumer = settings_from(ConsumerSettings, environment)
    if consumer.ordering is not Ordering.EVERY_VERSION:
        raise SettingsError(f"{_name('ordering')} is LATEST, expected EVERY_VERSION: each message is processed")
    if consumer.threads != 1:
        raise SettingsError(f"{_name('threads')} is {consumer.threads}, expected 1: messages are processed in turn")
    # Messages are claimed alone, just before their processor starts.
    return settings_from(MessageSettings, environment, consumer=replace(consumer, commit_together=False))


def _name(field: str) -> str:
    return variable_of(ConsumerSettings, field)
