"""Lambda's entry point of a message intake, and the consumer of an execution environment."""

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from intake_ledger.aws import LambdaContext
from intake_ledger.consumer import make_services
from intake_ledger.keyed import KeyedLedger
from intake_ledger.messages.consumer import MessageConsumer
from intake_ledger.messages.queues import MessageQueues
from intake_ledger.messages.settings import message_settings
from intake_ledger.processor import load_processor

if TYPE_CHECKING:
    from intake_ledger.messages.keyed_message import MessageProcessor


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Lambda's entry point."""
    return make_consumer().handle(event, context)


@cache
def make_consumer() -> MessageConsumer:
    """The consumer that the environment's variables describe, made once per execution environment."""
    settings = message_settings(os.environ)
    services = make_services(settings.consumer, ledger_class=KeyedLedger, queues_class=MessageQueues)
    processor = cast("MessageProcessor", load_processor(settings.consumer.processor))
    return MessageConsumer(settings, services, processor)
