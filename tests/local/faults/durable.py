"""The fault run of durable executions: a durable function is the processor."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, Self

from tests.local.faults.downstream import TAKEN, Delivery, Reaction
from tests.local.faults.durable_api import GET, INVOKE, STOP, DurableApi, Past
from tests.local.faults.durable_stack import NAME
from tests.local.faults.execution_judge import OVER, Execution, Started, counted, judge_executions
from tests.local.faults.execution_stack import ATTEMPTS
from tests.local.faults.executions import HIDDEN_SECONDS, LETTERS, break_out, images
from tests.local.faults.judge import Expected
from tests.local.faults.moods import mixed
from tests.local.faults.outbreaks import described, not_over
from tests.local.faults.outcomes import Outcome, outcome
from tests.local.faults.proxy import Fault, Trouble
from tests.local.faults.sizes import Sizes
from tests.local.faults.world import Line, Sources

PREFIX = "durable/"
QUEUE_SECONDS = HIDDEN_SECONDS + 8
"""For how long Lambda queues some starts. A message whose worker died comes back before."""
STOPPED_SECONDS = 10
"""For how long the invocation of a stopped execution runs on."""


@dataclass(frozen=True)
class DurableLine:
    """The deployed pipeline with its durable function."""

    line: Line
    api: DurableApi
    work: str
    outputs: str
    stream: str

    @classmethod
    def of(cls, world: Sources, outputs: Mapping[str, str]) -> Self:
        """Read the names from the stack's outputs."""
        assert world.proxy.durable is not None
        line = Line.of(world, outputs, NAME)
        return cls(line, world.proxy.durable, *(outputs[f"{NAME}{what}"] for what in ("Work", "Outputs", "Stream")))

    def name_of(self, name: str) -> str:
        """The name of an execution at Lambda: unique in the account, so it has the table in it."""
        digest, _, fence = name.rpartition("-")
        return f"{hashlib.sha256(f'{self.line.table}\n{digest}'.encode()).hexdigest()[:40]}-{fence}"

    def past(self) -> list[Past]:
        """Return all executions, with their invocations."""
        return list(self.api.past.values())

    def executions(self) -> list[Execution]:
        """Return all executions."""
        return [_execution(one) for one in self.past()]

    def stop(self, delivery: Delivery) -> None:
        """Stop the execution of a delivery, which runs on."""
        [name] = [one.name for one in self.executions() if (one.key, one.fence) == (delivery.key, delivery.fence)]
        self.api.stop(name)

    @contextmanager
    def waking(self, keys: Sequence[str]) -> Iterator[None]:
        """Send S3's message about each of these keys again when its execution has ended. Polls take half a minute."""
        over, woken = Event(), set[str]()

        def wake() -> None:
            while not over.wait(0.5):
                for one in self.executions():
                    if one.status in OVER and one.key in keys and one.name not in woken:
                        woken.add(one.name)
                        self.line.announce(one.key, one.version, copies=1)

        thread = Thread(target=wake)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def wrong_outputs(self) -> list[str]:
        """Problems of the outputs: each is that of the last effect of its key."""
        s3 = self.line.aws.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.outputs)
        keys = [one["Key"] for page in pages for one in page.get("Contents", ())]
        found = {key: s3.get_object(Bucket=self.outputs, Key=key)["Body"].read().decode() for key in keys}
        wanted = {one.key: f"{one.fence} {one.version}" for one in self.line.downstream.effects_of(PREFIX)}
        return [
            f"{key}: the output is of {found.get(key)!r}, the last effect was {last!r}"
            for key, last in wanted.items()
            if found.get(key) != last
        ]


def _execution(past: Past) -> Execution:
    one, given = past.execution, past.execution.given
    return Execution(
        name=one.name,
        key=given["key"],
        version=given["versionId"],
        attempt=given["attempt"],
        fence=int(given["fenceText"]),
        status=one.status,
        started=one.starts_at / 1000,
        stopped=max(one.stopped_at / 1000, past.ended) if one.stopped_at else 0,
        commit=json.loads(one.output or "{}").get("commit", ""),
    )


def durable(world: Sources, outputs: Mapping[str, str], sizes: Sizes) -> Iterator[Outcome]:
    """Executions with copies, failures and long queues. People and newer versions stop some. Processes die."""
    started, pipeline, released = time.monotonic(), DurableLine.of(world, outputs), Event()
    line, api = pipeline.line, pipeline.api
    line.hide_for(HIDDEN_SECONDS)
    kinds = ("plain", "copied", "overwritten", "failing", "refused", "raising", "stopped", "queued", "table", "lambda")
    dying = ("before-start", "after-start", "redeployed", "before-commit", "after-commit", "dies-before", "dies-after")
    number, deaths = sizes.executions, max(1, sizes.executions // 2)
    keys = {kind: [f"{PREFIX}{kind}/{n}" for n in range(number)] for kind in kinds}
    keys |= {kind: [f"{PREFIX}{kind}/{n}" for n in range(deaths)] for kind in dying}
    api.queued |= {f"{PREFIX}{kind}/": QUEUE_SECONDS for kind in ("queued", "after-start", "redeployed")}
    api.redeployed = f"{PREFIX}redeployed/"
    world.downstream.moods[NAME.lower()] = _mood(pipeline, keys, released)
    outbreaks = break_out(
        world, PREFIX, pipeline.work, number, start=INVOKE, ask=GET, service="lambda", more=("redeployed",)
    )
    troubles = (Trouble.KILLED, Trouble.KILLED_AFTER, Trouble.THROTTLED, Trouble.ANSWER_LOST)
    stops = (Fault(trouble, max(1, number // 4), (STOP,)) for trouble in troubles)
    outbreaks.append(world.proxy.break_out(f"{PREFIX}overwritten/", *stops))

    held = keys["overwritten"]
    for key in [*held, *mixed(*(some for kind, some in keys.items() if kind != "overwritten"))]:
        version = line.put(key)
        if key in keys["copied"]:
            line.announce(key, version, copies=3)

    def in_work() -> list[Execution]:
        return [one for one in pipeline.executions() if one.key in held]

    def lapsed() -> bool:
        now, starts = time.time(), [one.started for one in in_work()]
        return len(starts) >= len(held) and max(starts) + HIDDEN_SECONDS < now

    woken = [key for some in keys.values() for key in some if key not in keys["plain"]]
    with pipeline.waking(woken):
        late = line.wait(lapsed, "they are in work, and their leases have ended", timeout=sizes.timeout)
        older = {one.name for one in in_work()}
        line.put_all(held)

        def stopped() -> bool:
            return all(one.status in OVER for one in in_work() if one.name in older)

        late += line.wait(stopped, "newer versions stop them", timeout=sizes.timeout)
        late += [f"{one.key} was not stopped" for one in in_work() if one.name in older and one.status != "STOPPED"]
        released.set()
        failed = "the execution failed"
        poison = dict.fromkeys(keys["refused"], "no invoice in it") | dict.fromkeys(keys["raising"], failed)
        # Lambda invokes a function again that died after its effect, and the invocation of a stopped execution runs on.
        repeats = len(keys["dies-after"]) + len(keys["stopped"])
        expected = Expected(poison=poison, letters=LETTERS, repeats=repeats, resumed=True)
        report = line.settled(PREFIX, expected, timeout=sizes.timeout)
    facts = Started(
        pipeline.executions(),
        images(line, pipeline.stream),
        {one.key: one.version for one in line.versions(PREFIX) if one.current},
        dict.fromkeys([*keys["failing"], *keys["stopped"]], 2) | dict.fromkeys(keys["raising"], ATTEMPTS),
        pipeline.name_of,
    )
    problems = [*late, *judge_executions(facts), *pipeline.wrong_outputs()]
    problems += [problem for one in outbreaks for problem in not_over(one)]
    faults = ", ".join(described(one) for one in outbreaks)
    died = sum(one.key.startswith(PREFIX) for one in world.downstream.killed)
    text = f"{counted(facts.executions)}, {died} invocations killed, {faults}"
    yield outcome("executions of a durable function", started, report, text, problems)


def _mood(pipeline: DurableLine, keys: Mapping[str, Sequence[str]], released: Event) -> Any:
    died = set[str]()

    def mood(delivery: Delivery) -> Reaction:
        kind, key, first = delivery.key.split("/")[1], delivery.key, delivery.attempt == 1
        if kind == "overwritten" and not released.is_set():
            return Reaction(202, taken=False)
        if kind.startswith("dies-") and key not in died:
            died.add(key)
            return Reaction(kill=True, taken=kind == "dies-after")
        if kind == "stopped" and first:
            pipeline.stop(delivery)
            return Reaction(seconds=STOPPED_SECONDS)
        if kind == "refused":
            return Reaction(422, "no invoice in it", taken=False)
        broken = kind == "raising" or (kind == "failing" and first)
        return Reaction(500, taken=False) if broken else TAKEN

    return mood
