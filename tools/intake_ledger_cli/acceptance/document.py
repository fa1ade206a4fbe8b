"""The report of an acceptance run. It is one document. `page` renders it as HTML, `json_output` as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    """The result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_HERE = "not here"
    """The check did not run, or its result cannot be seen at this endpoint. The detail has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one check."""

    name: str
    shows: str
    """The assumption or promise that the check shows, in one sentence."""
    assumptions: tuple[str, ...]
    """IDs of lines of docs/assumptions.md."""
    result: Result
    detail: str
    """The evidence, the failure, or the reason."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line of the estimate of the cost."""

    what: str
    count: float
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceReport:
    """An acceptance run."""

    run: str
    """The ID of the run. It is in the name of the stack."""
    release: str
    region: str
    local: bool
    """True if the endpoint is not AWS. Such a report says nothing about AWS."""
    started_at: int
    """Epoch milliseconds."""
    ended_at: int
    estimate: tuple[CostLine, ...]
    outcomes: tuple[Outcome, ...]
    interrupted: bool
    left: tuple[str, ...]
    """Names of resources that could not be removed."""

    @property
    def failed(self) -> bool:
        """True if a person should look at it."""
        return bool(self.left) or self.interrupted or any(one.result is Result.FAILED for one in self.outcomes)


def counts(outcomes: Sequence[Outcome]) -> str:
    """The number of checks by result, in words."""
    return ", ".join(f"{sum(one.result is result for one in outcomes)} {result}" for result in Result)


def dollars(lines: Sequence[CostLine]) -> float:
    """The sum of an estimate."""
    return sum(one.dollars for one in lines)
