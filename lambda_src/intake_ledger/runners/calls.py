"""The processor is a function of this process that takes several changes in one call, and gives a result for each."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from intake_ledger.protocol.errors import MissingResultError, WrongReturnError
from intake_ledger.protocol.handover import shown
from intake_ledger.runners import Ended
from intake_ledger.runners.inline import Inline

if TYPE_CHECKING:
    from intake_ledger.kinds import Work
    from intake_ledger.runners import Run


class InlineCalls(Inline):
    """Calls the processor with a list of changes. `start` gives it a list of one."""

    def __init__(self, processor: Callable[[Any], object]) -> None:
        """Make the runner. `processor` takes a list, and returns a mapping; see `results_of`."""
        super().__init__(processor)

    def start_together(self, works: Sequence["Work"], run: "Run") -> list[Ended]:
        """See `SharedRunner`."""
        ends, given = [Ended() for _ in works], dict[int, Any]()
        for place, work in enumerate(works):
            work.__enter__()
            try:
                one = work.ready(run.remaining_seconds, together=True)
                if run.before_start is not None:
                    run.before_start(place)
                given[place] = one
            except Exception as error:  # noqa: BLE001 - the others go on
                ends[place].error = error
        if given:
            self._answers({place: (one, works[place], ends[place]) for place, one in given.items()}, run)
        for end, work in zip(ends, works, strict=True):
            try:
                work.__exit__(type(end.error) if end.error else None, end.error, None)
            except Exception as failure:  # noqa: BLE001 - a stream of this change has failed
                if not end.died:
                    end.error = failure
        return ends

    def _answers(self, given: Mapping[int, tuple[Any, "Work", Ended]], run: "Run") -> None:
        """Call the processor, and write its answers into the ends."""
        try:
            changes = [one for one, _, _ in given.values()]
            with run.limit:
                returned = self._processor(list(changes))
                for result, (_, work, end) in zip(results_of(returned, changes), given.values(), strict=True):
                    end.begun = True
                    _take(result, work, end)
        except KeyboardInterrupt:  # the process has to end
            raise
        except BaseException as error:  # noqa: BLE001 - an exit or a cancelled task is a failure too
            for _, _, end in given.values():
                end.begun, end.error = True, error
                end.died = len(given) if len(given) > 1 else 0

    def _call(self, given: Any) -> object:
        [result] = results_of(super()._call([given]), [given])
        if is_failure(result):
            raise result
        return result


def is_failure(result: object) -> TypeGuard[BaseException]:
    """True if the result is the failure of its change. A cancelled task is one, as `asyncio.gather` returns it."""
    return isinstance(result, BaseException) and not isinstance(result, KeyboardInterrupt)


def _take(result: object, work: "Work", end: Ended) -> None:
    """Write the result of one change into its end."""
    if is_failure(result):
        end.error = result
        return
    try:
        end.returned, end.counts = result, work.returned()
    except Exception as error:  # noqa: BLE001 - of this change only
        end.error = error


def results_of(returned: object, given: Sequence[Any]) -> list[object]:
    """The result of each change of a call, from the mapping that the processor returned.

    Its keys are the `idempotency_key` of each change. A value is what a processor of one change would return, or the
    exception that it would raise. A change without a value has the result `MissingResultError`.

    Raises:
        WrongReturnError: It is not a mapping, or has a key that no change of the call has.

    """
    hint = "return a dict with a value for each change.idempotency_key"
    if not isinstance(returned, Mapping):
        raise WrongReturnError(f"the processor returned {shown(returned)}, expected the results of its call: {hint}")
    keys = [one.idempotency_key for one in given]
    if unknown := [key for key in returned if key not in keys]:
        first = f"{len(unknown)} results have keys of no change in the call, the first one is {shown(unknown[0])}"
        raise WrongReturnError(f"{first}: {hint}", detail=repr(unknown[0]))
    return [returned[key] if key in returned else MissingResultError(hint) for key in keys]
