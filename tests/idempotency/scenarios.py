"""Scenarios of faults: one for each row of the table. Each one is played with each library.

The events are the same for each library. The text of a cell is made from what happened.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from tests.idempotency.libraries import (
    LIBRARIES,
    Answer,
    Attempt,
    Function,
    Library,
    Message,
    Messages,
    Powertools,
    PowertoolsPlain,
    PowertoolsValidating,
    Result,
)
from tests.idempotency.world import EFFECTS, World

VISIBILITY_SECONDS = 360
"""The visibility timeout of the queue: six times the function's timeout, as AWS recommends."""
MAX_RECEIVES = 5
"""The receives of a queue made by hand before the dead-letter queue: the least that AWS recommends."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
FIRST, SECOND = {"order": "o-1", "event": "e-1"}, {"order": "o-1", "event": "e-2"}
"""Two messages of one key."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cell of the table."""

    text: str
    survives: bool

    def __str__(self) -> str:
        return self.text if self.survives else f"**{self.text}**"


@dataclass
class Play:
    """One scenario with one library."""

    kind: type[Library]
    world: World
    runs: list[Attempt] = field(default_factory=list)
    """The calls of the function that got to their effect."""
    waited: float = 0
    deliveries: int = 0

    def effect(self, attempt: Attempt) -> Result:
        """The function: it has one effect."""
        self.runs.append(attempt)
        return Result(f"effect {len(self.runs)}")

    def deliver(self, message: Message = FIRST, function: Function | None = None) -> Answer:
        """Deliver a message once, to a new worker."""
        self.deliveries += 1
        return self.kind(self.world).deliver(message, function or self.effect)

    def pass_time(self, seconds: float) -> None:
        self.world.clock.advance(round(seconds * 1000))

    def settle(
        self, message: Message = FIRST, function: Function | None = None, *, first: Function | None = None
    ) -> Answer:
        """Deliver a message until it is settled or in the dead-letter queue, as SQS does.

        A library that names a time is obeyed, if its worker lives.
        """
        limit = 1_000 if issubclass(self.kind, Messages) else MAX_RECEIVES
        for number in range(limit):
            answer = self.deliver(message, first if first and not number else function)
            if answer.settled:
                return answer
            wait = VISIBILITY_SECONDS if answer.retry_after is None else answer.retry_after
            self.pass_time(wait)
            self.waited += wait
        return Answer(settled=False, error="dead-letter queue", reason="".join(self.world.reasons()))

    @property
    def effects(self) -> str:
        number = len(self.runs)
        return f"{number} effect{'' if number == 1 else 's'}"

    @property
    def one_name(self) -> bool:
        """All attempts had one idempotency key."""
        return len({one.idempotency_key for one in self.runs} - {None}) == 1


Scenario = Callable[[Play], Finding]


def _ended(play: Play, answer: Answer) -> Finding:
    """The effects of a message, and how long its fault has delayed it."""
    text = play.effects
    if len(play.runs) > 1 and play.one_name:
        text += ", with one `idempotency_key`"
    if not answer.settled:
        return Finding(f"{text}, then the dead-letter queue", survives=False)
    return Finding(f"{text}, after {_span(play.waited)}", survives=len(play.runs) == 1)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < _MINUTE else f"{seconds / _MINUTE:.0f} minutes"


def dies_before_effect(play: Play) -> Finding:
    """The worker dies before its effect."""
    return _ended(play, play.settle(first=lambda _: play.world.kill()))


def dies_after_effect(play: Play) -> Finding:
    """The worker dies after its effect, before the save."""

    def die(attempt: Attempt) -> Result:
        play.effect(attempt)
        play.world.kill()

    return _ended(play, play.settle(first=die))


def dies_anywhere(play: Play) -> Finding:
    """The effect is a write to DynamoDB, and the worker dies before any one of its requests."""
    most, points = 0, 0
    while True:
        name = f"e-{points}"
        message, write = FIRST | {"event": name}, partial(_write, play, name)
        play.world.requests_left = points
        answer = play.deliver(message, write)
        if answer.error != "Killed":
            break
        play.pass_time(VISIBILITY_SECONDS)
        if not play.settle(message, write).settled:
            return Finding("the dead-letter queue", survives=False)
        most, points = max(most, play.world.count(name)), points + 1
    return Finding(f"at most {most} effect{'s' * (most != 1)}, at {points} requests", survives=most == 1)


def _write(play: Play, name: str, _: Attempt) -> Result:
    """The function's own write: with the save in a transaction, or before it."""
    update: dict[str, Any] = {
        "TableName": EFFECTS,
        "Key": {"id": {"S": name}},
        "UpdateExpression": "ADD times :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    if play.kind.can_transact:
        return Result(transact=({"Update": update},))
    play.world.client.update_item(**update)
    return Result()


def saves_in_an_outage(play: Play) -> Finding:
    """DynamoDB does not answer after the effect, so nothing is saved."""

    def lose(attempt: Attempt) -> Result:
        play.world.is_out = True
        return play.effect(attempt)

    play.deliver(function=lose)
    play.world.is_out = False
    play.pass_time(VISIBILITY_SECONDS)
    play.waited = VISIBILITY_SECONDS
    return _ended(play, play.settle())


def fails(play: Play) -> Finding:
    """The function raises an exception once."""
    reasons: list[str] = []

    def work(attempt: Attempt) -> Result:
        reasons.extend(play.world.reasons())
        return play.effect(attempt)

    found = _ended(play, play.settle(function=work, first=_fail))
    return Finding(f"{found.text}; the reason is {'kept until then' if reasons else 'not kept'}", found.survives)


def fails_in_an_outage(play: Play) -> Finding:
    """The function raises an exception, and DynamoDB does not answer."""

    def lose(attempt: Attempt) -> Result:
        play.world.is_out = True
        _fail(attempt)

    play.deliver(function=lose)
    play.world.is_out = False
    play.pass_time(VISIBILITY_SECONDS)
    play.waited = VISIBILITY_SECONDS
    return _ended(play, play.settle())


def never_succeeds(play: Play) -> Finding:
    """The function always raises an exception."""
    answer = play.settle(function=_fail)
    reason = "with the reason" if answer.reason else "without a reason"
    return Finding(f"dead-letter queue after {play.deliveries} deliveries, {reason}", survives=bool(answer.reason))


def is_doubled_meanwhile(play: Play) -> Finding:
    """A copy comes while the message is processed."""
    copies: list[Answer] = []

    def meanwhile(attempt: Attempt) -> Result:
        play.pass_time(10)
        copies.append(play.deliver())
        return play.effect(attempt)

    play.deliver(function=meanwhile)
    [copy] = copies
    how = f"error, `{copy.error}`" if copy.retry_after is None else f"told to wait for {copy.retry_after:.0f} seconds"
    return Finding(
        f"{play.effects}; the copy is {how}" if copy.retry_after else f"{play.effects}; {how}", len(play.runs) == 1
    )


def is_doubled_later(play: Play) -> Finding:
    """A copy comes afterwards."""
    return _copied(play, 10)


def is_doubled_after_hours(play: Play) -> Finding:
    """A copy comes two hours later."""
    return _copied(play, 2 * _HOUR)


def is_doubled_after_weeks(play: Play) -> Finding:
    """A copy comes 40 days later."""
    return _copied(play, 40 * _DAY)


def _copied(play: Play, seconds: float) -> Finding:
    play.deliver()
    play.pass_time(seconds)
    play.world.expire()
    play.deliver()
    return Finding(play.effects, survives=len(play.runs) == 1)


def returns_a_structure(play: Play) -> Finding:
    """The function returns a structure of 2 KB, and a copy wants it."""
    receipt = {"lines": [f"line {number}" for number in range(150)]}
    play.deliver(function=lambda _: Result(receipt))
    got = play.deliver().value
    # `once` keeps a text.
    if got in (receipt, json.dumps(receipt)):
        return Finding("the copy gets all of it", survives=True)
    return Finding(f"the copy gets {len(got)} characters" if got else "the copy gets nothing", survives=False)


def has_other_content(play: Play) -> Finding:
    """Another message comes with an identity that was used."""
    if play.kind is Powertools or play.kind is PowertoolsPlain:
        play.kind = PowertoolsValidating
    play.deliver(FIRST | {"amount": 1})
    answer = play.deliver(FIRST | {"amount": 2})
    if answer.settled:
        return Finding("taken for a copy", survives=False)
    return Finding(f"error, `{answer.error}`", survives=True)


def has_no_identity(play: Play) -> Finding:
    """The message has no identity, and it comes twice."""
    message = {"order": "o-1", "event": None}
    play.deliver(message)
    answer = play.deliver(message)
    if play.runs:
        return Finding(play.effects, survives=len(play.runs) == 1)
    return Finding(f"refused: `{answer.error}`" if not answer.settled else f"refused: {answer.error}", survives=True)


def shares_its_key(play: Play) -> Finding:
    """Two messages of one key come at once."""
    second: list[Answer] = []

    def meanwhile(attempt: Attempt) -> Result:
        second.append(play.deliver(SECOND))
        return play.effect(attempt)

    play.deliver(function=meanwhile)
    if second[0].settled:
        return Finding("both run at once", survives=False)
    play.pass_time(VISIBILITY_SECONDS)
    assert play.deliver(SECOND).settled
    return Finding("one after the other", survives=True)


def has_another_clock(play: Play) -> Finding:
    """A copy comes to a machine whose clock is 90 seconds ahead."""

    def meanwhile(attempt: Attempt) -> Result:
        play.pass_time(90)
        play.deliver()
        play.pass_time(-90)
        return play.effect(attempt)

    play.deliver(function=meanwhile)
    return Finding(play.effects, survives=len(play.runs) == 1)


def _overtaken(play: Play, late: Function) -> Answer:
    """A worker goes on after its successor has finished. Returns the successor's answer."""
    answers: list[Answer] = []

    def stand_still(attempt: Attempt) -> Result:
        play.pass_time(VISIBILITY_SECONDS)
        answers.append(play.deliver())
        return late(attempt)

    play.deliver(function=stand_still)
    return answers[0]


def saves_late(play: Play) -> Finding:
    """A late worker saves its result after its successor did."""
    successor = _overtaken(play, play.effect)
    if not successor.settled:
        return Finding(f"no successor runs: `{successor.error}`", survives=True)
    kept = play.world.results()[0] if play.kind is Messages else play.deliver().value
    if kept == "effect 1":
        return Finding("refused", survives=True)
    return Finding("it replaces the successor's", survives=False)


def fails_late(play: Play) -> Finding:
    """A late worker fails after its successor's success. Then a copy comes."""
    successor = _overtaken(play, _fail)
    if not successor.settled:
        return Finding(f"no successor runs: `{successor.error}`", survives=True)
    before = len(play.runs)
    play.deliver()
    return Finding(play.effects, survives=len(play.runs) == before)


def writes_late(play: Play) -> Finding:
    """A late worker writes to another system after its successor did."""
    successor = _overtaken(play, play.effect)
    if not successor.settled:
        return Finding(f"no successor runs: `{successor.error}`", survives=True)
    first, late = play.runs[:2]
    if first.fence is None or late.fence is None:
        return Finding("nothing tells them apart", survives=False)
    assert late.fence < first.fence
    return Finding("the system can refuse the lower `fence`", survives=True)


def _fail(_: Attempt) -> NoReturn:
    raise ConnectionError("the shop is out")


SCENARIOS: tuple[Scenario, ...] = (
    is_doubled_later,
    is_doubled_meanwhile,
    is_doubled_after_hours,
    is_doubled_after_weeks,
    returns_a_structure,
    has_other_content,
    has_no_identity,
    shares_its_key,
    dies_before_effect,
    dies_after_effect,
    dies_anywhere,
    saves_in_an_outage,
    fails,
    fails_in_an_outage,
    never_succeeds,
    saves_late,
    fails_late,
    writes_late,
    has_another_clock,
)


def title(scenario: Scenario) -> str:
    """The row's name on the page."""
    return str(scenario.__doc__).rstrip(".")


def find(scenario: Scenario, kind: type[Library]) -> Finding:
    """Play a scenario with a library."""
    with World.opened() as world:
        return scenario(Play(kind, world))


def find_all() -> dict[str, dict[str, str]]:
    """The cells by row and column."""
    return {title(one): {kind.name: str(find(one, kind)) for kind in LIBRARIES} for one in SCENARIOS}


if __name__ == "__main__":
    for row, cells in find_all().items():
        print(row)
        for column, cell in cells.items():
            print(f"    {column:25} {cell}")
