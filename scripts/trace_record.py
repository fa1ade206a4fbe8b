"""Print the calls for the second record of each kind in the runtime, from the consumer's handler to the commit.

Run it from the root of the project: `python -m scripts.trace_record`. The code of the runtime is real, and AWS is in
memory. Calls of the testing kit and of libraries are left out, and so is what only the first record of an environment
needs. The totals show the length of the route that a reader follows.
"""

import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import intake_ledger
from cdk_intake_ledger.testing import LambdaContext, MemoryDynamoDB, events
from intake_ledger import ObjectChange
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import own_message
from intake_ledger.executions.state_machine import StateMachine
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.kinds.messages import Messages
from intake_ledger.kinds.objects import Objects
from intake_ledger.kinds.sets import Sets
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger, LedgerOptions
from intake_ledger.ledger.row_history import RowHistoryRecord
from intake_ledger.messages.settings import MessageSettings, MessageSourceType
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import ConsumerSettings, settings_from
from intake_ledger.protocol.settings_executions import ExecutionSettings
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners import Runner
from intake_ledger.runners.inline import Inline
from intake_ledger.runners.later import Later
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger.set_members.membership import Membership
from intake_ledger.sets.settings import SetSettings
from intake_ledger_testing.local_options import variables_of
from intake_ledger_testing.local_settings import BUCKET, START, TABLE
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL, MemorySQS
from intake_ledger_testing.memory_step_functions import MACHINE, MemoryStepFunctions
from intake_ledger_testing.outcome_counter import OutcomeCounter

RUNTIME = Path(intake_ledger.__file__).parent
OBJECTS, MESSAGES, SETS, EXECUTIONS = "objects", "messages", "sets", "objects, a state machine"
WORK = (OBJECTS, MESSAGES, SETS, EXECUTIONS)
"""The kinds with a function of the consumer's process, and objects with a state machine."""
_FORM = FormSettings(FormKind.MANIFEST, "*/manifest.json")
_NOW = int(START.timestamp() * 1000)
_LONG_MS = 3_600_000.0
"""The average time of a processor whose changes are claimed one by one."""


class Call(NamedTuple):
    """A call of a function of the runtime."""

    depth: int
    file: str
    function: str


class Route(NamedTuple):
    """The size of a route: its calls, the different functions and files, and the changes from one file to another."""

    calls: int
    functions: int
    files: int
    changes: int


def _clock() -> int:
    return _NOW


@dataclass
class Environment:
    """An execution environment with AWS in memory."""

    work: str
    verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    late_writes: int = 0
    removed_unprocessed: int = 0

    def __post_init__(self) -> None:
        self.s3 = MemoryS3(clock=_clock)
        self.dynamodb = cast("Any", MemoryDynamoDB())
        self.sqs = cast("Any", MemorySQS(clock=_clock, visibility_seconds=300))
        self.machine = MemoryStepFunctions(clock=_clock)
        self.consumer = self._consumer(self.work)
        self.parts = self._consumer(OBJECTS, "parts") if self.work == SETS else self.consumer

    def handle(self, number: int) -> None:
        """Handle one record, whose processor begins."""
        if self.work == MESSAGES:
            return self._deliver(self.consumer, json.dumps({"order": f"o-{number}", "event": "1"}))
        if self.work != SETS:
            return self._upload(self.consumer, f"{number}.csv", b"10 EUR")
        self._upload(self.parts, f"{number}/a.csv", b"10 EUR")
        self._upload(self.parts, f"{number}/manifest.json", json.dumps(["a.csv"]).encode())
        return self._deliver(self.consumer, own_message(Origin.PART, BUCKET, f"{number}/manifest.json"))

    def _upload(self, consumer: Consumer, key: str, content: bytes) -> None:
        version = self.s3.put(key, content)
        self._deliver(consumer, events.s3_notification(BUCKET, key, version_id=version.version_id, etag=version.etag))

    def _deliver(self, consumer: Consumer, body: str) -> None:
        self.sqs.send(body)
        [record] = self.sqs.receive(1, lambda visible: visible)
        answer = consumer.handle({"Records": [record]}, LambdaContext(120, clock=lambda: _NOW / 1000))
        # The message of an execution stays until its end.
        assert bool(answer["batchItemFailures"]) is (self.work == EXECUTIONS), answer
        self.sqs.delete([record["messageId"]])

    def _consumer(self, work: str, pipeline: str = "local") -> Consumer:
        ordering = Ordering.EVERY_VERSION if work == MESSAGES else Ordering.LATEST
        settings = settings_from(
            ConsumerSettings, variables_of({"max_wait": 86_400}, ordering=ordering, pipeline=pipeline)
        )
        table, bucket = LedgerTable(self.dynamodb, TABLE), Bucket(lambda: cast("Any", self.s3), BUCKET)
        policy = replace(Policy.of(settings), executions=work == EXECUTIONS)
        rules = LedgerOptions(pipeline, ordering, policy, 0)
        kind: Messages | Sets | Objects
        if work == MESSAGES:
            lock = KeyLock(table, pipeline, rules.retention, clock=_clock)
            kind = Messages(MessageSettings(settings, MessageSourceType.SQS, "order", "event"), lock)
        elif work == SETS:
            members = Membership(self.dynamodb, TABLE, BUCKET)
            parts = replace(settings, pipeline="parts")
            kind = Sets(SetSettings(settings, _FORM, parts), table, bucket, members, _clock)
        else:
            kind = Objects(settings, bucket)
        ledger = Ledger(
            table,
            kind.look,
            rules,
            clock=_clock,
            new_owner=lambda: "worker",
            row_history=RowHistoryRecord(settings, table, _clock),
            guards=kind.guards,
        )
        queues = Queues(lambda: self.sqs, QUEUE_URL, DEAD_LETTER_URL)
        services = Services(settings, ledger, bucket, queues, OutcomeCounter(self), _clock, lambda: 0.5)
        runner = self._runner(services) if work == EXECUTIONS else Inline(process)
        return Consumer(services, kind, runner, processing_time=ProcessingTime(_LONG_MS))

    def _runner(self, services: Services) -> Runner:
        return Later(services, StateMachine(lambda: cast("Any", self.machine), ExecutionSettings(MACHINE, 3600, 3600)))


def process(given: Any) -> str:
    """Read the object, if it is one, and name the effect."""
    if isinstance(given, ObjectChange):
        with given.open() as stream:
            stream.read()
    return str(given.key)


def trace(work: str = OBJECTS) -> list[Call]:
    """Process a record, and return the calls for the one after it in order."""
    environment = Environment(work)
    environment.handle(1)
    calls = recorded(lambda: environment.handle(2))
    assert set(environment.outcomes) == {"Started" if work == EXECUTIONS else "Committed"}, work
    return calls


def recorded(act: Callable[[], None]) -> list[Call]:
    """Return the runtime's calls for the last record that is handled."""
    calls: list[Call] = []
    depth = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        path = Path(frame.f_code.co_filename)
        name = frame.f_code.co_qualname
        # The telemetry is the kit's, and leaves what it does not count to its base, which does nothing.
        if RUNTIME not in path.parents or "<" in name or name.startswith("Telemetry."):
            return
        if event == "call" and (depth or name == "Consumer.handle"):
            if not depth:
                calls.clear()
            calls.append(Call(depth, str(path.relative_to(RUNTIME)), name))
            depth += 1
        elif event == "return" and depth:
            depth -= 1

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def route(calls: list[Call]) -> Route:
    """Count the calls, functions, files and changes of file."""
    files = [call.file for call in calls]
    changes = sum(file != before for before, file in itertools.pairwise([None, *files]))
    return Route(len(calls), len({(call.file, call.function) for call in calls}), len(set(files)), changes)


def main() -> None:
    """Print the calls and the totals."""
    for work in WORK:
        calls = trace(work)
        print(f"\n{work}")
        for call in calls:
            print(f"{'  ' * call.depth}{call.file}  {call.function}")
        size = route(calls)
        print(f"{size.calls} calls of {size.functions} functions in {size.files} files, {size.changes} changes of file")


if __name__ == "__main__":
    main()
