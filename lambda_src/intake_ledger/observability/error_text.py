"""Describe errors without quoting content: exception types and code positions.

The message of an exception often quotes the data that the code was reading, such as a card number. It is kept only with
`Reasons.FULL`. The texts of this library's own errors quote nothing and are always kept.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from intake_ledger.protocol.errors import LibraryError
from intake_ledger.protocol.settings import Reasons

if TYPE_CHECKING:
    from types import TracebackType

MAX_CAUSES = 4
"""Exceptions of one chain that a reason names."""
MAX_PARTS = 3
"""Exceptions of one group that a reason names."""
MAX_FRAMES = 12
"""Frames of one exception that a log line names. The innermost ones are kept."""
_AWS_CODE = r"[A-Za-z.]+|\d{3}"
"""AWS's codes consist of letters and dots. S3 answers a HEAD with the HTTP status only."""
_OWN = frozenset({"intake_ledger", "cdk_intake_ledger"})


def describe(error: BaseException, reasons: Reasons, *, processor_package: str = "") -> str:
    """Describe the error in one line: its type, the line of the processor's code, and its causes.

    Args:
        error: the error as it was caught.
        reasons: FULL adds the messages.
        processor_package: the top-level package of the processor. It counts as the processor's code even if it is
            installed. All other packages that are not installed libraries count as well.

    """
    if isinstance(error, LibraryError):
        return text_of(error) if reasons is Reasons.FULL else error.why
    return ", from ".join(_describe_one(link, reasons, processor_package) for link in _chain(error))


def text_of(error: BaseException) -> str:
    """The error's message, as valid Unicode. The class of the error may be the processor's, and its `__str__` may fail.

    Rows, messages and log lines take valid Unicode only.
    """
    try:
        return str.encode(str(error), "utf-8", "replace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - each failure needs a reason
        return f"{type(error).__name__}, which cannot tell what it is about"


def stack_of(error: BaseException) -> list[str]:
    """The frames of the error and of its causes, innermost last, as `type: module:line > module:line`."""
    return [
        f"{_type_of(link)}: {' > '.join(f'{module}:{line}' for module, line in list(_frames(link))[-MAX_FRAMES:])}"
        for link in _chain(error)
    ]


def _describe_one(error: BaseException, reasons: Reasons, processor_package: str) -> str:
    text = _type_of(error)
    if reasons is Reasons.FULL:
        text = f"{text}: {text_of(error)}"
    if position := _position(error, processor_package):
        text = f"{text} at {position}"
    if isinstance(error, BaseExceptionGroup):
        parts = [_describe_one(part, reasons, processor_package) for part in error.exceptions[:MAX_PARTS]]
        more = len(error.exceptions) - len(parts)
        text = f"{text} of ({'; '.join(parts)}{f'; {more} more' if more else ''})"
    return text


def _type_of(error: BaseException) -> str:
    """The type's name, with AWS's error code if there is one."""
    name = type(error).__name__
    if not isinstance(error, ClientError):
        return name
    # A class of the processor may lack the answer.
    code = str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))
    return f"{name} {code}" if re.fullmatch(_AWS_CODE, code) else name


def _position(error: BaseException, processor_package: str) -> str:
    """The innermost line of the processor's code, or the innermost line of all if none is the processor's."""
    frames = list(_frames(error))
    own = [(module, line) for module, line in frames if _is_processor_code(module, processor_package)]
    return "{}:{}".format(*(own or frames)[-1]) if frames else ""


def _is_processor_code(module: str, processor_package: str) -> bool:
    package = module.partition(".")[0]
    return package not in _OWN and (package == processor_package or not is_library(package))


@cache
def is_library(package: str) -> bool:
    """True for a top-level package of Python or of an installed distribution. It is not the processor's code.

    `metadata.packages_distributions` looks for each installed file: half a second at the first error of a process.
    """
    if package in sys.stdlib_module_names:
        return True
    beginning = re.compile(rf"^{re.escape(package)}(/|(\.[\w-]+)?\.(py|so|pyd),|$)", re.MULTILINE)
    return any(
        beginning.search(distribution.read_text(names) or "")
        for distribution in metadata.distributions()
        for names in ("top_level.txt", "RECORD")
    )


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    """Yield the module and the line of each frame, outermost first."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        yield str(traceback.tb_frame.f_globals.get("__name__", "?")), traceback.tb_lineno
        traceback = traceback.tb_next


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its cause, and so on, as a traceback shows them."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < MAX_CAUSES:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
