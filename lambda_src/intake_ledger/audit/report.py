"""The report of an audit run: for the next invocation, for machines, and in one line for people. Pure.

Each state that S3 lists is counted in exactly one line (`intake_ledger.audit.diff.Line`), so the lines add up to the
listing. Rows whose state no listing shows are counted in lines of their own.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from itertools import accumulate
from typing import Any

from intake_ledger.audit.diff import NOT_JUDGED, WAITING, Finding, Line
from intake_ledger.protocol import State

NAMED_FINDINGS = 100
"""How many findings a report names; `counts` has them all."""
NAMED_BYTES = 100_000
"""How long the named findings may be in all, as JSON. A key of 1,024 control characters takes 6 KB. An item of DynamoDB
takes 400 KB (Developer Guide, "Quotas"), a state of Step Functions 256 KiB (Developer Guide, "Service quotas")."""
NAMED_PASSES = 50
"""How many parts of the listing a report gives the times of. Of more, the first ones are united."""
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000


class Stopped(StrEnum):
    """Why a run is not complete."""

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
"""Reasons for which another run begins at the next tick, and not after the interval."""


@dataclass(slots=True)
class Pass:
    """One part of the listing, as one invocation went through it. Times are epoch milliseconds."""

    begun_at: int
    ended_at: int
    listed: int = 0

    def united(self, other: "Pass") -> "Pass":
        """Both as one part."""
        begun_at, ended_at = min(self.begun_at, other.begun_at), max(self.ended_at, other.ended_at)
        return Pass(begun_at, ended_at, self.listed + other.listed)

    def as_json(self) -> dict[str, int]:
        """The times and the number as the report has them."""
        return {"from": self.begun_at, "until": self.ended_at, "listed": self.listed}


@dataclass(slots=True)
class Report:
    """One run over the bucket, which may take several invocations. Times are epoch milliseconds."""

    run_id: str
    started_at: int
    dry_run: bool = False
    listed: int = 0
    """How many states S3 has listed: one for each key, or for each version in EVERY_VERSION."""
    lines: Counter[Line] = field(default_factory=Counter)
    """The same states by line. They add up to `listed`."""
    unlisted: Counter[Line] = field(default_factory=Counter)
    """Rows of the ledger whose state no listing has shown, by line. S3 was asked about each."""
    passes: list[Pass] = field(default_factory=list)
    """When each part of the bucket was listed. A run that was stopped and resumed has several."""
    resubmitted: int = 0
    """How many messages were sent."""
    complete: bool = False
    stopped: Stopped | None = None
    held: str = ""
    """Why nothing, or not everything, was judged or resubmitted, in words."""
    oldest_at: int | None = None
    """The date of the oldest state that was found to differ."""
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, str]] = field(default_factory=list)
    has_room: bool = field(default=True, compare=False)
    """Whether another finding may be named."""
    unfinished: list[str] = field(default_factory=list)
    """Which parts of a run in parts failed, in words."""
    later_format: int = 0
    """How many rows a later release wrote. They are left alone."""
    candidates: int = 0
    """How many states and rows the query of a run in parts has nominated."""
    dismissed: int = 0
    """How many of them the look found to agree."""
    delivery: list[str] = field(default_factory=list)
    """What is wrong with the way from S3 to the queue, each with the fix in words."""

    @property
    def checked(self) -> int:
        """How many states were judged: listed or not, and not left for later or left out."""
        return (self.lines + self.unlisted).total() - self.unjudged

    @property
    def unjudged(self) -> int:
        """How many states were left for later or left out, listed or not."""
        return sum(lines[line] for lines in (self.lines, self.unlisted) for line in (*WAITING, *NOT_JUDGED))

    def lines_of(self, *, shown: bool) -> Counter[Line]:
        """The lines of states that S3 has listed, or of rows whose state it has not."""
        return self.lines if shown else self.unlisted

    def add_joined(self, joined: Mapping[str, int], *, outside: int, candidates: int) -> None:
        """Add the result of the join to that of the look: the listed states in each line, those outside of the filters,
        and how many `candidates` there were in all.
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
        """Note why SQS has refused messages, once."""
        problem = f"SQS refused messages: {why}"
        if problem not in self.delivery:
            self.delivery.append(problem)

    def found(self, key: str, finding: Finding, state: State) -> None:
        """Count a key that differs, and name it if there is room."""
        self.counts[finding] += 1
        if state.created_at is not None:
            self.oldest_at = min(self.oldest_at or state.created_at, state.created_at)
        self._name({"key": key, "why": finding.value, "state": state.identity})

    def _name(self, finding: dict[str, str]) -> None:
        if self.has_room and len(self.findings) < NAMED_FINDINGS:
            named = within([*self.findings, finding], NAMED_BYTES)
            # There may be millions of findings, and the sizes of those that are named are added up for each.
            self.has_room = len(named) > len(self.findings)
            self.findings = named

    def summary(self, now: int) -> str:
        """The run in one line: "3 of 1,204,331 objects never reached the ledger; oldest 14 hours; resubmitted"."""
        said = [f"{self.counts[one]:,} {_WORDS[one]}" for one in Finding if self.counts[one]]
        if not said:
            parts = [f"{self.lines[Line.AGREES]:,} objects agree with the ledger"]
        else:
            first, *rest = said
            number, _, words = first.partition(" ")
            parts = [", ".join([f"{number} of {self.checked:,} objects {words}", *rest])]
            if self.oldest_at is not None:
                parts.append(f"oldest {age(now - self.oldest_at)}")
            parts.append(self._sent())
        if rejected := self.lines[Line.REJECTED]:
            parts.append(f"{rejected:,} rejected")
        parts += [said for said in (self._of("waiting", WAITING), self._of("not judged", NOT_JUDGED)) if said]
        if len(self.passes) > 1:
            took = self.passes[-1].ended_at - self.passes[0].begun_at
            parts.append(f"listed in {len(self.passes)} parts within {age(took)}")
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

    def _of(self, what: str, lines: Sequence[Line]) -> str:
        """A group of lines in words: "5 not judged (3 outside the filters, 2 older than the look-back)"."""
        each = [f"{self.lines[line]:,} {WORDS[line]}" for line in lines if self.lines[line]]
        return f"{sum(self.lines[line] for line in lines):,} {what} ({', '.join(each)})" if each else ""

    def as_json(self, now: int) -> dict[str, Any]:
        """The report as the function returns it and as it is stored."""
        return {
            "runId": self.run_id,
            "startedAt": self.started_at,
            "dryRun": self.dry_run,
            "summary": self.summary(now),
            "listed": self.listed,
            "lines": _named(self.lines),
            "unlisted": _named(self.unlisted),
            "passes": [one.as_json() for one in self.passes],
            "checked": self.checked,
            "unjudged": self.unjudged,
            "counts": {finding.value: self.counts[finding] for finding in Finding},
            "resubmitted": self.resubmitted,
            "laterFormat": self.later_format,
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
    """The report that `as_json` wrote, to go on with."""
    return Report(
        run_id=content["runId"],
        started_at=content["startedAt"],
        dry_run=content["dryRun"],
        listed=content["listed"],
        lines=_counter(content["lines"]),
        unlisted=_counter(content["unlisted"]),
        passes=[Pass(one["from"], one["until"], one["listed"]) for one in content["passes"]],
        resubmitted=content["resubmitted"],
        later_format=content["laterFormat"],
        held=content["held"],
        delivery=content["delivery"],
        oldest_at=content["oldestAt"],
        counts=+Counter(content["counts"]),
        findings=list(content["findings"]),
    )


def summed(report: Report, parts: Iterable[Mapping[str, Any]]) -> None:
    """Add to a report what its looks found, as `as_json` wrote them."""
    for content in parts:
        one = report_of(content)
        report.lines += one.lines
        report.unlisted += one.unlisted
        report.resubmitted += one.resubmitted
        report.counts += one.counts
        report.findings = within([*report.findings, *one.findings][:NAMED_FINDINGS], NAMED_BYTES)
        dates = [date for date in (report.oldest_at, one.oldest_at) if date is not None]
        report.oldest_at = min(dates, default=None)
        report.held = report.held or one.held
        report.delivery = list(dict.fromkeys([*report.delivery, *one.delivery]))
        if content["stopped"]:
            report.stopped = Stopped(content["stopped"])


def within[Entry](entries: Sequence[Entry], most: int) -> list[Entry]:
    """The first ones of the entries that take at most so many bytes as JSON."""
    lengths = accumulate(len(json.dumps(entry)) for entry in entries)
    return [entry for entry, length in zip(entries, lengths, strict=True) if length <= most]


def few_passes(passes: list[Pass]) -> list[Pass]:
    """The same parts of the listing, the first ones united until no more than `NAMED_PASSES` are left."""
    surplus = len(passes) - NAMED_PASSES
    if surplus <= 0:
        return passes
    return [reduce(Pass.united, passes[: surplus + 1]), *passes[surplus + 1 :]]


def _named(lines: Counter[Line]) -> dict[str, int]:
    return {line.value: lines[line] for line in Line}


def _counter(content: Mapping[str, int]) -> Counter[Line]:
    """The lines that `_named` wrote. What was not counted is left out, as in a report that was never stored."""
    return Counter({Line(name): number for name, number in content.items() if number})


WORDS = {
    Line.AGREES: "agree with the ledger",
    Line.REJECTED: "rejected",
    Line.SETTLING: "younger than the settle time",
    Line.LEASED: "with a worker",
    Line.NOT_YET: "due for another attempt later",
    Line.BASELINE: "from before the pipeline",
    Line.LOOK_BACK: "older than the look-back",
    Line.FILTERS: "outside the filters",
    Line.LATER_FORMAT: "with a row of a later release",
    Line.RESUBMITTED: "resubmitted",
    Line.MARKED: "resubmitted earlier",
    Line.OVER_BUDGET: "left for the next run: the budget is used up",
    Line.HELD_BACK: "held back: the age of the waiting messages is unknown",
    Line.REFUSED: "refused by SQS",
    Line.DRY_RUN: "found by a dry run",
    Line.NOT_LOOKED: "not looked at",
}
"""Each line for people."""
_WORDS = {
    Finding.MISSING: "never reached the ledger",
    Finding.OVERTAKEN: "changed without the ledger's knowledge",
    Finding.UNSETTLED: "left half done",
    Finding.REMOVED: "removed without the ledger's knowledge",
}


def age(milliseconds: int) -> str:
    """A length of time for people: "14 hours"."""
    for unit, size in (("day", _DAY), ("hour", _HOUR)):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size:,} {unit}s"
    return f"{max(milliseconds, 0) // _MINUTE} minutes"
