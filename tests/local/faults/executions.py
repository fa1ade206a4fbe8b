"""The fault run of executions: a state machine is the processor."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Self

from boto3.dynamodb.types import TypeDeserializer

from tests.local.faults.downstream import TAKEN, Delivery, Reaction
from tests.local.faults.execution_judge import OVER, Execution, Image, Started, counted, judge_executions
from tests.local.faults.execution_stack import ATTEMPTS, NAME
from tests.local.faults.judge import Expected
from tests.local.faults.moods import mixed
from tests.local.faults.outbreaks import TABLE, described, not_over
from tests.local.faults.outcomes import Outcome, outcome
from tests.local.faults.proxy import Fault, Outbreak, Trouble
from tests.local.faults.sizes import Sizes
from tests.local.faults.world import Line, Sources

PREFIX = "executions/"
HIDDEN_SECONDS = 17
"""For how long a queue hides the message of a worker that died. The lease is a little shorter."""
HELD_SECONDS = 800
"""The time after which the downstream answers anyway. The limit of the task is a little longer."""
LETTERS = 2
"""An event and a poll may see one end, and both send the dead letter before one of them writes the row (F186)."""
_read = TypeDeserializer().deserialize


@dataclass(frozen=True)
class Machine:
    """The deployed state machine, with its pipeline."""

    line: Line
    arn: str
    rule: str
    stream: str

    @classmethod
    def of(cls, world: Sources, outputs: Mapping[str, str]) -> Self:
        """Read the names from the stack's outputs."""
        line = Line.of(world, outputs, NAME)
        return cls(line, outputs[f"{NAME}Machine"], outputs[f"{NAME}Rule"], outputs[f"{NAME}Stream"])

    @property
    def name(self) -> str:
        """A part of each request to Step Functions."""
        return self.arn.rpartition(":")[2]

    def lie(self, execution: Execution, given: str) -> None:
        """Send the events of an end that did not happen, one for each status."""
        for status in ("SUCCEEDED", "FAILED"):
            detail = {"name": execution.name, "status": status, "input": given, "output": '{"commit": "a lie"}'}
            body = {
                "source": "aws.states",
                "detail-type": "Step Functions Execution Status Change",
                "detail": detail | {"stateMachineArn": self.arn, "redriveCount": 0},
            }
            self.line.aws.client("sqs").send_message(QueueUrl=self.line.queue, MessageBody=json.dumps(body))

    def drop_events(self) -> None:
        """Let no event of an execution arrive."""
        self.line.aws.client("events").disable_rule(Name=self.rule)

    def send_events(self) -> None:
        """Let the events of executions arrive."""
        self.line.aws.client("events").enable_rule(Name=self.rule)

    def executions(self) -> list[tuple[Execution, str]]:
        """Describe the executions. Returns each with its input."""
        states = self.line.aws.client("stepfunctions")
        pages = states.get_paginator("list_executions").paginate(stateMachineArn=self.arn)
        return [
            _execution(states.describe_execution(executionArn=one["executionArn"]))
            for page in pages
            for one in page["executions"]
        ]


def images(line: Line, stream: str) -> list[Image]:
    """Return what each change of a row left in the stream of the table, in order."""
    streams = line.aws.client("dynamodbstreams")
    shards = streams.describe_stream(StreamArn=stream)["StreamDescription"]["Shards"]
    found = []
    for shard in shards:
        at = streams.get_shard_iterator(StreamArn=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")[
            "ShardIterator"
        ]
        while at and (page := streams.get_records(ShardIterator=at))["Records"]:
            found += [one["dynamodb"]["NewImage"] for one in page["Records"] if "NewImage" in one["dynamodb"]]
            at = page.get("NextShardIterator")
    rows = [{name: _read(value) for name, value in item.items()} for item in found]
    return [_image(row) for row in rows if row["pk"].startswith(f"{line.bucket}/") and "fence" in row]


def _execution(answer: Mapping[str, Any]) -> tuple[Execution, str]:
    given = json.loads(answer["input"])
    output = json.loads(answer.get("output") or "null")
    execution = Execution(
        name=answer["name"],
        key=given["key"],
        version=given["versionId"],
        attempt=given["attempt"],
        fence=int(given["fenceText"]),
        status=answer["status"],
        started=answer["startDate"].timestamp(),
        stopped=answer["stopDate"].timestamp() if answer.get("stopDate") else 0,
        commit=(output or {}).get("commit", ""),
    )
    return execution, answer["input"]


def _image(row: Mapping[str, Any]) -> Image:
    return Image(
        pk=row["pk"],
        sk=row["sk"],
        status=row["status"],
        version=row.get("version_id", ""),
        fence=int(row["fence"]),
        attempt=int(row.get("attempts", 1)),
        commit=row.get("commit_id", ""),
    )


def executions(world: Sources, outputs: Mapping[str, str], sizes: Sizes) -> Iterator[Outcome]:
    """Executions with overwrites, copies, failures and poison. Workers die, requests fail, and events are dropped."""
    started, machine, released = time.monotonic(), Machine.of(world, outputs), Event()
    line = machine.line
    line.hide_for(HIDDEN_SECONDS)
    kinds = ("plain", "copied", "overwritten", "silent", "failing", "refused", "raising")
    dying = ("before-start", "after-start", "before-commit", "after-commit")
    number, deaths = sizes.executions, max(1, sizes.executions // 2)
    keys = {kind: [f"{PREFIX}{kind}/{n}" for n in range(number)] for kind in (*kinds, "table", "states")}
    keys |= {kind: [f"{PREFIX}{kind}/{n}" for n in range(deaths)] for kind in dying}
    held = [*keys["overwritten"], *keys["silent"]]
    world.downstream.moods[NAME.lower()] = _mood(keys, held, released)
    outbreaks = break_out(
        world, PREFIX, machine.name, number, start="StartExecution", ask="DescribeExecution", service="states"
    )

    for key in [*held, *mixed(*(some for kind, some in keys.items() if kind not in ("overwritten", "silent")))]:
        version = line.put(key)
        if key in keys["copied"]:
            line.announce(key, version, copies=3)

    def in_work() -> list[tuple[Execution, str]]:
        return [one for one in machine.executions() if one[0].key in held]

    def lapsed() -> bool:
        now, starts = time.time(), [one.started for one, _ in in_work()]
        return len(starts) >= len(held) and max(starts) + HIDDEN_SECONDS < now

    late = line.wait(lapsed, "they are in work, and their leases have ended", timeout=sizes.timeout)
    line.put_all(keys["overwritten"])
    before = {one: world.proxy.requests(one.name)["DescribeExecution"] for one, _ in in_work()}
    for execution, given in in_work():
        machine.lie(execution, given)

    def asked() -> bool:
        now = [world.proxy.requests(one.name)["DescribeExecution"] > number for one, number in before.items()]
        return all(now) or len(in_work()) > len(before)

    late += line.wait(asked, "the consumer asks how they stand", timeout=sizes.timeout)
    late += [f"{one.key} was not held" for one, _ in in_work() if one.status in OVER]
    # The next executions end without an event.
    machine.drop_events()
    released.set()
    late += line.wait(
        lambda: all(one.status in OVER for one, _ in in_work()), "the silent ones have ended", timeout=sizes.timeout
    )
    machine.send_events()

    poison = dict.fromkeys(keys["refused"], "no invoice in it") | dict.fromkeys(keys["raising"], "the execution failed")
    report = line.settled(PREFIX, Expected(poison=poison, letters=LETTERS), timeout=sizes.timeout)
    facts = Started(
        [one for one, _ in machine.executions()],
        images(line, machine.stream),
        {one.key: one.version for one in line.versions(PREFIX) if one.current},
        dict.fromkeys(keys["failing"], 2) | dict.fromkeys(keys["raising"], ATTEMPTS),
    )
    problems = [*late, *judge_executions(facts), *(problem for one in outbreaks for problem in not_over(one))]
    faults = ", ".join(described(one) for one in outbreaks)
    text = f"{counted(facts.executions)}, {len(held)} ends without an event, {2 * len(held)} false events, {faults}"
    yield outcome("executions of a state machine", started, report, text, problems)


def _mood(keys: Mapping[str, Sequence[str]], held: Sequence[str], released: Event) -> Any:
    def mood(delivery: Delivery) -> Reaction:
        if delivery.key in held:
            released.wait(HELD_SECONDS)
        if delivery.key in keys["refused"]:
            return Reaction(422, "no invoice in it", taken=False)
        broken = delivery.key in keys["raising"] or (delivery.key in keys["failing"] and delivery.attempt == 1)
        return Reaction(500, taken=False) if broken else TAKEN

    return mood


def break_out(
    world: Sources,
    prefix: str,
    place: str,
    number: int,
    *,
    start: str,
    ask: str,
    service: str,
    more: Sequence[str] = (),
) -> list[Outbreak]:
    """Kill workers at the start and at the commit, and let requests to DynamoDB and about executions fail.

    Args:
        world: of the run.
        prefix: of the keys.
        place: the state machine or function, which requests about executions name.
        number: of the faults of each kind. Half as many workers die.
        start: the request that starts an execution.
        ask: the request that asks about one.
        service: the kind of the keys whose starts fail.
        more: further kinds of keys whose worker dies after the start.

    """

    def of(kind: str, *faults: Fault) -> Outbreak:
        return world.proxy.break_out(f"{prefix}{kind}/", *faults)

    deaths, commit = max(1, number // 2), ("UpdateItem",)
    starts, asked = (start,), (start, ask)
    return [
        of("before-start", Fault(Trouble.KILLED, deaths, starts)),
        *(of(kind, Fault(Trouble.KILLED_AFTER, deaths, starts)) for kind in ("after-start", *more)),
        of("before-commit", Fault(Trouble.KILLED, deaths, commit, says="PROCESSED")),
        of("after-commit", Fault(Trouble.KILLED_AFTER, deaths, commit, says="PROCESSED")),
        of(
            "table",
            Fault(Trouble.ANSWER_LOST, 1, ("PutItem", "BatchExecuteStatement")),
            Fault(Trouble.THROTTLED, 2 * number, TABLE),
            Fault(Trouble.INTERNAL_ERROR, number, TABLE),
            Fault(Trouble.CUT, number, TABLE),
            Fault(Trouble.ANSWER_LOST, number, ("UpdateItem",)),
        ),
        of(service, Fault(Trouble.THROTTLED, 5, starts), Fault(Trouble.ANSWER_LOST, 1, starts)),
        world.proxy.break_out(
            place,
            Fault(Trouble.THROTTLED, 2 * number, asked),
            Fault(Trouble.INTERNAL_ERROR, number, asked),
            Fault(Trouble.CUT, number, asked),
            Fault(Trouble.ANSWER_LOST, number, asked),
        ),
    ]
