"""Lambda's entry point, and the consumer of an execution environment."""

import os
import random
import secrets
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from intake_ledger.aws import POOL, Bucket, LambdaContext, Queues, bucket_client, ledger_client, make_client
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.garbage import no_garbage_collection
from intake_ledger.ledger import CompletenessRecord, ExecutionLedger, Ledger, LedgerOptions, LedgerTable
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.processor import ObjectChange, Processor, load_processor
from intake_ledger.protocol import ConsumerSettings, Policy, consumer_settings, refuse_other_kinds

if TYPE_CHECKING:
    from intake_ledger.consumer.executions import Executions
    from intake_ledger.consumer.set_wakes import SetWakes


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Lambda's entry point."""
    return make_consumer().handle(event, context)


@cache
@no_garbage_collection(freeze=True)
def make_consumer() -> Consumer:
    """The consumer that the environment's variables describe, made once per execution environment."""
    refuse_other_kinds(os.environ, "the consumer of objects", takes=("INTAKE_STATE_MACHINE",))
    settings = consumer_settings(os.environ)
    if "INTAKE_STATE_MACHINE" in os.environ:
        services = make_services(settings, ledger_class=ExecutionLedger)
        executions = make_executions(os.environ, services)
        return Consumer(services, no_processor, executions=executions, sets=make_sets(os.environ, services))
    services = make_services(settings)
    return Consumer(services, make_processor(settings), sets=make_sets(os.environ, services))


def make_services(
    settings: ConsumerSettings,
    *,
    ledger_class: Callable[..., Ledger] = Ledger,
    queues_class: type[Queues] = Queues,
    telemetry_class: type[PowertoolsTelemetry] = PowertoolsTelemetry,
) -> Services:
    """The services of a consumer with these settings: ledger, bucket, queues and telemetry.

    Args:
        settings: the pipeline's settings.
        ledger_class: makes the ledger; `Ledger` when omitted.
        queues_class: the class of the queues; `Queues` when omitted.
        telemetry_class: the class of the telemetry; `PowertoolsTelemetry` when omitted.

    """
    # Each thread has one request under way, and one or two streams.
    pool = max(POOL, 3 * settings.threads)
    clock = _epoch_ms
    table = LedgerTable(ledger_client(pool), settings.table)
    # One client reads objects and writes outputs.
    s3 = cache(_maker(settings, partial(bucket_client, pool)))
    bucket = Bucket(s3, settings.bucket, settings.bucket_owner)
    policy = Policy.of(settings)
    ledger = ledger_class(
        table,
        bucket,
        LedgerOptions(
            settings.pipeline,
            settings.ordering,
            policy,
            settings.max_event_age_seconds * 1000,
            processor_version=settings.processor_version,
        ),
        clock=clock,
        new_owner=lambda: secrets.token_hex(8),
        completeness=CompletenessRecord(settings, table, clock),
    )
    queues = queues_class(_maker(settings, partial(make_client, "sqs", pool)), settings.queue_url, settings.dlq_url)
    return Services(
        settings,
        ledger,
        bucket,
        queues,
        telemetry_class(settings.reasons),
        clock,
        random.SystemRandom().random,
        output_client=s3,
    )


def make_processor(settings: ConsumerSettings) -> Processor:
    """The processor that the settings name: a function of this package, or another Lambda function."""
    if settings.processor_function is None:
        return load_processor(settings.processor)
    from intake_ledger.processor.lambda_processor import remote_processor  # noqa: PLC0415 - most cold starts do not need it

    # The function's own timeout comes first, then the consumer's interruption. A call is never repeated here.
    make = partial(
        make_client,
        "lambda",
        max(POOL, settings.threads),
        read_timeout=settings.processing_timeout_seconds + 5,
        tcp_keepalive=True,
        retries={"total_max_attempts": 1},
    )
    return remote_processor(_maker(settings, make), settings.processor_function)


def make_sets(environment: Mapping[str, str], services: Services) -> "SetWakes | None":
    """The sets of files that have the pipeline's objects as parts. None: there are none.

    Raises:
        SettingsError: The variable INTAKE_SETS is malformed.

    """
    described = environment.get("INTAKE_SETS")
    if not described:
        return None
    from intake_ledger.consumer.set_wakes import make_set_wakes  # noqa: PLC0415 - most pipelines have no sets

    return make_set_wakes(described, services, _maker(services.settings, partial(make_client, "sqs")))


def make_executions(environment: Mapping[str, str], services: Services) -> "Executions":
    """The executions of the state machine that the settings name.

    Raises:
        SettingsError: A variable of the state machine is missing or malformed.

    """
    from intake_ledger.consumer.executions import Executions  # noqa: PLC0415 - most pipelines have no state machine
    from intake_ledger.executions import StateMachine, execution_settings  # noqa: PLC0415 - as above

    make = partial(make_client, "stepfunctions")
    return Executions(services, StateMachine(_maker(services.settings, make), execution_settings(environment)))


def no_processor(change: ObjectChange) -> None:
    """Refuse the change: a state machine is the processor."""
    raise NotImplementedError(f"a state machine processes {change.key}")


def _maker[Client](settings: ConsumerSettings, make: Callable[[], Client]) -> Callable[[], Client]:
    """Make a client when it is first needed, or at once if there will be threads: they must not share a session."""
    if settings.threads == 1:
        return make
    client = make()
    return lambda: client


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000
