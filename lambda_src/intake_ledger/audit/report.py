"""What an audit run found: for the next invocation, for machines, and in one line for people. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from intake_ledger.audit.diff import Finding
from intake_ledger.states import State

NAMED_FINDINGS = 100
"""How many findings a report names; `counts` has them all."""
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000


class Stopped(StrEnum):
    """Why a run is not complete."""

    TIME = "out of time, to be continued"
    BUDGET = "the budget is used up, the rest is left for the next run"
    PARTS = "not all of it was audited, since parts of the run failed"


@dataclass(slots=True)
class Report:
    """One run over the bucket, which may take several invocations. Times are epoch milliseconds."""

    run_id: str
    started_at: int
    dry_run: bool = False
    listed: int = 0
    checked: int = 0
    resubmitted: int = 0
    complete: bool = False
    stopped: Stopped | None = None
    held: str = ""
    """Why nothing, or not everything, was judged or resubmitted, in words; what one invocation left stays left."""
    oldest_at: int | None = None
    """The date of the oldest state that was found to differ."""
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, str]] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    """Which parts of a run in parts failed, in words."""
    later_format: int = 0
    """How many rows a later release wrote. They are left alone."""
    delivery: list[str] = field(default_factory=list)
    """What is wrong with the way from S3 to the queue, each with the fix in words."""

    def found(self, key: str, finding: Finding, state: State) -> None:
        """Count a key that differs, and name it if there is room."""
        self.counts[finding] += 1
        if state.created_at is not None:
            self.oldest_at = min(self.oldest_at or state.created_at, state.created_at)
        if len(self.findings) < NAMED_FINDINGS:
            self.findings.append({"key": key, "why": finding.value, "state": state.identity})

    def summary(self, now: int) -> str:
        """The run in one line: "3 of 1,204,331 objects never reached the ledger; oldest 14 hours; resubmitted"."""
        said = [f"{self.counts[one]:,} {_WORDS[one]}" for one in Finding if self.counts[one]]
        if not said:
            parts = [f"{self.checked:,} objects agree with the ledger"]
        else:
            first, *rest = said
            number, _, words = first.partition(" ")
            parts = [", ".join([f"{number} of {self.checked:,} objects {words}", *rest])]
            if self.oldest_at is not None:
                parts.append(f"oldest {_age(now - self.oldest_at)}")
            parts.append(self._sent())
        if self.stopped:
            unseen = self.dry_run and self.stopped is Stopped.TIME
            parts.append("out of time, the rest was not looked at" if unseen else self.stopped.value)
        if self.unfinished:
            more = len(self.unfinished) - 1
            parts.append(self.unfinished[0] + (f" and {more:,} more" if more else ""))
        if self.later_format:
            parts.append(f"{self.later_format:,} rows of a later release were left alone: deploy that release")
        if self.held:
            parts.append(self.held)
        parts += self.delivery
        return "; ".join(parts)

    def _sent(self) -> str:
        total = self.counts.total()
        if self.dry_run:
            return "dry run, nothing resubmitted"
        if self.resubmitted == total:
            return "resubmitted"
        return f"{self.resubmitted:,} resubmitted"

    def as_json(self, now: int) -> dict[str, Any]:
        """The report as the function returns it and as it is stored."""
        return {
            "runId": self.run_id,
            "startedAt": self.started_at,
            "dryRun": self.dry_run,
            "summary": self.summary(now),
            "listed": self.listed,
            "checked": self.checked,
            "counts": {finding.value: self.counts[finding] for finding in Finding},
            "resubmitted": self.resubmitted,
            "laterFormat": self.later_format,
            "complete": self.complete,
            "stopped": self.stopped.value if self.stopped else "",
            "held": self.held,
            "unfinished": self.unfinished[:NAMED_FINDINGS],
            "oldestAt": self.oldest_at,
            "delivery": self.delivery,
            "findings": self.findings,
        }


def report_of(content: Mapping[str, Any]) -> Report:
    """The report that `as_json` wrote, to go on with."""
    return Report(
        run_id=content["runId"],
        started_at=content["startedAt"],
        listed=content["listed"],
        checked=content["checked"],
        resubmitted=content["resubmitted"],
        later_format=content["laterFormat"],
        held=content["held"],
        oldest_at=content["oldestAt"],
        counts=Counter(content["counts"]),
        findings=list(content["findings"]),
    )


def summed(report: Report, parts: Iterable[Mapping[str, Any]]) -> None:
    """Add to a report what those of its parts say, as `as_json` wrote them."""
    for content in parts:
        one = report_of(content)
        report.listed += one.listed
        report.checked += one.checked
        report.resubmitted += one.resubmitted
        report.later_format += one.later_format
        # What was not found is not counted, as in a run of one part.
        report.counts += one.counts
        report.findings += one.findings[: NAMED_FINDINGS - len(report.findings)]
        dates = [date for date in (report.oldest_at, one.oldest_at) if date is not None]
        report.oldest_at = min(dates, default=None)
        report.held = report.held or content["held"]
        if content["stopped"] == Stopped.BUDGET:
            report.stopped = Stopped.BUDGET


_WORDS = {
    Finding.MISSING: "never reached the ledger",
    Finding.OVERTAKEN: "changed without the ledger's knowledge",
    Finding.UNSETTLED: "left half done",
    Finding.REMOVED: "removed without the ledger's knowledge",
}


def _age(milliseconds: int) -> str:
    for unit, size in (("day", _DAY), ("hour", _HOUR)):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size:,} {unit}s"
    return f"{max(milliseconds, 0) // _MINUTE} minutes"
