"""The report of a run: for the next invocation, for programs, and in one line for people. Pure functions.

Each state that S3 lists is counted in exactly one line (`intake_ledger.audit.diff.Line`), so the lines add up to the
listing. Rows without a listed state are counted in separate lines.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any

from intake_ledger.audit.diff import NOT_JUDGED, WAITING, Finding, Line
from intake_ledger.audit.row_numbers import RowNumbers, row_numbers
from intake_ledger.protocol.change import State

NAMED_FINDINGS = 100
"""Findings that a report names. `counts` has the number of all."""
NAMED_BYTES = 100_000
"""Length limit of the named findings as JSON. A key of 1,024 control characters takes 6 KB. The limits of a DynamoDB
item and a Step Functions state are 400 KB (Developer Guide, "Quotas") and 256 KiB (Developer Guide, "Service quotas").
"""
NAMED_PASSES = 50
"""Parts of the listing in a report. If there are more, the first ones are united."""
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000


class Stopped(StrEnum):
    """The reasons why a run is not complete."""

    TIME = "out of time, the next tick begins a run for the rest"
    READING = (
        "out of time before all was read, so nothing was compared: the bucket is too large for one function, audit it "
        "in parts with AuditOptions(scale=AuditScale.shards())"
    )
    REFUSED = "SQS refused messages, the next tick begins a run for them"
    BUDGET = "the budget is used up, the rest is left for the next run"
    MORE = "there is more than one run sends, the next tick begins a run for the rest"
    PARTS = "not all of it was audited, since parts of the run failed"


SOON = frozenset({Stopped.TIME, Stopped.READING, Stopped.REFUSED})
"""Reasons for another run at the next tick instead of after the interval."""


@dataclass(slots=True)
class Pass:
    """One part of the listing, read by one invocation. Times are epoch milliseconds."""

    begun_at: int
    ended_at: int
    listed: int = 0

    def as_json(self) -> dict[str, int]:
        """The part as the report has it."""
        return {"from": self.begun_at, "until": self.ended_at, "listed": self.listed}


@dataclass(slots=True)
class Report:
    """The report of one run. Times are epoch milliseconds."""

    run_id: str
    started_at: int
    dry_run: bool = False
    listed: int = 0
    """States that S3 has listed: one for each key, or for each version in EVERY_VERSION."""
    lines: Counter[Line] = field(default_factory=Counter)
    """The same states by line. They add up to `listed`."""
    unlisted: Counter[Line] = field(default_factory=Counter)
    """Rows without a listed state, by line. S3 was asked about each of them."""
    passes: list[Pass] = field(default_factory=list)
    """The parts of the listing."""
    resubmitted: int = 0
    """Messages that were sent."""
    complete: bool = False
    stopped: Stopped | None = None
    held: str = ""
    """The reason why some states were not judged or not sent. Empty if there is none."""
    oldest_at: int | None = None
    """The date of the oldest state that was found to differ."""
    counts: Counter[str] = field(default_factory=Counter)
    """Findings by kind."""
    findings: list[dict[str, str]] = field(default_factory=list)
    """The first findings."""
    has_room: bool = field(default=True, compare=False)
    """True if another finding may be named."""
    unfinished: list[str] = field(default_factory=list)
    """Descriptions of the parts of a run in parts that failed."""
    later_format: int = 0
    """Rows of a later release. They are not judged."""
    rows: RowNumbers = field(default_factory=RowNumbers)
    """The rows that the run has read."""
    candidates: int = 0
    """States and rows that the query has nominated."""
    dismissed: int = 0
    """Candidates that turned out to agree."""
    delivery: list[str] = field(default_factory=list)
    """Problems of the delivery, each with its fix."""

    @property
    def checked(self) -> int:
        """The number of judged states, listed or not."""
        return (self.lines + self.unlisted).total() - self.unjudged

    @property
    def unjudged(self) -> int:
        """The number of states that wait or are not judged, listed or not."""
        return sum(lines[line] for lines in (self.lines, self.unlisted) for line in (*WAITING, *NOT_JUDGED))

    def lines_of(self, *, shown: bool) -> Counter[Line]:
        """The lines of listed states, or those of rows without a listed state."""
        return self.lines if shown else self.unlisted

    def add_joined(self, joined: Mapping[str, int], *, outside: int, candidates: int) -> None:
        """Add the result of the join to the result of the look.

        `joined` has the listed states in each line. `outside` is the number of states that the filters do not take.
        """
        looked, unlooked = self.lines.total(), joined.get("candidate", 0) - self.lines.total()
        left = candidates - (self.lines + self.unlisted).total() - unlooked
        self.candidates = candidates
        self.dismissed = looked + self.unlisted.total() - self.counts.total()
        self.lines += Counter({Line(line): number for line, number in joined.items() if line != "candidate"})
        self.lines += Counter({Line.FILTERS: outside, Line.NOT_LOOKED: unlooked})
        self.unlisted += Counter({Line.NOT_LOOKED: left})
        self.listed = self.lines.total()
        if self.stopped is None and self.lines[Line.REFUSED] + self.unlisted[Line.REFUSED]:
            self.stopped = Stopped.REFUSED

    def refused(self, why: str) -> None:
        """Add the reason for which SQS has refused messages, if it is new."""
        problem = f"SQS refused messages: {why}"
        if problem not in self.delivery:
            self.delivery.append(problem)

    def found(self, key: str, finding: Finding, state: State) -> None:
        """Count a key that differs, and name it if the report has room."""
        self.counts[finding] += 1
        if state.created_at is not None:
            self.oldest_at = min(self.oldest_at or state.created_at, state.created_at)
        if self.has_room and len(self.findings) < NAMED_FINDINGS:
            content = {"key": key, "why": finding.value, "state": state.identity}
            named = within([*self.findings, content], NAMED_BYTES)
            # There may be millions of findings. Without this flag, each would measure all named ones.
            self.has_room = len(named) > len(self.findings)
            self.findings = named

    def summary(self, now: int) -> str:
        """The run in one line: "3 of 1,204,331 objects never reached the ledger; oldest 14 hours; resubmitted"."""
        parts = self._findings(now) or [f"{self.lines[Line.AGREES]:,} objects agree with the ledger"]
        if rejected := self.lines[Line.REJECTED]:
            parts.append(f"{rejected:,} rejected")
        if dismissed := self.lines[Line.DISMISSED]:
            parts.append(f"{dismissed:,} dismissed")
        if removed := self.rows.removed_unprocessed:
            parts.append(f"{removed:,} removed before they were processed")
        parts += filter(None, (self._of("waiting", WAITING), self._of("not judged", NOT_JUDGED)))
        if len(self.passes) > 1:
            took = self.passes[-1].ended_at - self.passes[0].begun_at
            parts.append(f"listed in {len(self.passes)} parts within {age(took)}")
        if self.stopped:
            no_next_run = self.dry_run and self.stopped is Stopped.TIME
            parts.append("out of time, the rest was not looked at" if no_next_run else self.stopped.value)
        if self.unfinished:
            more = len(self.unfinished) - 1
            parts.append(self.unfinished[0] + (f" and {more:,} more" if more else ""))
        if self.later_format:
            parts.append(f"{self.later_format:,} rows of a later release were left alone: deploy that release")
        if self.held:
            parts.append(self.held)
        parts += self.delivery
        return "; ".join(parts)

    def _findings(self, now: int) -> list[str]:
        numbers = [(self.counts[finding], finding.text) for finding in Finding if self.counts[finding]]
        if not numbers:
            return []
        (number, text), *rest = numbers
        first = f"{number:,} of {self.checked:,} objects {text}"
        parts = [", ".join([first, *(f"{number:,} {text}" for number, text in rest)])]
        if self.oldest_at is not None:
            parts.append(f"oldest {age(now - self.oldest_at)}")
        all_sent = self.resubmitted == self.counts.total()
        sent = "resubmitted" if all_sent else f"{self.resubmitted:,} resubmitted"
        return [*parts, "dry run, nothing resubmitted" if self.dry_run else sent]

    def _of(self, group: str, lines: Sequence[Line]) -> str:
        """A group of lines as text: "5 not judged (3 outside the filters, 2 older than the look-back)"."""
        each = [f"{self.lines[line]:,} {line.text}" for line in lines if self.lines[line]]
        return f"{sum(self.lines[line] for line in lines):,} {group} ({', '.join(each)})" if each else ""

    def as_json(self, now: int) -> dict[str, Any]:
        """The report as the function returns and stores it."""
        return {
            "runId": self.run_id,
            "startedAt": self.started_at,
            "dryRun": self.dry_run,
            "summary": self.summary(now),
            "listed": self.listed,
            "lines": {line.value: self.lines[line] for line in Line},
            "unlisted": {line.value: self.unlisted[line] for line in Line},
            "passes": [listing.as_json() for listing in self.passes],
            "checked": self.checked,
            "unjudged": self.unjudged,
            "counts": {finding.value: self.counts[finding] for finding in Finding},
            "resubmitted": self.resubmitted,
            "laterFormat": self.later_format,
            "rows": self.rows.as_json(),
            "candidates": self.candidates,
            "dismissed": self.dismissed,
            "complete": self.complete,
            "stopped": self.stopped.value if self.stopped else "",
            "held": self.held,
            "unfinished": self.unfinished[:NAMED_FINDINGS],
            "oldestAt": self.oldest_at,
            "delivery": self.delivery,
            "findings": self.findings,
        }


def report_of(content: Mapping[str, Any]) -> Report:
    """The report from the result of `as_json`."""
    return Report(
        run_id=content["runId"],
        started_at=content["startedAt"],
        dry_run=content["dryRun"],
        listed=content["listed"],
        lines=_counter(content["lines"]),
        unlisted=_counter(content["unlisted"]),
        passes=[Pass(times["from"], times["until"], times["listed"]) for times in content["passes"]],
        resubmitted=content["resubmitted"],
        later_format=content["laterFormat"],
        rows=row_numbers(content["rows"]) if "rows" in content else RowNumbers(),
        held=content["held"],
        delivery=content["delivery"],
        oldest_at=content["oldestAt"],
        counts=+Counter(content["counts"]),
        findings=list(content["findings"]),
    )


def summed(report: Report, looks: Iterable[Mapping[str, Any]]) -> None:
    """Add the reports of looks, which `as_json` wrote, to the report of their run."""
    for content in looks:
        look = report_of(content)
        report.lines += look.lines
        report.unlisted += look.unlisted
        report.resubmitted += look.resubmitted
        report.counts += look.counts
        report.findings = within([*report.findings, *look.findings][:NAMED_FINDINGS], NAMED_BYTES)
        dates = [date for date in (report.oldest_at, look.oldest_at) if date is not None]
        report.oldest_at = min(dates, default=None)
        report.held = report.held or look.held
        report.delivery = list(dict.fromkeys([*report.delivery, *look.delivery]))
        if content["stopped"]:
            report.stopped = Stopped(content["stopped"])


def within[Item](items: Sequence[Item], most: int) -> list[Item]:
    """The first items that together take at most `most` bytes as JSON."""
    lengths = accumulate(len(json.dumps(item)) for item in items)
    return [item for item, length in zip(items, lengths, strict=True) if length <= most]


def few_passes(passes: list[Pass]) -> list[Pass]:
    """At most `NAMED_PASSES` parts of the listing. The first ones are united."""
    first = passes[: max(len(passes) - NAMED_PASSES + 1, 1)]
    if len(first) <= 1:
        return passes
    begun_at, ended_at = min(part.begun_at for part in first), max(part.ended_at for part in first)
    return [Pass(begun_at, ended_at, sum(part.listed for part in first)), *passes[len(first) :]]


def _counter(numbers: Mapping[str, int]) -> Counter[Line]:
    return Counter({Line(name): number for name, number in numbers.items() if number})


def age(milliseconds: int) -> str:
    """A length of time as text: "14 hours"."""
    for unit, size in (("day", _DAY), ("hour", _HOUR)):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size:,} {unit}s"
    return f"{max(milliseconds, 0) // _MINUTE} minutes"
