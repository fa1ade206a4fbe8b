"""The settings of a local pipeline, and checks of the processor that a test gives it."""

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from intake_ledger.consumer.deadline import deadline
from intake_ledger.protocol.commit_tag import CommitTag, tag_problem
from intake_ledger.protocol.group_pattern import GroupPattern
from intake_ledger.protocol.rate import Rate
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import MOST_PER_CALL, ConsumerSettings, Reasons
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL

BUCKET, PIPELINE, TABLE = "local-bucket", "local", "ledger"
REJECTS = "local-rejects/"
"""The place of outputs with rejected rows."""
START = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of each pipeline's time."""
_WRONG_CALL = re.compile(r"\(\) (takes|missing \d|got (an unexpected|multiple|some))")
"""The texts of Python for a call whose arguments do not fit."""
_CLOCK_SKEW_SECONDS, _RETENTION_SECONDS, _LATE_AFTER_SECONDS = 120, 35 * 86_400, 6 * 3_600
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 15, 1_800


@dataclass(slots=True)
class LocalClock:
    """A clock in epoch milliseconds, which only the test and the local runtime advance."""

    now: int
    """Epoch milliseconds."""

    def __call__(self) -> int:
        """Return the time."""
        return self.now

    def advance(self, milliseconds: int) -> None:
        """Let time pass.

        Args:
            milliseconds: the time.

        """
        self.now += milliseconds


def local_settings(
    ordering: Ordering,
    reasons: Reasons,
    *,
    deletes: bool = False,
    max_attempts: int,
    processing_timeout: float,
    commit_together: bool = False,
    max_per_call: int = 1,
    max_wait: int,
    directory_markers: bool = False,
    keep_rejects: bool = False,
    exclusive_by: str | None = None,
    max_rate: float | None = None,
    after_commit: tuple[str, str] | None = None,
    pipeline: str = PIPELINE,
    bucket: str = BUCKET,
    suffix: str = "",
) -> ConsumerSettings:
    """Return the settings of a consumer. The arguments are those of `LocalPipeline`, two names, and a suffix.

    Raises:
        ValueError: The processing timeout is no number of seconds above 0, `max_per_call` or `max_rate` is out of its
            range, `exclusive_by` is not a pattern or is given with `max_per_call`, or S3 would refuse the tag.

    """
    if not 1 <= max_per_call <= MOST_PER_CALL:
        raise ValueError(f"max_per_call is {max_per_call}: pass 1 to {MOST_PER_CALL}")
    if max_per_call > 1 and exclusive_by:
        raise ValueError(f"max_per_call is {max_per_call}, and a call would hold several groups: omit exclusive_by")
    if max_rate is not None:
        Rate(max_rate)
    if after_commit is not None and (problem := tag_problem(*after_commit)):
        raise ValueError(f"after_commit: {problem}")
    if not (math.isfinite(processing_timeout) and processing_timeout > 0):
        raise ValueError(f"processing_timeout is {processing_timeout}: pass a number of seconds above 0")
    return ConsumerSettings(
        pipeline=pipeline,
        bucket=bucket,
        bucket_owner=None,
        table=TABLE,
        queue_url=f"{QUEUE_URL}{suffix}",
        ordering=ordering,
        deletes=deletes,
        retention_seconds=_RETENTION_SECONDS,
        clock_skew_seconds=_CLOCK_SKEW_SECONDS,
        dlq_url=f"{DEAD_LETTER_URL}{suffix}",
        processor="",
        processing_timeout_seconds=math.ceil(processing_timeout),
        max_attempts=max_attempts,
        min_backoff_seconds=_MIN_BACKOFF_SECONDS,
        max_backoff_seconds=_MAX_BACKOFF_SECONDS,
        max_event_age_seconds=_LATE_AFTER_SECONDS,
        commit_together=commit_together,
        max_per_call=max_per_call,
        reasons=reasons,
        max_wait_seconds=max_wait,
        directory_markers=directory_markers,
        exclusive_by=GroupPattern(exclusive_by) if exclusive_by else None,
        max_rate=max_rate,
        after_commit=CommitTag(*after_commit) if after_commit else None,
        # As the construct does.
        keeps_rows=deletes,
        rejects=REJECTS if keep_rejects else None,
    )


def interrupted[**P, R](processor: Callable[P, R], seconds: float) -> Callable[P, R]:
    """Interrupt the processor after a fraction of a second. The consumer's own limit has whole seconds."""
    if seconds == math.ceil(seconds):
        return processor

    def call(*arguments: P.args, **others: P.kwargs) -> R:
        with deadline(seconds):
            return processor(*arguments, **others)

    return call


def check_processor(processor: Any, kit: str = "LocalPipeline") -> None:
    """Refuse what Lambda could not call with a change. `kit` is the name of the class that the test uses.

    Raises:
        TypeError: It is no function with one argument. The message names the fix.

    """
    if not callable(processor):
        entrypoint = getattr(processor, "entrypoint", processor)
        module, _, function = str(entrypoint).partition(":")
        shown = f"Processor of {entrypoint!r}" if entrypoint is not processor else repr(processor)
        example = f"from {module} import {function}" if module and function.isidentifier() else "your function"
        fix = f"{example}, and {kit}({function if function.isidentifier() else 'process'})"
        raise TypeError(f"processor is the {shown}: {kit} calls the function itself. Pass it: {fix}")
    name = getattr(processor, "__name__", repr(processor))
    if inspect.isclass(processor):
        raise TypeError(f"processor is the class {name}: pass a function, such as {kit}(process)")
    called = processor if inspect.isroutine(processor) else type(processor).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(
            f"{name} is an async function, and nothing awaits it on Lambda: write `def {name}(change): "
            "return asyncio.run(...)`"
        )
    if inspect.isgeneratorfunction(called):
        raise TypeError(f"{name} is a generator, and nothing iterates over it on Lambda: remove its `yield`")
    try:
        inspect.signature(processor).bind(object())
    except TypeError as error:
        raise TypeError(f"{name} cannot be called with one argument ({error}): write `def {name}(change)`") from None
    except ValueError:  # some functions in C have no signature
        return


def is_programming_error(error: Exception, change: Any) -> bool:
    """True if the code of the processor is wrong for each content: a retry could only hide the error."""
    if isinstance(error, AttributeError):
        return error.obj is change or isinstance(error.obj, ModuleType)
    if isinstance(error, TypeError):
        return _WRONG_CALL.search(str(error)) is not None
    return isinstance(error, NameError | ImportError)


def refuse_conditions(elements: Sequence[Mapping[str, Any]]) -> None:
    """Refuse elements whose success depends on the content of a table, when there are no tables.

    Raises:
        ValueError: Names the option of the local pipeline.

    """
    for number, one in enumerate(elements, 1):
        for kind, element in one.items():
            if "ConditionExpression" in element:
                tables = json.dumps({element["TableName"]: {"<key>": "S"}})
                raise ValueError(
                    f"element {number} ({kind}) of transact has a ConditionExpression, and this LocalPipeline has no "
                    f"tables: pass dynamodb=MemoryTables({tables}), or the client of a local DynamoDB"
                )
