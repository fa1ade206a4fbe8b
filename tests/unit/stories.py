"""Stories of one key, as text: uploads and removals, the events that workers get, and the ledger's answers.

    an older event claims the newer state
        put 1; put 2; created 2 dies; created 1 claims 2 attempt 2

The steps are:

- `put 1`: upload this content. The story calls the version `1`. `put same as 2` gives it another name.
- `mark M`: delete without a version. `remove 1`: delete this version or marker for good.
- `wait 13 d`: let time pass, in `ms`, `s` or `d`. `expire`: let TTL delete the row.
- `EVENT NAME OUTCOME [STATE] [attempt N] [round N] [for TIME]`: a worker gets an event and asks the ledger. An outcome
  in capitals is the ledger's ruling, `SETTLED unprocessed` if an object was never processed, and `STALE undone` if the
  row gets back the commit from before a removal. Otherwise the change is claimed, in the state that is given, and its
  worker `claims` only, `commits`, `fails` (`for` this time, all messages for the state wait), `dies`, `rejects`,
  `releases` or `abandons`.
- `then OUTCOME`: end the claim that was only claimed. `then is refused`: another state was written late, so the attempt
  is not counted.
- `late 1 reports`: the first worker that died lives on. Its commit is fenced, and it reports its late write, or `has
  nothing` to report.
- `exhaust`: reject the change whose attempts are used up, as the consumer does.
- `meanwhile STEP, STEP`: what others do between the next look at S3 and the write that follows it.
- `deletes off`: from now on, the processor is not told of removals.
- `row attempts=1 committed_state=2`: compare the row, or `no row`. `looks 0`: count the HEADs.

A story may begin with the kind of its pipeline: `every version, deletes off, without versions: put 1`. With `all rows`,
the ledger knows that it has a row for each processed object.

An event is `created`, `eventbridge`, `marked`, `deleted` or `audited` with a state, `reprocess` with the name of a
request (`a`, `b`, and `a:1` for a version), or `copy` with the number of a rejection: the message that its dead letter
moves back.

After each step, the story checks what is true in any story: a ruling writes nothing, a claim has a new fence and the
state that it names, an attempt at the same change keeps its idempotency key, only a settled row expires, only a failed
or rejected one needs review, a failure keeps what is committed, and a release changes the fence alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from textwrap import dedent
from typing import Any

import pytest

from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.change import ABSENT, Change, State
from intake_ledger.protocol.errors import Fenced, LateWriteFound
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger.protocol.verdict import Ruling, Verdict
from tests.unit.support import (
    DAY,
    HOUR,
    KEY,
    LEASE,
    MINUTE,
    RETENTION,
    SECOND,
    AllRows,
    MakeWorld,
    World,
    audited,
    created,
    deleted,
    eventbridge,
    make_reason,
    marked,
    one_change,
    redriven,
    reprocess,
)

REQUESTS = {name: f"01KA000000000000000000000{number}" for number, name in enumerate("abc", 1)}
"""The IDs of requests to process again, from the oldest to the newest."""
_REPORTS: dict[str, Callable[..., Change]] = {
    "created": created,
    "marked": marked,
    "deleted": deleted,
    "eventbridge": lambda state, at: one_change(eventbridge(KEY, state, at=at)),
}
_STORY = re.compile(r"^(\S.*)\n((?:[ ]+.*\n)+)", re.MULTILINE)
_UNITS = {"ms": 1, "s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY}
_EVENT = re.compile(
    r"(?P<event>\w+) (?P<name>\S+) (?P<outcome>\w+)(?: (?!attempt|round|for)(?P<state>\S+))?"
    r"(?: attempt (?P<attempt>\d+))?(?: round (?P<round>\d+))?(?: for (?P<time>\d+ \w+))?"
)


def stories(text: str) -> pytest.MarkDecorator:
    """A row for each story of the text: its name in one line, and its steps in indented ones.

    A name may begin with the numbers of tests/failure-modes.md that its story holds: `F32 F33 the original event`.
    """
    rows = [pytest.param(" ".join(steps.split()), id=name) for name, steps in _STORY.findall(dedent(text))]
    return pytest.mark.parametrize("story", rows)


def tell(make_world: MakeWorld, text: str) -> None:
    """Play a story in a pipeline of the kind that it names."""
    kind, _, steps = text.rpartition(": ")
    options = set(filter(None, kind.split(", ")))
    assert options <= {"every version", "deletes off", "without versions", "all rows"}, kind
    world = make_world(
        Ordering.EVERY_VERSION if "every version" in options else Ordering.LATEST,
        deletes="deletes off" not in options,
        versioned="without versions" not in options,
    )
    world.row_history = AllRows() if "all rows" in options else None
    Story(world).play(steps)


@dataclass
class Story:
    """The events of the key until now."""

    world: World
    states: dict[str, State] = field(default_factory=lambda: {"absent": ABSENT})
    times: dict[str, int] = field(default_factory=dict)
    """When a state was made, and when it was deleted for good."""
    rejections: list[tuple[Change, int]] = field(default_factory=list)
    last: Change | None = None
    late: list[Claim] = field(default_factory=list)
    """The claims of workers that died."""
    open: Claim | None = None
    raced: bool = False
    """True if others act during the next event."""

    def play(self, text: str) -> None:
        """Take each step, and check what it and each story promise."""
        for step in filter(None, map(str.strip, text.split(";"))):
            try:
                self._step(step)
            except AssertionError as error:
                raise AssertionError(f"{step}: {error}") from error

    def _step(self, step: str) -> None:
        match step.split():
            case ["put", content, *name]:
                self._made(name[-1] if name else content, self.world.s3.put(KEY, content))
            case ["mark", name]:
                self._made(name, self.world.s3.mark_deleted(KEY))
            case ["remove", name]:
                self.world.s3.delete_version(KEY, self.states[name])
                self.times[f"deleted {name}"] = self.world.clock()
            case ["wait", *time]:
                self.world.clock.advance(milliseconds(time))
            case ["expire"]:
                self.world.expire(self._last())
            case ["exhaust"]:
                self._exhaust()
            case ["meanwhile", *_]:
                others = step.removeprefix("meanwhile ").replace(",", ";")
                self.world.s3.after_look.append(lambda: self.play(others))
                self.raced = True
            case ["late", number, *told]:
                with pytest.raises(Fenced):
                    self.world.ledger.commit(self.late[int(number) - 1])
                assert self.world.ledger.report_late_write(self.late[int(number) - 1]) is (told == ["reports"])
            case ["then", *outcome]:
                assert self.open is not None, "no claim"
                self._end(self.open, " ".join(outcome), None, None)
            case ["deletes", "off"]:
                self.world.deletes = False
            case ["looks", number]:
                assert len(self.world.s3.looks) == int(number)
            case ["no", "row"]:
                assert self.world.item(self._last()) == {}
            case ["row", *columns]:
                row = self.world.known(self._last())
                for name, _, value in (one.partition("=") for one in columns):
                    found = self._named(getattr(row, name))
                    assert found == value, f"{name} is {found}"
            case _:
                self._ask(step)

    def _made(self, name: str, state: State) -> None:
        self.states[name] = state
        self.times[name] = self.world.clock()

    def _ask(self, step: str) -> None:
        parts = _EVENT.fullmatch(step)
        assert parts, "no step"
        change = self._change(parts["event"], parts["name"])
        self.last, before, item = change, self.world.row(change), self.world.item(change)
        raced, self.raced = self.raced, False
        answer = self.world.answer(change)
        if parts["outcome"].isupper():
            assert answer.verdict == Verdict[parts["outcome"]], f"{answer.verdict}, {answer.why}"
            unprocessed = bool(isinstance(answer, Ruling) and answer.unprocessed)
            assert unprocessed is (parts["state"] == "unprocessed"), f"unprocessed: {unprocessed}"
            undone = bool(isinstance(answer, Ruling) and answer.undone)
            assert undone is (parts["state"] == "undone"), f"undone: {undone}"
            writes = answer.verdict is Verdict.SETTLED or undone or raced
            assert writes or self.world.item(change) == item, "the ruling wrote"
            return
        assert isinstance(answer, Claim), f"{answer.verdict}, {answer.why}"
        before = answer.seen if raced else before
        self._check_claim(answer, before, raced=raced, asked_for=parts["event"] == "reprocess")
        wanted = self.states[parts["state"]] if parts["state"] else answer.state
        assert answer.state.identity == wanted.identity, f"claims {answer.state}"
        self.open = answer
        assert answer.row.attempts == int(parts["attempt"] or answer.row.attempts), f"attempt {answer.row.attempts}"
        assert answer.row.redrive_count == int(parts["round"] or answer.row.redrive_count)
        retry_at = self.world.clock() + milliseconds(parts["time"].split()) if parts["time"] else None
        self._end(answer, parts["outcome"], item, retry_at)

    def _change(self, event: str, name: str) -> Change:
        if event == "copy":
            return redriven(*self.rejections[int(name) - 1])
        if event == "reprocess":
            request, _, version = name.partition(":")
            return reprocess(REQUESTS[request], state=self.states.get(version))
        if event == "audited":
            return audited(self.states[name])
        at = self.times.get(f"deleted {name}", self.world.clock()) if event == "deleted" else self.times[name]
        return _REPORTS[event](self.states[name], at=at)

    def _end(self, claim: Claim, outcome: str, item: dict[str, Any] | None, retry_at: int | None) -> None:
        world, reason = self.world, make_reason(outcome)
        match outcome:
            case "claims":
                return
            case "dies":
                self.late.append(claim)
                world.clock.advance(LEASE + 1)
                return
            case "releases":
                world.ledger.release(claim)
                if item is not None:
                    item.pop("lease_until", None)  # of a worker that died
                    assert world.item(claim.change) == (item and item | {"fence": {"N": str(claim.row.fence)}})
                return
            case "is refused":
                with pytest.raises(LateWriteFound):
                    world.ledger.commit(claim)
                world.ledger.fail(claim, reason, counted=False)
                return
            case "commits":
                world.ledger.commit(claim, f"result of {claim.row.fence}")
            case "fails":
                world.ledger.fail(claim, reason, retry_at=retry_at)
            case "rejects":
                world.ledger.reject(claim, reason)
                self.rejections.append((claim.change, claim.row.fence))
            case "abandons":
                world.ledger.abandon(claim, reason, begun=True)
            case _:
                raise AssertionError("no outcome")
        self._check_end(claim, world.known(claim.change), outcome)

    def _exhaust(self) -> None:
        change, answer = self._last(), self.world.answer(self._last())
        assert isinstance(answer, Ruling), answer
        assert answer.row is not None
        after = self.world.ledger.exhausted_row(change, answer.row)
        assert self.world.ledger.exhaust(change, answer.row, after)
        assert self.world.known(change) == after
        assert after.rejected_fence == after.fence > answer.row.fence, "a worker that still runs is fenced"
        assert after.needs_review is not None
        self.rejections.append((change, after.fence))

    def _check_claim(self, claim: Claim, before: Row | None, *, raced: bool, asked_for: bool) -> None:
        row = self.world.known(claim.change)
        unread = claim.row.late_writes if raced else row.late_writes
        assert (replace(row, late_writes=unread), claim.seen) == (claim.row, before)
        assert (row.version_id, row.etag, row.size) == (claim.state.version_id, claim.state.etag, claim.state.size)
        assert (row.status, row.needs_review, row.retry_at, row.expires_at) == (Status.PROCESSING, None, None, None)
        if before is None:
            return
        assert row.fence > before.fence
        assert _commit(row) == _commit(before)
        same = before.identity == claim.state.identity and before.status is not Status.PROCESSED
        if not asked_for:
            same_key = same and not before.late_writes
            assert (row.first_claimed_at == before.first_claimed_at) is same_key, "the idempotency key"
        assert (row.reason, row.reason_code) == ((before.reason, before.reason_code) if same else (None, None))

    def _check_end(self, claim: Claim, row: Row, outcome: str) -> None:
        assert (row.fence, row.lease_until, row.lease_owner) == (claim.row.fence, None, None)
        if outcome == "commits":
            assert _commit(row) == (claim.state.identity, row.fence, f"result of {row.fence}")
        else:
            assert _commit(row) == _commit(claim.row)
        settled = outcome in ("commits", "abandons")
        assert row.settled is settled
        code = None if outcome == "commits" else ReasonCode.PROCESSOR_ERROR
        assert (row.reason, row.reason_code) == (code and outcome, code)
        # A version that was given up needs review if nothing is committed: test_removed_unprocessed.py.
        assert row.needs_review is None if outcome == "commits" else row.needs_review is not None or settled
        assert row.rejected_fence == {"rejects": row.fence, "commits": None}.get(outcome, claim.row.rejected_fence)
        if settled:
            assert (row.expires_at or 0) * SECOND > self.world.clock() + RETENTION
        else:
            assert row.expires_at is None

    def _named(self, value: object) -> str:
        """The story's name of a state or a request, or the value as text."""
        if isinstance(value, frozenset):
            return ",".join(sorted(map(self._named, value)))
        names = {state.identity: name for name, state in self.states.items()}
        return {**names, **{ulid: name for name, ulid in REQUESTS.items()}}.get(str(value), str(value))

    def _last(self) -> Change:
        assert self.last is not None, "no event yet"
        return self.last


def _commit(row: Row | None) -> tuple[object, ...]:
    return (row.committed_state, row.committed_fence, row.commit_id) if row else (None, None, None)


def milliseconds(time: list[str]) -> int:
    """A number and its unit, such as `2.5 h`."""
    return round(float(time[0]) * _UNITS[time[1]])
