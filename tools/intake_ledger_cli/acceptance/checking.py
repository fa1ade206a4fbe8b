"""The form of a check, its exceptions, and the decision about its result."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intake_ledger_cli.acceptance.document import Outcome, Result

if TYPE_CHECKING:
    from intake_ledger_cli.acceptance.world import World


INTERRUPTED = "the run was interrupted"


class CheckFailed(Exception):  # noqa: N818 - a result, not an error of the code
    """The expectation of a check did not hold. The text has what happened instead."""


class NotHere(Exception):  # noqa: N818 - as above
    """The check cannot run here. The text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    name: str
    shows: str
    """The assumption or promise that it shows, in one sentence."""
    run: "Callable[[World], str]"
    """Returns the evidence. Raises `CheckFailed` or `NotHere`."""
    assumptions: tuple[str, ...] = ()
    """IDs of lines of docs/assumptions.md. Empty: it shows a promise of the library."""
    changes: int = 1
    """Objects and messages that it sends, for the estimate of the cost."""
    not_local: str = ""
    """Why a local AWS cannot show it. The steps run there all the same, and their failure is a failure. Empty: they
    show it there too."""
    only_aws: bool = False
    """True if the steps cannot run on a local AWS, for the reason of `not_local`."""
    in_background: bool = False
    """True for a check that mostly waits, on a pipeline of its own: it runs at the same time as the others."""


def outcome_of(check: Check, world: "World", *, clock: Callable[[], float]) -> Outcome:
    """Run a check, and decide its result. A check that did not run, or that cannot be seen here, has never passed.

    Args:
        check: the check.
        world: the deployed stack.
        clock: gives seconds.

    """
    started = clock()
    result, detail = _run(check, world)
    return _outcome(check, result, detail, clock() - started)


def _run(check: Check, world: "World") -> tuple[Result, str]:
    if world.local and check.only_aws:
        return Result.NOT_HERE, check.not_local
    try:
        detail = check.run(world)
    except NotHere as reason:
        return Result.NOT_HERE, str(reason)
    except CheckFailed as failure:
        return Result.FAILED, str(failure)
    except Exception as error:  # noqa: BLE001 - the other checks go on
        return Result.FAILED, f"{type(error).__name__}: {error}"
    if world.local and check.not_local:
        return Result.NOT_HERE, f"{check.not_local}. Its steps ran: {detail}"
    return Result.PASSED, detail


def not_run(check: Check, reason: str) -> Outcome:
    """The outcome of a check that was not begun."""
    return _outcome(check, Result.NOT_HERE, reason, 0)


def _outcome(check: Check, result: Result, detail: str, seconds: float) -> Outcome:
    return Outcome(
        name=check.name,
        shows=check.shows,
        assumptions=check.assumptions,
        result=result,
        detail=detail,
        seconds=round(seconds, 1),
    )
