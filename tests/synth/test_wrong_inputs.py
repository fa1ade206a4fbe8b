"""Inputs of the right type that are wrong, or look so: `wrong_inputs.txt` has them below their answers."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnParameter, Duration, Size, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_kinesis as kinesis
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs

import cdk_intake_ledger
from cdk_intake_ledger import (
    FileSets,
    IntakeConfigurationError,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MessageIntake,
    MessageSource,
    Processor,
    SetForm,
)
from tests.synth.build import new_app, new_stack, rules_in, template_of, warnings

pytestmark = pytest.mark.thorough

TABLE = (Path(__file__).parent / "wrong_inputs.txt").read_text(encoding="utf-8")
CASES = [
    (call, answer, told)
    for answer, told, calls in re.findall(r"^(\w[\w ]*): (.+)\n((?:    .+\n)+)", TABLE, re.MULTILINE)
    for call in map(str.strip, calls.splitlines())
]
"""Each case: the input, the answer, and the rules or the reason."""
ARN = "arn:aws:sqs:eu-central-1:111122223333:{}"
VIEWS = dynamodb.StreamViewType


class Inputs:
    """The names that the table uses. Each construct has its own ID."""

    def __init__(self, stack: Stack, folder: Path, numbers: "count[int]") -> None:
        """Use a stack for all constructs. `numbers` are for IDs, and for names of imported resources."""
        self._stack, self._folder, self._numbers = stack, folder, numbers

    def id(self, beginning: str) -> str:
        return f"{beginning}{next(self._numbers)}"

    def processor(self, source: str = "def process(change): ...", imports: str = "", **options: Any) -> Processor:
        path = self._folder / self.id("processor")
        path.mkdir()
        imported = f"from intake_ledger import {imports}\n" if imports else ""
        (path / "orders.py").write_text(f"{imported}{source}\n", encoding="utf-8")
        return Processor.from_asset(str(path), **({"entrypoint": "orders:process"} | options))

    def pipeline(self, **options: Any) -> IntakePipeline:
        return IntakePipeline(self._stack, self.id("Pipe"), **({"processor": self.processor()} | options))

    def intake(self, source: MessageSource | Callable[[], MessageSource], **options: Any) -> MessageIntake:
        made = source if isinstance(source, MessageSource) else source()
        given = {"processor": self.processor()} | options
        return MessageIntake(self._stack, self.id("Intake"), source=made, **given)

    def sets(self, form: SetForm, filters: Any = None, **options: Any) -> FileSets:
        parts = self.pipeline(filters=filters, deletes=True)
        given = {"processor": self.processor()} | options
        return FileSets(self._stack, self.id("Sets"), pipeline=parts, form=form, **given)

    def output(self, *, own_bucket: bool, prefix: str, **options: Any) -> None:
        pipeline = self.pipeline(**options)
        pipeline.grant_output(pipeline.bucket if own_bucket else self.bucket(), prefix)

    def bucket(self, *, versioned: bool = True, **options: Any) -> s3.Bucket:
        return s3.Bucket(self._stack, self.id("Bucket"), versioned=versioned, **options)

    def imported_bucket(self) -> s3.IBucket:
        name = self.id("theirs")
        return s3.Bucket.from_bucket_name(self._stack, name, name)

    def stream(self) -> kinesis.Stream:
        return kinesis.Stream(self._stack, self.id("Stream"))

    def table(self, view: dynamodb.StreamViewType = VIEWS.NEW_AND_OLD_IMAGES) -> Callable[[], MessageSource]:
        key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        return lambda: MessageSource.dynamodb(
            dynamodb.Table(self._stack, self.id("Table"), partition_key=key, stream=view)
        )

    def dead_letters(self, _: str = "") -> sqs.Queue:
        return sqs.Queue(self._stack, self.id("Dead"), retention_period=Duration.days(14))

    def plain(self) -> sqs.Queue:
        return sqs.Queue(self._stack, self.id("Own"), visibility_timeout=Duration.hours(1))

    def redriving(self, _: str = "") -> sqs.Queue:
        policy = sqs.DeadLetterQueue(queue=self.dead_letters(), max_receive_count=1_000)
        options: dict[str, Any] = {"visibility_timeout": Duration.hours(1), "dead_letter_queue": policy}
        return sqs.Queue(self._stack, self.id("Own"), **options)

    def queue(self, **options: Any) -> IntakeQueue:
        return IntakeQueue(self._stack, self.id("Queue"), **options)

    def imported_queue(self) -> IntakeQueue:
        live, dead = (
            sqs.Queue.from_queue_arn(self._stack, name, ARN.format(name)) for name in (self.id("live"), self.id("dead"))
        )
        return self.queue(queue=live, dead_letter_queue=dead, visibility_timeout=Duration.hours(1))

    def names(self) -> Mapping[str, Any]:
        """The names in the table."""
        return {name: getattr(cdk_intake_ledger, name) for name in cdk_intake_ledger.__all__} | {
            "Pipe": self.pipeline,
            "Intake": self.intake,
            "Sets": self.sets,
            "Out": self.output,
            "Queue": self.queue,
            "Ledger": lambda **options: IntakeLedger(self._stack, self.id("Ledger"), **options),
            "of": self.processor,
            "at": lambda entrypoint: self.processor(entrypoint=entrypoint),
            "env": lambda environment: self.processor(environment=environment),
            "sqs": MessageSource.sqs,
            "kinesis": lambda: MessageSource.kinesis(self.stream()),
            "bus": lambda: MessageSource.event_bridge(events.EventPattern(source=["shop"])),
            "table": self.table(),
            "keys_only": self.table(VIEWS.KEYS_ONLY),
            "old_image": self.table(VIEWS.OLD_IMAGE),
            "new_image": self.table(VIEWS.NEW_IMAGE),
            "stream": self.stream,
            "marker": SetForm.marker,
            "manifest": SetForm.manifest,
            "quiet": SetForm.quiet_prefix,
            "queue": self.dead_letters,
            "plain": self.plain,
            "redriving": self.redriving,
            "own_queue": lambda: self.queue(queue=self.redriving()),
            "imported_queue": self.imported_queue,
            "bucket": self.bucket,
            "imported_bucket": self.imported_bucket,
            "F": s3.NotificationKeyFilter,
            "s3": s3,
            "BucketProps": s3.BucketProps,
            "Duration": Duration,
            "Size": Size,
            "nan": float("nan"),
            "inf": float("inf"),
            # Made at their first use, so that most stacks do not have them.
            "other": _Late(self.bucket),
            "num": _Late(lambda: CfnParameter(self._stack, self.id("Number"), type="Number").value_as_number),
            "text": _Late(lambda: CfnParameter(self._stack, self.id("Text")).value_as_string),
        }


class _Late:
    """A value that is made when the table uses it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class _Names(dict[str, Any]):
    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return value.make() if isinstance(value, _Late) else value


def give(call: str, inputs: Inputs) -> None:
    eval(call, {}, _Names(inputs.names()))


@pytest.fixture(scope="module")
def numbers() -> "count[int]":
    return count(1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, numbers: "count[int]") -> Inputs:
    """The stack of all inputs that a constructor refuses."""
    return Inputs(new_stack(), tmp_path_factory.mktemp("refused"), numbers)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory, numbers: "count[int]") -> dict[str, list[str]]:
    """The rules that warn about each input that synthesis takes, by the input. All are in one app.

    Each stream is warned about long records, whatever the input is.
    """
    app: App = new_app()
    folder, stacks = tmp_path_factory.mktemp("accepted"), dict[str, Stack]()
    for call, answer, _ in CASES:
        if answer in ("warned", "right"):
            stacks[call] = Stack(app, f"Stack{next(numbers)}")
            give(call, Inputs(stacks[call], folder, numbers))
    app.synth()
    rules = {call: [rule for text in warnings(stack) for rule in rules_in(text)] for call, stack in stacks.items()}
    return {call: [rule for rule in found if rule != "message-record-too-long"] for call, found in rules.items()}


@pytest.mark.parametrize(("call", "answer", "told"), CASES, ids=[case[0] for case in CASES])
def test_each_input_has_its_answer(
    call: str, answer: str, told: str, shared: Inputs, accepted: dict[str, list[str]], tmp_path: Path
) -> None:
    match answer:
        case "refused":
            with pytest.raises(IntakeConfigurationError) as refusal:
                give(call, shared)
            assert list(dict.fromkeys(rules_in(str(refusal.value)))) == told.split()
            assert not re.search(r"Token\[|e\+2\d\d|\bnan\b", str(refusal.value)) or "nan" in call or "text" in call
        case "refused at synthesis":
            stack = new_stack()
            give(call, Inputs(stack, tmp_path, count(1)))
            with pytest.raises(RuntimeError) as error:
                template_of(stack)
            assert list(dict.fromkeys(rules_in(str(error.value)))) == told.split()
        case "warned":
            assert sorted(set(accepted[call])) == sorted(told.split())
        case "right":
            assert accepted[call] == []
        case _:
            pytest.fail(f"no such answer: {answer}")


def test_the_table_is_whole() -> None:
    """With `wrong_arguments.txt`, it has twice the inputs with which the list of rules was tried (195)."""
    calls = [call for call, _, _ in CASES]
    assert len(calls) == len(set(calls))
    assert TABLE.count("\n    ") == len(calls) >= 250
    answers = Counter(answer for _, answer, _ in CASES)
    assert answers["right"] < len(calls) / 5
