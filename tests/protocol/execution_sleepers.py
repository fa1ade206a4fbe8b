"""Search small worlds of executions in which two workers pause at the same time, each before any of its requests.

A paused worker is a list of the answers that it has got. It goes on as a new worker that gets the same answers again,
and then those of the present world. So a world with paused workers can be copied, and any step may happen meanwhile.
"""

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from intake_ledger_testing.events import sqs_event
from tests.protocol.execution_worlds import (
    ExecutionWorld,
    MemoryQueues,
    Outside,
    Result,
    World,
    make_consumer,
    plain_steps,
    search,
    short,
)
from tests.unit.consumer.test_consumer import Context
from tests.unit.support import MINUTE

WORLDS = {
    "executions, two pausing workers": ExecutionWorld(pauses=2),
    "executions, a pausing worker and a refused start": ExecutionWorld(pauses=1, refusals=1),
    "durable, two pausing workers": ExecutionWorld(pauses=2, durable=True),
    "durable, a pausing worker and a queued start": ExecutionWorld(pauses=1, queued=1, durable=True),
}
_NUMBER = re.compile(r"\d{12,}")
_OWNER = re.compile(r"\bw\d+\b")


class AsleepError(KeyboardInterrupt):
    """The worker pauses here. The consumer lets this error pass."""


class Answer(NamedTuple):
    """A value that a worker got from outside, or the error of AWS."""

    value: object
    error: ClientError | None = None

    def __deepcopy__(self, memo: object) -> "Answer":
        return self


@dataclass(slots=True)
class Sleeper:
    """A worker that has paused."""

    body: str
    answers: list[Answer]
    """All that it got so far, in order: of requests, of the clock, and the names of its attempts."""
    began: int
    """The time of its invocation."""


@dataclass
class SleepersWorld(World):
    """A world with workers that have paused."""

    asleep: list[Sleeper] = field(default_factory=list)

    def state(self) -> object:
        """As without them, and with what each one knows."""
        row = self.row
        fences = {int(name.rpartition("-")[2]) for name in self.machine.executions} | ({row.fence} if row else set())
        texts = sorted(f"{short(one.body)} {_text(one.answers)}" for one in self.asleep)
        numbers = {str(fence): f"fence {place}" for place, fence in enumerate(sorted(fences))}
        owners: dict[str, str] = {row.lease_owner: "owner"} if row and row.lease_owner else {}
        for owner in _OWNER.findall(" ".join(texts)):
            owners.setdefault(owner, f"owner {len(owners)}")
        now = self.clock()

        def number(found: re.Match[str]) -> str:
            # A time that is over stays over.
            return numbers.get(found[0]) or (f"in {int(found[0]) - now}" if int(found[0]) > now else "over")

        known = tuple(_OWNER.sub(lambda found: owners[found[0]], _NUMBER.sub(number, text)) for text in texts)
        return super().state(), known


def _text(answers: list[Answer]) -> str:
    return " ".join(repr(_plain(one.value)) if one.error is None else str(one.error) for one in answers)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if name != "input"}
    return [_plain(one) for one in value] if isinstance(value, list) else value


class _Memory:
    """Gives a worker the answers that it had, and then those of the world."""

    def __init__(self, answers: list[Answer], requests: int | None) -> None:
        self.answers = list(answers)
        self.sent = 0
        """Requests to the world."""
        self._left = requests
        self._at = 0
        self._asleep = False

    def value[T](self, make: Callable[[], T]) -> T:
        """A value that is no request. After the pause it is of no account."""
        if self._at == len(self.answers) and not self._asleep:
            self.answers.append(Answer(make()))
        elif self._asleep:
            return make()
        return cast("T", self._next())

    def request(self, send: Callable[[], object]) -> object:
        """The answer of a request.

        Raises:
            AsleepError: The worker has paused before this request.

        """
        if self._at == len(self.answers):
            if self._asleep or self.sent == self._left:
                self._asleep = True
                raise AsleepError
            self.sent += 1
            try:
                self.answers.append(Answer(copy.deepcopy(send())))
            except ClientError as error:
                self.answers.append(Answer(None, error))
        return self._next()

    def _next(self) -> object:
        answer = self.answers[self._at]
        self._at += 1
        if answer.error is not None:
            raise ClientError(cast("Any", answer.error.response), answer.error.operation_name)
        return copy.deepcopy(answer.value)


class _Client:
    def __init__(self, client: Any, memory: _Memory) -> None:
        self._client, self._memory = client, memory

    def __getattr__(self, name: str) -> Any:
        send = getattr(self._client, name)
        return lambda *given, **named: self._memory.request(lambda: send(*given, **named))


def go_on(w: SleepersWorld, sleeper: Sleeper, requests: int | None = None) -> int:
    """Let a worker send this number of requests, then pause. All that remain, when it is omitted: it ends.

    Returns the number of its requests.
    """
    memory = _Memory(sleeper.answers, requests)

    def owner() -> str:
        w.owners += 1
        return f"w{w.owners}"

    store, s3, machine, queues = (_Client(one, memory) for one in (w.store, w.s3, w.machine, MemoryQueues(w)))
    clock = partial(memory.value, w.clock)
    consumer = make_consumer(Outside(store, s3, machine, queues, clock, partial(memory.value, owner), w.left.durable))
    running = w.running()
    try:
        context = Context(cast("Any", clock), sleeper.began + 3 * MINUTE)
        answer = consumer.handle(sqs_event(sleeper.body), cast("Any", context))
    except AsleepError:
        w.asleep.append(Sleeper(sleeper.body, memory.answers, sleeper.began))
    else:
        # The queue has delivered the message again meanwhile. An acknowledgement deletes it all the same.
        if not answer["batchItemFailures"] and sleeper.body in w.queue:
            w.queue.remove(sleeper.body)
    w.look(running)
    return memory.sent


def steps(w: SleepersWorld) -> Iterator[tuple[str, Callable[[SleepersWorld], None]]]:
    """Each step from here. A worker may pause before any of its requests, if the budget allows."""
    yield from plain_steps(w)
    for body in dict.fromkeys(w.queue) if w.left.pauses else ():
        requests = go_on(copy.deepcopy(w), Sleeper(body, [], w.clock()))
        for number in range(1, requests):
            label = f"a worker handles {short(body)}, and pauses before request {number}"
            yield label, partial(_fall_asleep, body=body, number=number)
    for place, one in enumerate(w.asleep):
        yield f"the worker that paused with {short(one.body)} goes on", partial(_wake_up, place=place)


def _fall_asleep(w: SleepersWorld, body: str, number: int) -> None:
    w.use(pauses=1)
    go_on(w, Sleeper(body, [], w.clock()), number)


def _wake_up(w: SleepersWorld, place: int) -> None:
    go_on(w, w.asleep.pop(place))


def explore(world: ExecutionWorld, *, states: int = 10**6) -> Result:
    """Search all worlds from here."""
    return search(SleepersWorld(world), steps, states=states)
