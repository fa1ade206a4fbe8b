"""The names and the clock of a local pipeline, and checks of the processor that a test gives it."""

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

BUCKET, PIPELINE, TABLE = "local-bucket", "local", "ledger"
REJECTS = "local-rejects/"
"""The place of outputs with rejected rows."""
START = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of each pipeline's time."""
_WRONG_CALL = re.compile(r"\(\) (takes|missing \d|got (an unexpected|multiple|some))")
"""The texts of Python for a call whose arguments do not fit."""


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
