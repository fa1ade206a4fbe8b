"""The options of local runtimes: each is named once here, and becomes the variable that the construct would set.

The function's own readers take the variables, so a test refuses what the deployed function refuses.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict

from intake_ledger.messages.settings import MessageSettings
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import (
    DURABLE_FUNCTION,
    SET_FORM,
    STATE_MACHINE,
    ConsumerSettings,
    Reasons,
    environment_of,
    variable_of,
)
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger.protocol.settings_executions import ExecutionSettings
from intake_ledger.protocol.settings_worker import WorkerSettings
from intake_ledger_testing.local_settings import BUCKET, PIPELINE, REJECTS, TABLE
from intake_ledger_testing.local_worker import HOLD_SECONDS, LocalRunner
from intake_ledger_testing.memory_durable_functions import EVENT_AGE_SECONDS, FUNCTION
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL
from intake_ledger_testing.memory_step_functions import MACHINE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger_testing.memory_tables import MemoryTables

_EXECUTION_SECONDS, _LONGEST_TASK_SECONDS = 6 * 3600, 2 * 3600


class LocalOptions(TypedDict, total=False):
    """Options of each kind of work."""

    max_attempts: int
    """As in `RetryOptions`; 12 when omitted."""
    processing_timeout: float
    """In real seconds, such as 0.1; 60 when omitted. A processor that hangs is interrupted then, but not in an async
    test, where `run` uses a thread."""
    max_rate: float | None
    """As the construct's, in starts per second of the local time; no limit when omitted."""
    max_burst: int | None
    """As the construct's; the starts of five seconds, and at least 2, when omitted."""
    reasons: Reasons
    """As the construct's; exception types and positions when omitted."""
    dynamodb: "MemoryTables | DynamoDBClient | None"
    """Carries out `Commit(transact=...)`: `MemoryTables`, or the client of a local DynamoDB, such as moto's. When
    omitted, a transaction with a condition is refused."""
    raise_errors: bool
    """`run` raises the first error of the processor, with its traceback, instead of trying again. `Unprocessable`,
    `NotYet` and the effects of faults are not raised; False when omitted. `run` always raises an
    `InvalidEffectError`."""
    runner: LocalRunner
    """The place of the processor; this process when omitted."""
    worker: bool
    """True: workers outside of Lambda take the messages; Lambda when omitted."""


class LocalCallOptions(LocalOptions, total=False):
    """Options of calls and waits: those of `LocalMessages`."""

    max_per_call: int
    """As in `Processor.from_asset`. Above 1, your function takes a list; it takes one change when omitted."""
    max_wait: int
    """As in `RetryOptions`, in seconds of the local time; three days when omitted."""


class LocalBucketOptions(LocalOptions, total=False):
    """Options of a bucket with its objects: those of `LocalSets`."""

    versioned: bool
    """True if the bucket keeps versions; True when omitted."""
    exclusive_by: str | None
    """As in `ConcurrencyOptions`; no key waits for another one when omitted. Each worker handles one message after the
    other, so call `turn` with several workers to let them meet."""
    exclude: list[str]
    """As the construct's; nothing is left out when omitted."""
    keep_rejects: bool
    """True if the stack calls `keep_rejects`; `on_error` is an error when omitted."""


class LocalPipelineOptions(LocalBucketOptions, LocalCallOptions, total=False):
    """Options of `LocalPipeline`."""

    ordering: Ordering
    """As the construct's; `LATEST` when omitted."""
    deletes: bool
    """As the construct's; the processor is not called for removals when omitted."""
    directory_markers: bool
    """As the construct's; directory markers are skipped when omitted."""
    commit_together: bool
    """As the construct's; each change is committed alone when omitted. There is no `concurrency`, because threads would
    make runs differ."""
    after_commit: tuple[str, str] | None
    """Key and value of the construct's tag; versions get none when omitted. `tags` returns them."""
    ready_when: tuple[str, list[str]] | tuple[str, list[str], list[str]] | None
    """Key, values and refused values of the construct's tag; versions need none when omitted. `put_tag` sets one."""
    same_content: tuple[int, str | None] | None
    """Seconds and metadata field of the construct's `SameContent`; each version is processed when omitted. `copy`
    copies an object in place."""
    stop_overtaken: bool
    """As in `Processor.from_state_machine`; executions end by themselves when omitted."""


_FIELDS = {
    "processing_timeout": "processing_timeout_seconds",
    "max_wait": "max_wait_seconds",
    "deadline": "max_wait_seconds",
    "keep_rejects": "rejects",
}
"""The settings of options with another name."""
_SETTINGS = frozenset(one.name for one in fields(ConsumerSettings))
_NAMES = {
    STATE_MACHINE: "LocalRunner.STATE_MACHINE",
    DURABLE_FUNCTION: "LocalRunner.DURABLE_FUNCTION",
    **{variable_of(MessageSettings, name): name for name in ("source", "key", "identity", "fingerprint")},
    SET_FORM: "the form of the sets",
    "quietSeconds": "quiet_seconds",
    "hiddenParts": "hidden_parts",
}
"""Names for a test, instead of a variable or a name in its JSON."""


def check_names(kit: str, allowed: type, given: Mapping[str, object]) -> None:
    """Refuse options that there are not.

    Args:
        kit: the name of the class that the test uses.
        allowed: its options.
        given: the options by name.

    Raises:
        TypeError: One of them has another name.

    """
    if unknown := sorted(given.keys() - allowed.__annotations__.keys()):
        near = get_close_matches(unknown[0], allowed.__annotations__, 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"{kit} got an unexpected option {unknown[0]!r}{hint}")


def variables_of(options: Mapping[str, Any], suffix: str = "", **settings: object) -> dict[str, str]:
    """The variables of a consumer.

    Args:
        options: of a local runtime, by name.
        suffix: of the names of both queues.
        settings: fields of `ConsumerSettings` that no option gives.

    Raises:
        ValueError: No construct would set these variables.

    """
    seconds, versioned = options.get("processing_timeout", 60), options.get("versioned", True)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"processing_timeout is {seconds}: pass a number of seconds above 0")
    for name in ("after_commit", "ready_when", "same_content"):
        if options.get(name) is not None and not versioned:
            raise ValueError(f"{name} needs a bucket with versions: a request about a key may reach a newer object")
    if (burst := options.get("max_burst")) is not None and options.get("max_rate") is None:
        raise ValueError(f"max_burst is {burst} and max_rate is not set: set max_rate, or omit max_burst")
    values = {
        "pipeline": PIPELINE,
        "bucket": BUCKET,
        "table": TABLE,
        "queue_url": f"{QUEUE_URL}{suffix}",
        "dlq_url": f"{DEAD_LETTER_URL}{suffix}",
        "ordering": Ordering.LATEST,
        "deletes": False,
        # As the construct does.
        "keeps_rows": options.get("deletes", False),
        "retention_seconds": 35 * 86_400,
        "clock_skew_seconds": 120,
        "max_attempts": 12,
        "min_backoff_seconds": 15,
        "max_backoff_seconds": 1_800,
        "max_event_age_seconds": 6 * 3_600,
        **{_FIELDS.get(name, name): value for name, value in options.items()},
        "processing_timeout_seconds": math.ceil(seconds),
        "rejects": REJECTS if options.get("keep_rejects") else None,
        **settings,
    }
    texts = {name: json.dumps(value) if isinstance(value, list | tuple) else value for name, value in values.items()}
    return environment_of(ConsumerSettings, **{name: text for name, text in texts.items() if name in _SETTINGS}) | (
        _elsewhere(options, values["ordering"])
        | (environment_of(WorkerSettings, hold_seconds=HOLD_SECONDS, poll_seconds=0) if options.get("worker") else {})
    )


def _elsewhere(options: Mapping[str, Any], ordering: object) -> dict[str, str]:
    """The variables of the place of the processor."""
    runner, stops = options.get("runner", LocalRunner.PROCESS), options.get("stop_overtaken", False)
    if stops and not runner.answers_later:
        raise ValueError(f"stop_overtaken is on and the runner is {runner.value}: only executions are stopped")
    if stops and ordering is Ordering.EVERY_VERSION:
        raise ValueError("stop_overtaken is on and the ordering is EVERY_VERSION: there, no version is overtaken")
    match runner:
        case LocalRunner.PROCESS:
            return {}
        case LocalRunner.FUNCTION:
            return environment_of(ConsumerSettings, processor_function="function")
        case LocalRunner.STATE_MACHINE:
            return environment_of(
                ExecutionSettings,
                machine=MACHINE,
                execution_seconds=_EXECUTION_SECONDS,
                longest_task_seconds=_LONGEST_TASK_SECONDS,
                stop_overtaken=stops,
            )
    return environment_of(
        DurableSettings,
        function=FUNCTION,
        execution_seconds=_EXECUTION_SECONDS,
        longest_invocation_seconds=_LONGEST_TASK_SECONDS,
        event_age_seconds=EVENT_AGE_SECONDS,
        stop_overtaken=stops,
    )


@contextmanager
def named_by_options(options: Mapping[str, Any]) -> Iterator[None]:
    """Name options instead of variables in a refusal of the function.

    Raises:
        ValueError: The function refuses the variables. The text is the function's.

    """
    try:
        yield
    except SettingsError as refusal:
        own = {field: option for option, field in _FIELDS.items() if option in options}
        names = {variable_of(ConsumerSettings, name): own.get(name, name) for name in _SETTINGS} | _NAMES
        text = re.sub(r"INTAKE_\w+|quietSeconds|hiddenParts", lambda found: names.get(found[0], found[0]), str(refusal))
        raise ValueError(text) from None
