"""Stories of an audit, as text: what is in the bucket and in the ledger, and what the run finds.

    F74 version 1 is processed, and the event of version 2 is lost
        latest: put k; commit k; put k; run; finds overtaken k; sends k

A story begins with its kinds: `latest`, `each version`, or both, and is told for each. `budget 3`, `without versions`,
`backfill` and `backlog 5 h of 1000` (or `backlog unknown of 1`) may follow. The steps are:

- `put k m`: upload these keys two hours ago. `put k 60 d old`. `mark k`: a delete marker. `lose k`: no version is left.
- `commit k`: the ledger has processed the last state of the key, or one that no listing shows. `commit k absent`.
  `commit k 1 d ago`. `row k FAILED`: its row has this status.
- `meanwhile STEP, STEP`: what happens between the reading of the rows and of the listing.
- `wait 1 h`, `forget requests`, `run`, `dry run`.
- `finds missing k, removed m`: compare all findings of the last run, and with `k@1` that it is about the first version.
  `finds` alone is none.
- `sends k m`: all messages until now. `heads k`: the keys whose state was asked for. `asks Scan`: the requests to the
  table since they were forgotten. `checked 3`, `complete`, `resubmitted 2`, `stopped BUDGET`, `dismissed 1`.
"""

from dataclasses import dataclass, field
from typing import Any

from intake_ledger.audit import backlog as audit_backlog
from intake_ledger.audit.backlog import Backlog
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.row import Ordering, Status
from tests.unit.audit.support import OLD, AuditWorld
from tests.unit.stories import milliseconds

UNLISTED = State(StateKind.OBJECT, "1", "e", 5)
"""A state that the bucket no longer has."""


def tell(text: str) -> None:
    """Play a story for each kind that it names."""
    head, _, steps = text.partition(": ")
    options = [one.split() for one in head.split(", ")]
    made: dict[str, Any] = {}
    for option in options:
        match option:
            case ["budget", number]:
                made["budget"] = int(number)
            case ["without", "versions"]:
                made["versioned"] = False
    backlog = next((one[1:] for one in options if one[0] == "backlog"), None)
    kinds = {"latest": Ordering.LATEST, "each version": Ordering.EVERY_VERSION}
    told = [ordering for kind, ordering in kinds.items() if kind.split() in options]
    assert told, "no kind"
    for ordering in told:
        world = AuditWorld(ordering, **made)
        AuditStory(world, _backlog(backlog) if backlog else None, backfill=["backfill"] in options).play(steps)


def _backlog(words: list[str]) -> Backlog:
    """Messages, and the age in seconds of the oldest one."""
    return Backlog(int(words[-1]), None if words[0] == "unknown" else milliseconds(words[:2]) // 1000)


@dataclass
class AuditStory:
    """A world and its last run."""

    world: AuditWorld
    backlog: Backlog | None
    backfill: bool
    report: Report = field(init=False)

    def play(self, text: str) -> None:
        """Take each step."""
        for step in filter(None, map(str.strip, text.split(";"))):
            try:
                self._step(step)
            except AssertionError as error:
                raise AssertionError(f"{self.world.ordering}: {step}: {error}") from error

    def _step(self, step: str) -> None:
        world = self.world
        match step.split():
            case ["put", *keys, age, unit, "old"]:
                for key in keys:
                    world.s3.put(key, age=milliseconds([age, unit]))
            case ["put", *keys]:
                for key in keys:
                    world.s3.put(key)
            case ["mark", key]:
                world.s3.mark(key)
            case ["lose", key]:
                del world.s3.keys[key]
            case ["commit", key, "absent"]:
                world.commit(key, ABSENT)
            case ["commit", key, *ago]:
                world.commit(key, self._state(key), age=milliseconds(ago) if ago else OLD)
            case ["row", key, status]:
                world.insert(key, self._state(key), Status[status])
            case ["meanwhile", *_]:
                others = step.removeprefix("meanwhile ").replace(",", ";")
                world.s3.meanwhile = lambda: self.play(others)
            case ["wait", *time]:
                world.clock.advance(milliseconds(time))
            case ["forget", "requests"]:
                world.store.requests.clear()
            case ["run"] | ["dry", "run"]:
                self._run(dry_run=step == "dry run")
            case _:
                self._check(step)

    def _run(self, *, dry_run: bool) -> None:
        window, resubmit = self.world.window(), True
        if self.backlog:
            window = audit_backlog.narrowed(window, self.backlog, now=self.world.clock())
            resubmit = not self.backlog.unknown
        self.report = self.world.run(window=window, resubmit=resubmit, dry_run=dry_run, backfill=self.backfill)

    def _check(self, step: str) -> None:
        world, report = self.world, self.report
        match step.split():
            case ["finds", *_]:
                wanted = [one.strip() for one in step.removeprefix("finds").split(",") if one.strip()]
                found = {f"{finding['why']} {finding['key']}": finding["state"] for finding in report.findings}
                assert sorted(found) == sorted(one.partition("@")[0] for one in wanted), found
                assert report.counts.total() == len(report.findings) == len(found)
                for one in wanted:
                    name, _, number = one.partition("@")
                    assert found[name] in self._states(name.split()[1], int(number or 0)), found
            case ["sends", *keys]:
                assert world.sent == sorted(keys), world.sent
                if world.ordering is Ordering.EVERY_VERSION:
                    named = {(body["key"], f"v#{body['versionId']}") for body in world.sqs.bodies}
                    assert all(state in self._states(key) for key, state in named)
            case ["heads", *keys]:
                assert world.s3.heads == keys, world.s3.heads
            case ["asks", *requests]:
                assert sorted(set(world.store.requests)) == requests, world.store.requests
            case ["checked", number]:
                assert report.checked == int(number), report.checked
            case ["dismissed", number]:
                assert (report.candidates, report.dismissed) == (int(number), int(number))
            case ["resubmitted", number]:
                assert report.resubmitted == int(number)
            case ["stopped", why]:
                assert report.stopped is Stopped[why]
            case ["complete"]:
                assert report.complete
            case ["writes", "nothing"]:
                assert world.store.items == {}
            case _:
                raise AssertionError("no step")

    def _state(self, key: str) -> State:
        return self.world.s3.keys.get(key, [UNLISTED])[-1]

    def _states(self, key: str, number: int = 0) -> set[str]:
        """What a finding may name: the state that S3 shows, or for a row of a version alone the state of this row."""
        states = self.world.s3.keys.get(key, [])
        if number:
            return {states[number - 1].identity}
        if self.world.ordering is Ordering.EVERY_VERSION:
            return {state.identity for state in states or [UNLISTED]}
        return {(states or [ABSENT])[-1].identity}
