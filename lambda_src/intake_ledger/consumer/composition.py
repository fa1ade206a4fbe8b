"""Lambda's entry point, and the consumer of an environment: its kind, its runner, and the host that it runs in."""

import os
import random
import secrets
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import botocore

from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.clients import POOL, bucket_client, ledger_client, make_client
from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.hooks import GUARDS, check_options, modules_of
from intake_ledger.consumer.host import IN_LAMBDA, Host
from intake_ledger.consumer.services import Services, stops
from intake_ledger.garbage import no_garbage_collection
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.forgotten import ForgottenKeys
from intake_ledger.ledger.ledger import Ledger, LedgerOptions
from intake_ledger.ledger.row_history import RowHistory, RowHistoryRecord
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.processor.object_change import load_processor
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import (
    MESSAGE_SOURCE,
    MESSAGE_VARIABLES,
    SET_VARIABLES,
    ConsumerSettings,
    elsewhere_of,
    entrypoint_of,
    longest_execution_seconds,
    settings_from,
    variable_of,
)
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.inline import Inline

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

    from intake_ledger.consumer.set_wakes import SetWakes
    from intake_ledger.kinds import Kind
    from intake_ledger.kinds.sets import Sets
    from intake_ledger.ledger.ledger import FencingGuard
    from intake_ledger.observability.telemetry import Telemetry
    from intake_ledger.runners import Runner


class Platform:
    """The base of a consumer: AWS's clients, the time, random numbers and its log. The testing kit has another one."""

    clock: Callable[[], int] = staticmethod(lambda: time.time_ns() // 1_000_000)
    """Gives epoch milliseconds."""
    sleep: Callable[[float], object] = staticmethod(time.sleep)
    """Waits for a number of seconds."""
    jitter: Callable[[], float] = staticmethod(random.SystemRandom().random)
    """Gives a random number from 0 to 1."""
    new_owner: Callable[[], str] = staticmethod(lambda: secrets.token_hex(8))
    """Gives a name for a claim, which no other claim has."""

    def dynamodb(self, pool: int = POOL) -> "DynamoDBClient":
        """Make the client of the ledger's table, with this number of connections."""
        return ledger_client(pool)

    def s3(self, pool: int = POOL) -> "S3Client":
        """Make the client that reads the bucket."""
        return bucket_client(pool)

    def outputs(self, s3: "Callable[[], S3Client]") -> "Callable[[], S3Client]":
        """The maker of the client that writes outputs: that of the bucket's client."""
        return s3

    def client(self, service: str, pool: int = POOL, **options: Any) -> Any:
        """Make a client of another service; see `make_client`."""
        return make_client(service, pool, **options)

    def botocore_release(self) -> str:
        """The release of botocore whose clients these are."""
        return botocore.__version__

    def processor(self, settings: ConsumerSettings) -> Callable[[Any], Any]:
        """The processor in this process. Raises SettingsError if the settings name none."""
        return load_processor(entrypoint_of(settings))

    def telemetry(self, kind: "type[PowertoolsTelemetry]", settings: ConsumerSettings) -> "Telemetry":
        """Make the telemetry of this kind."""
        return kind(settings.reasons)

    def row_history(self, settings: ConsumerSettings, table: "LedgerTable") -> RowHistory:
        """Make the row history of an execution environment that starts."""
        return RowHistoryRecord(settings, table, self.clock)


AWS = Platform()
_KINDS = {"messages": MESSAGE_VARIABLES, "sets of files": SET_VARIABLES}
"""Variables that only a consumer of this kind of work has."""


class KindTools(NamedTuple):
    """The services that a kind is made with, besides its settings."""

    environment: Mapping[str, str]
    options: LedgerOptions
    table: LedgerTable
    bucket: Bucket
    telemetry: "Telemetry"
    platform: Platform
    outputs: "Callable[[], S3Client]"
    sqs: "Callable[[], SQSClient]"


class Parts(NamedTuple):
    """A consumer's kind and its services."""

    kind: "Kind"
    services: Services


def handler(event: Mapping[str, Any], context: InvocationContext) -> dict[str, Any]:
    """Lambda's entry point for each kind of work: a batch of messages, or the schedule's request for a check."""
    if "auditSets" in event:
        from intake_ledger.sets.audit import audit_sets  # noqa: PLC0415 - most invocations have messages

        kind, services = make_parts(os.environ)
        return audit_sets(cast("Sets", kind), services, context, dry_run=event.get("dryRun") is True)
    if "checkRows" in event:
        from intake_ledger.delivery_check.sources import SourceCheck  # noqa: PLC0415 - likewise
        from intake_ledger.messages.row_check import tick  # noqa: PLC0415
        from intake_ledger.messages.settings import message_settings  # noqa: PLC0415

        services, deployed = make_parts(os.environ).services, message_settings(os.environ).deployed
        function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")
        # In a VPC there may be no route to Lambda's API and other services.
        make_brief = partial(make_client, read_timeout=5, retries={"total_max_attempts": 1})
        sources = SourceCheck(services.settings, deployed, function=function, make_client=make_brief)
        return tick(services.settings, services.queues, services.clock, context, sources=sources, event=event)
    return dict(make_consumer().handle(event, context))


@cache
@no_garbage_collection(freeze=True)
def make_consumer() -> Consumer:
    """The consumer that the environment's variables describe, made once per execution environment."""
    parts = make_parts(os.environ)
    return Consumer(parts.services, parts.kind, make_runner(os.environ, parts.services))


def make_parts(environment: Mapping[str, str], host: Host = IN_LAMBDA, platform: Platform = AWS) -> Parts:
    """The kind that the variables name, and the services of its consumer on this host and platform.

    Raises:
        SettingsError: A variable is missing or malformed, or belongs to another kind of work.

    """
    named = _named(environment)
    settings, make_kind, telemetry_class = _kind(environment, named)
    check_options(settings, named, elsewhere_of(environment))
    # Each thread has one request under way, and one or two streams.
    pool = max(POOL, 3 * settings.threads)
    clock = platform.clock
    table = LedgerTable(platform.dynamodb(pool), settings.table)
    s3 = cache(_maker(settings, partial(platform.s3, pool)))
    bucket = Bucket(s3, settings.bucket, settings.bucket_owner)
    options = LedgerOptions(
        settings.pipeline,
        settings.ordering,
        Policy.of(settings, executions=elsewhere_of(environment) is not None),
        settings.max_event_age_seconds * 1000,
        processor_version=settings.processor_version,
    )
    telemetry = platform.telemetry(telemetry_class, settings)
    make_sqs = cache(_maker(settings, partial(platform.client, "sqs", pool)))
    kind = make_kind(
        KindTools(environment, options, table, bucket, telemetry, platform, platform.outputs(s3), make_sqs)
    )
    ledger = Ledger(
        table,
        kind.look,
        options,
        clock=clock,
        new_owner=platform.new_owner,
        row_history=platform.row_history(settings, table),
        forgotten=ForgottenKeys(settings.pipeline, table, clock),
        guards=(*kind.guards, *host.guards),
    )
    queues = Queues(make_sqs, settings.queue_url, settings.dlq_url, shortened=kind.shortened)
    is_stopped = stops(table, settings.pipeline)
    return Parts(kind, Services(settings, ledger, bucket, queues, telemetry, clock, platform.jitter, host, is_stopped))


def make_runner(
    environment: Mapping[str, str],
    services: Services,
    watched: Callable[[Any], Any] = lambda processor: processor,
    platform: Platform = AWS,
) -> "Runner":
    """The runner that the variables name. `watched` wraps the call of a processor that ends within its limit.

    Raises:
        SettingsError: A variable of a processor elsewhere is missing or malformed.

    """
    settings = services.settings
    _check_calls(settings, environment)
    if elsewhere_of(environment):
        from intake_ledger.executions.place import place_of  # noqa: PLC0415 - few have work that answers later
        from intake_ledger.runners.later import Later  # noqa: PLC0415 - as above

        def make_maker(service: str) -> Callable[[], Any]:
            return _maker(settings, partial(platform.client, service))

        release = platform.botocore_release()
        place = place_of(environment, make_maker, settings.table, services.clock, release=release)
        return Later(services, place, sleep=platform.sleep)
    if settings.processor_function is not None:
        from intake_ledger.processor.lambda_processor import remote_function  # noqa: PLC0415 - most are in this process
        from intake_ledger.runners.remote import Remote  # noqa: PLC0415 - as above

        # The function's own timeout comes first, then the consumer's interruption. A call is never repeated here.
        client = partial(
            platform.client,
            "lambda",
            max(POOL, settings.threads),
            read_timeout=settings.processing_timeout_seconds + 5,
            tcp_keepalive=True,
            retries={"total_max_attempts": 1},
        )
        return Remote(watched(remote_function(_maker(settings, client), settings.processor_function)))
    processor = watched(platform.processor(settings))
    if settings.max_per_call > 1:
        from intake_ledger.runners.calls import InlineCalls  # noqa: PLC0415 - as above

        return InlineCalls(processor)
    return Inline(processor)


def _check_calls(settings: ConsumerSettings, environment: Mapping[str, str]) -> None:
    """Refuse calls with several changes where there can be none. The constructs refuse the same at synthesis."""
    if settings.max_per_call == 1:
        return
    source = environment.get(MESSAGE_SOURCE)
    reasons = {
        "another function or an execution has one change in its request": elsewhere_of(environment) is not None
        or settings.processor_function is not None,
        f"{variable_of(ConsumerSettings, 'threads')} is {settings.threads}, and a call is made in the main thread": (
            settings.threads > 1
        ),
        f"{variable_of(ConsumerSettings, 'commit_together')} is true, and the commits of a call are together already": (
            settings.commit_together
        ),
        "a set is a call with many files already": any(environment.get(name) for name in SET_VARIABLES),
        f"{MESSAGE_SOURCE} is {source}, whose order a call would break": source not in (None, "sqs", "eventbridge"),
    }
    if found := [reason for reason, applies in reasons.items() if applies]:
        name = variable_of(ConsumerSettings, "max_per_call")
        raise SettingsError(f"{name} is {settings.max_per_call}, and {'; '.join(found)}: omit {name}")


class _Kind(NamedTuple):
    settings: ConsumerSettings
    make: "Callable[[KindTools], Kind]"
    telemetry: type[PowertoolsTelemetry] = PowertoolsTelemetry


def _named(environment: Mapping[str, str]) -> dict[str, str]:
    """The kind of work, with a variable that names it. Empty for objects."""
    named = {kind: name for kind, names in _KINDS.items() for name in names if environment.get(name)}
    if len(named) > 1:
        both = " and ".join(f"{name} of {kind}" for kind, name in named.items())
        raise SettingsError(f"{both} are set: a consumer has one kind of work. Set the variables of one construct only")
    return named


def _kind(environment: Mapping[str, str], named: Mapping[str, str]) -> _Kind:
    """The settings of the kind, and how it is made. A cold start imports its own kind only."""
    if "messages" in named:
        return _messages(environment)
    if named:
        return _sets(environment)
    from intake_ledger.kinds.objects import Objects  # noqa: PLC0415 - consumers of other kinds need it not

    settings = settings_from(ConsumerSettings, environment)

    def make(tools: KindTools) -> "Kind":
        sets = _set_wakes(settings, tools)
        guards = _guards(settings, tools, sets.is_control if sets else None)
        return Objects(settings, tools.bucket, tools.outputs, sets=sets, guards=guards)

    return _Kind(settings, make)


def _guards(
    settings: ConsumerSettings, tools: KindTools, is_control: Callable[[str], bool] | None = None
) -> "list[FencingGuard]":
    """The guards of options that are set. `is_control` tells keys without work. All keys have work when omitted."""
    return [module.make_guard(settings, tools, is_control) for module in modules_of(settings, GUARDS)]


def _longest_work_ms(environment: Mapping[str, str]) -> int | None:
    """The limit of work that outlives leases. None: no work does."""
    seconds = longest_execution_seconds(environment)
    return None if seconds is None else seconds * 1000


def _messages(environment: Mapping[str, str]) -> _Kind:
    from intake_ledger.keyed.key_lock import KeyLock  # noqa: PLC0415
    from intake_ledger.kinds.messages import Messages  # noqa: PLC0415
    from intake_ledger.messages.settings import MessageSourceType, message_settings  # noqa: PLC0415

    settings = message_settings(environment)
    place = elsewhere_of(environment)
    if place and (settings.source is MessageSourceType.FIFO or settings.source.is_stream):
        raise SettingsError(
            f"{place} is set and {MESSAGE_SOURCE} is {settings.source}: a message group or a shard "
            "would wait for each execution. Use the source sqs or eventbridge, or a processor that ends in minutes"
        )
    longest_ms = _longest_work_ms(environment)

    def make(tools: KindTools) -> "Kind":
        options, platform = tools.options, tools.platform
        lock = KeyLock(
            tools.table, options.pipeline, options.retention, clock=platform.clock, longest_work_ms=longest_ms
        )
        return Messages(settings, lock, sleep=platform.sleep)

    return _Kind(settings.consumer, make)


def _sets(environment: Mapping[str, str]) -> _Kind:
    from intake_ledger.kinds.sets import S3PartLists, Sets  # noqa: PLC0415
    from intake_ledger.set_members.membership import Membership  # noqa: PLC0415
    from intake_ledger.sets.settings import set_settings  # noqa: PLC0415
    from intake_ledger.sets.waiting import SetTelemetry  # noqa: PLC0415

    settings = set_settings(environment)

    def make(tools: KindTools) -> "Kind":
        consumer, lists = settings.consumer, None
        if settings.part_lists is not None:
            lists = S3PartLists(tools.outputs, settings.part_lists)
        membership = Membership(tools.platform.dynamodb(), consumer.table, consumer.bucket)
        return Sets(
            settings,
            tools.table,
            tools.bucket,
            membership,
            tools.platform.clock,
            output_client=tools.outputs,
            lists=lists,
            guards=_guards(consumer, tools),
        )

    return _Kind(settings.consumer, make, SetTelemetry)


def _set_wakes(settings: ConsumerSettings, tools: KindTools) -> "SetWakes | None":
    """The sets of files that have the pipeline's objects as parts. None: there are none."""
    if not settings.sets:
        return None
    from intake_ledger.consumer.set_wakes import make_set_wakes  # noqa: PLC0415 - most pipelines have no sets
    from intake_ledger.set_members.membership import Membership  # noqa: PLC0415 - as above

    membership = Membership(tools.platform.dynamodb(), settings.table, settings.bucket)
    return make_set_wakes(settings, tools.telemetry, tools.sqs, membership, clock=tools.platform.clock)


def _maker[Client](settings: ConsumerSettings, make: Callable[[], Client]) -> Callable[[], Client]:
    """Make a client when it is first needed, or at once if there will be threads: they must not share a session."""
    if settings.threads == 1:
        return make
    client = make()
    return lambda: client
