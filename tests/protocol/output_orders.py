"""Search every order of the requests of several writers of one output, on the code that runs in Lambda.

A writer may die before each request, and may be as late as it likes. So the search checks every state that it reaches.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import product
from typing import NamedTuple

from intake_ledger import OutputConflict, Overtaken
from intake_ledger.outputs.conditional_put import Present
from intake_ledger_testing.memory_outputs import MemoryOutputs
from tests.protocol.output_writers import BUCKET, Action, Job, Way, Writer, visible, writer

FENCE = 1_767_225_600_000
STEP = 10_000
"""Milliseconds between two claims. S3's times have whole seconds."""
VALUES = tuple(random.Random(value).randbytes(150).replace(b",", b";") for value in range(2))
"""Contents of more than two parts, without a comma."""


class Found(NamedTuple):
    """Result of one or several searches."""

    states: int
    wrong: str | None
    """The first broken promise, or None."""


class _World(NamedTuple):
    s3: MemoryOutputs
    writers: tuple[Writer, ...]
    losses: int
    """The number of answers that may still be lost."""

    @property
    def name(self) -> str:
        """Equal for worlds that go on in the same way."""
        objects = sorted((name, one.etag, one.metadata, one.written_at) for name, one in self.s3.objects.items())
        uploads = sorted((name, sorted(one.parts), one.overwritten) for name, one in self.s3.uploads.items())
        return repr((objects, uploads, self.losses, [(one.ended, one.answers) for one in self.writers]))


def search_all(way: Way, *, writers: int, actions: Iterable[Action] = Action, losses: int = 0) -> Found:
    """Search all orders for each combination of actions and contents, with and without an earlier output.

    Args:
        way: of the writes.
        writers: their number.
        actions: that a writer may take; all when omitted.
        losses: as in `search`.

    """
    states = 0
    for earlier in (None, Job(FENCE, Action.PUT, VALUES[0], look_first=False)):
        for chosen in product(product(actions, VALUES), repeat=writers):
            jobs = [
                Job(FENCE + number, action, value, look_first=number > 1 or earlier is not None)
                for number, (action, value) in enumerate(chosen, 1)
            ]
            found = search(way, "a.gz", jobs, earlier=earlier, losses=losses)
            states += found.states
            if found.wrong:
                return Found(states, f"{found.wrong}: {[(job.action.value, job.value[:1]) for job in jobs]}")
    return Found(states, None)


def search_two_objects(*, writers: int, losses: int = 0) -> Found:
    """Search all orders in which writers for two objects have the same output, each combination of jobs.

    Before, there was nothing, or a job of the first object had ended. Each object has its own value. A fence is the
    time of its claim, so the fences grow through all jobs.

    Args:
        writers: their number. They put or remove.
        losses: as in `search`.

    """
    states = 0
    objects = dict(zip(("in/a", "in/b"), VALUES, strict=True))
    choices = list(product(objects, (Action.PUT, Action.REMOVE)))
    starts = [[], *([choice] for choice in choices if choice[0] == "in/a")]
    for before, chosen in product(starts, product(choices, repeat=writers)):
        jobs: list[Job] = []
        for number, (source, action) in enumerate((*before, *chosen)):
            seen = any(job.source == source for job in jobs)
            jobs.append(Job(FENCE + number * STEP, action, objects[source], seen, source))
        found = search(Way.OUTPUT, "a.gz", jobs[len(before) :], earlier=jobs[0] if before else None, losses=losses)
        states += found.states
        if found.wrong:
            return Found(states, f"{found.wrong}: {[(job.source, job.action.value) for job in jobs]}")
    return Found(states, None)


def search(way: Way, key: str, jobs: Sequence[Job], *, earlier: Job | None = None, losses: int = 0) -> Found:
    """Search all orders until a promise is broken.

    The promises: the mark of the output never goes back, and from the moment when the job with the highest fence of an
    object has ended, readers see its result. If two objects have the output, one of them may be refused, and readers
    never see what a removed object had.

    Args:
        way: of the writes.
        key: of the output.
        jobs: of the writers, by fence.
        earlier: a job that has ended before; none when omitted.
        losses: the number of answers that are lost anywhere, so that their requests are sent again; none when omitted.

    """
    s3 = MemoryOutputs(lambda: FENCE)
    if earlier is not None:
        first = writer(way, key, earlier)
        while not first.ended:
            first.step(s3)
    start = _World(s3, tuple(writer(way, key, job) for job in jobs), losses)
    seen, waiting = {start.name}, [start]
    while waiting:
        world = waiting.pop()
        for after in _next(world):
            if wrong := _broken(world, after, key, jobs, earlier):
                return Found(len(seen), wrong)
            if after.name not in seen:
                seen.add(after.name)
                waiting.append(after)
    return Found(len(seen), None)


def _next(world: _World) -> Iterator[_World]:
    """The worlds after one request."""
    for place, one in enumerate(world.writers):
        if one.ended:
            continue
        for is_lost in (False, True) if world.losses else (False,):
            s3, moved = _copied(world.s3), Writer(one.run, one.fence, list(one.answers))
            # A fence is the time of its claim. So each writer that has sent a request is younger than the present.
            now = max(other.fence for other in world.writers if other is one or other.answers or other.ended)
            s3.clock = lambda now=now: now  # type: ignore[misc]
            moved.step(s3, answer_is_lost=is_lost)
            writers = (*world.writers[:place], moved, *world.writers[place + 1 :])
            yield _World(s3, writers, world.losses - is_lost)


def _copied(s3: MemoryOutputs) -> MemoryOutputs:
    copy = MemoryOutputs(s3.clock)
    copy.objects = dict(s3.objects)
    copy.uploads = deepcopy(s3.uploads)
    # Uploads of one order have other IDs in another order, so that no two writers share one.
    copy._uploads_made = s3._uploads_made
    return copy


def _broken(before: _World, after: _World, key: str, jobs: Sequence[Job], earlier: Job | None) -> str | None:
    if _mark(before, key) > _mark(after, key):
        return "the mark of the output went back"
    shown = visible(after.s3, key)
    ended = Writer(lambda _: None, ended=True)
    last = {earlier.source: (earlier, ended)} if earlier else {}
    last |= {job.source: (job, one) for job, one in zip(jobs, after.writers, strict=True)}
    for job, one in last.values():
        if not one.ended:
            continue
        if one.error is not None and (len(last) == 1 or isinstance(one.error, Overtaken)):
            return f"the highest fence ended with {type(one.error).__name__}"
        if len(last) == 1:
            right = shown == job.expected
        else:
            right = one.error is not None or (shown == job.value) == (job.action is not Action.REMOVE)
        if not right:
            return "readers do not see the result of the highest fence"
    if all(one.ended for one in after.writers):
        values = {source: job.value for source, (job, _) in last.items()}
        return _stuck(after, key, jobs[-1].fence + STEP, values, shown)
    return None


def _stuck(world: _World, key: str, fence: int, values: Mapping[str, bytes], shown: bytes | None) -> str | None:
    """At rest, the next claim on an object gets the output, unless it shows another object."""
    for source, value in values.items():
        next_one = writer(Way.OUTPUT, key, Job(fence, Action.PUT, value, source=source))
        s3 = _copied(world.s3)
        while not next_one.ended:
            next_one.step(s3)
        is_taken = len(values) > 1 and shown not in (None, value)
        if isinstance(next_one.error, OutputConflict) != is_taken or (next_one.error and not is_taken):
            return f"the next claim on {source} ended with {next_one.error!r}"
    return None


def _mark(world: _World, key: str) -> tuple[int, int]:
    if (BUCKET, key) not in world.s3.objects:
        return 0, 0
    mark = Present.of(world.s3.head_object(Bucket=BUCKET, Key=key)).mark
    return (mark.fence, mark.number) if mark else (0, 0)
