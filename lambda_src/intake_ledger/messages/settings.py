"""The settings of a message intake. The construct sets them as environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import jmespath  # type: ignore[import-untyped]
from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]

from intake_ledger.protocol import ConsumerSettings, Ordering, SettingsError, consumer_settings


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


@dataclass(frozen=True, slots=True)
class MessageSettings:
    """The settings of an intake."""

    consumer: ConsumerSettings
    source: MessageSourceType
    key: str
    """The JMESPath expression of a message's key."""
    identity: str
    """The JMESPath expression of its identity. Two messages with the same key and identity are the same message."""
    unwrap_sns: bool = False
    """True if a notification of SNS is replaced by the message in it."""


def message_settings(environment: Mapping[str, str]) -> MessageSettings:
    """Read the settings.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    consumer = consumer_settings(environment)
    if consumer.ordering is not Ordering.EVERY_VERSION:
        raise SettingsError("INTAKE_ORDERING is LATEST, expected EVERY_VERSION: each message is processed")
    if consumer.threads != 1:
        raise SettingsError(f"INTAKE_CONCURRENCY is {consumer.threads}, expected 1: messages are processed in turn")
    source = environment.get("INTAKE_MESSAGE_SOURCE", "")
    if source not in MessageSourceType:
        raise SettingsError(f"INTAKE_MESSAGE_SOURCE is {source!r}, expected one of {', '.join(MessageSourceType)}")
    key, identity = (_expression(environment, name) for name in ("INTAKE_MESSAGE_KEY", "INTAKE_MESSAGE_IDENTITY"))
    unwrap = environment.get("INTAKE_MESSAGE_UNWRAP_SNS", "false")
    if unwrap not in ("true", "false"):
        raise SettingsError(f"INTAKE_MESSAGE_UNWRAP_SNS is {unwrap!r}, expected true or false")
    # Messages are claimed alone, just before their processor starts.
    alone = replace(consumer, commit_together=False)
    return MessageSettings(alone, MessageSourceType(source), key, identity, unwrap_sns=unwrap == "true")


def compiled(expression: str) -> Any:
    """The compiled JMESPath expression. JMESPath comes with boto3, which Lambda's runtime has.

    Raises:
        ValueError: The expression is malformed.

    """
    try:
        return jmespath.compile(expression)
    except JMESPathError as problem:
        raise ValueError(f"{expression!r} is not JMESPath: {problem}") from None


def _expression(environment: Mapping[str, str], name: str) -> str:
    expression = environment.get(name, "")
    try:
        compiled(expression)
    except ValueError as problem:
        raise SettingsError(f"{name}: {problem}") from None
    return expression
