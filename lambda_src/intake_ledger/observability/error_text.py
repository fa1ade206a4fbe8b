"""Describe errors without quoting content: exception types and code positions.

The message of an exception often quotes what the code was reading, such as a card number. It is kept only with
`Reasons.FULL`. The texts of this library's own errors quote nothing and are always kept.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from intake_ledger.protocol import OwnError, Reasons

if TYPE_CHECKING:
    from types import TracebackType

MAX_CAUSES = 4
"""Exceptions of one chain that a reason names."""
MAX_PARTS = 3
"""Exceptions of one group that a reason names."""
MAX_FRAMES = 12
"""Frames of one exception that a log line names. The innermost ones are kept."""
_AWS_CODE = re.compile(r"[A-Za-z.]+|\d{3}")
"""AWS's codes consist of letters and dots. S3 answers a HEAD with the HTTP status only."""
_OWN = frozenset({"intake_ledger", "cdk_intake_ledger"})


def describe(error: BaseException, reasons: Reasons, *, team: str = "") -> str:
    """The error in one line: its type, the team's line that it came through, and its causes.

    Args:
        error: as it was caught.
        reasons: whether the messages are wanted.
        team: the top-level package of the processor. Other packages that are no installed library count as the team's.

    """
    if isinstance(error, OwnError):
        return text_of(error) if reasons is Reasons.FULL else error.why
    return ", from ".join(_describe_one(one, reasons, team) for one in _chain(error))


def text_of(error: BaseException) -> str:
    """The error's own message. The team's code makes it, and may fail in turn."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever it is, there has to be a reason
        return f"{type(error).__name__}, which cannot tell what it is about"


def stack_of(error: BaseException) -> list[str]:
    """The frames of the error and of its causes, innermost last, as `type: module:line > module:line`."""
    return [
        f"{_type_of(one)}: {' > '.join(f'{module}:{line}' for module, line in list(_frames(one))[-MAX_FRAMES:])}"
        for one in _chain(error)
    ]


def _describe_one(error: BaseException, reasons: Reasons, team: str) -> str:
    said = _type_of(error)
    if reasons is Reasons.FULL:
        said = f"{said}: {text_of(error)}"
    if position := _position(error, team):
        said = f"{said} at {position}"
    if isinstance(error, BaseExceptionGroup):
        parts = [_describe_one(one, reasons, team) for one in error.exceptions[:MAX_PARTS]]
        more = len(error.exceptions) - len(parts)
        said = f"{said} of ({'; '.join(parts)}{f'; {more} more' if more else ''})"
    return said


def _type_of(error: BaseException) -> str:
    """The type's name, with AWS's error code where there is one."""
    name = type(error).__name__
    if not isinstance(error, ClientError):
        return name
    code = str(error.response.get("Error", {}).get("Code", ""))
    return f"{name} {code}" if _AWS_CODE.fullmatch(code) else name


def _position(error: BaseException, team: str) -> str:
    """The innermost line of the team's own code; of any code where none of the team's took part."""
    frames = list(_frames(error))
    own = [(module, line) for module, line in frames if _is_the_teams(module, team)]
    return "{}:{}".format(*(own or frames)[-1]) if frames else ""


def _is_the_teams(module: str, team: str) -> bool:
    package = module.partition(".")[0]
    return package not in _OWN and (package == team or package not in _libraries())


@cache
def _libraries() -> frozenset[str]:
    """Top-level packages that are Python's or were installed, which a function's code may have beside the team's."""
    return frozenset(metadata.packages_distributions()) | sys.stdlib_module_names


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    """Module and line of each frame, outermost first."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        yield str(traceback.tb_frame.f_globals.get("__name__", "?")), traceback.tb_lineno
        traceback = traceback.tb_next


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and so on, as a traceback shows them."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < MAX_CAUSES:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
