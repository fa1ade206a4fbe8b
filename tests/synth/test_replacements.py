"""The table of changes that replace a bucket, a table or a queue, compared with the templates before and after."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aws_cdk import App, Duration, RemovalPolicy, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]
from constructs import Construct

from cdk_intake_ledger import (
    AuditOptions,
    ConcurrencyOptions,
    Delivery,
    FileSets,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MessageIntake,
    MessageSource,
    Ordering,
    RetryOptions,
    SetForm,
)
from tests.synth.build import Json, new_app, new_stack, processor, resources, template_of
from tests.synth.message_stack import record_stream

pytestmark = pytest.mark.thorough

PAGE = Path(__file__).parents[2] / "docs" / "template.md"
TYPES = {"bucket": "AWS::S3::Bucket", "table": "AWS::DynamoDB::Table", "queues": "AWS::SQS::Queue"}
Make = Callable[[Stack], object]


def pipeline(id_: str = "Orders", within: str = "", **options: Any) -> Make:
    """A pipeline. An option that is a function makes its value in the stack."""

    def make(stack: Stack) -> IntakePipeline:
        scope = Construct(stack, within) if within else stack
        made = {key: value(stack) if callable(value) else value for key, value in options.items()}
        return IntakePipeline(scope, id_, **({"processor": processor()} | made))

    return make


def intake(source: Callable[[Stack], MessageSource], id_: str = "Orders", **options: Any) -> Make:
    return lambda stack: MessageIntake(
        stack, id_, source=source(stack), key="k", identity="i", processor=processor(), **options
    )


def sets(form: SetForm, id_: str = "Loads", **options: Any) -> Make:
    def make(stack: Stack) -> FileSets:
        parts = IntakePipeline(stack, "Orders", processor=processor())
        return FileSets(stack, id_, pipeline=parts, form=form, processor=processor(), **options)

    return make


def elsewhere(stack: Stack) -> object:
    app = stack.node.root
    assert isinstance(app, App)
    return pipeline(name="orders")(Stack(app, "Other"))


def own_bucket(stack: Stack) -> s3.IBucket:
    return s3.Bucket.from_bucket_name(stack, "Theirs", "theirs")


def ledger(id: str = "Ledger", **options: Any) -> Callable[[Stack], IntakeLedger]:
    return lambda stack: IntakeLedger(stack, id, **options)


def queue(id: str = "Queue", **options: Any) -> Callable[[Stack], IntakeQueue]:
    return lambda stack: IntakeQueue(stack, id, **options)


def sqs(_: Stack) -> MessageSource:
    return MessageSource.sqs()


def fifo(_: Stack) -> MessageSource:
    return MessageSource.fifo()


def kinesis(stack: Stack) -> MessageSource:
    return MessageSource.kinesis(record_stream(stack))


def named(name: str) -> Make:
    return pipeline(bucket_props=s3.BucketProps(bucket_name=name))


MARKER, MANIFEST = SetForm.marker("in/*/_SUCCESS"), SetForm.manifest("in/*/manifest.json")
QUIET: dict[str, Any] = {
    "ordering": Ordering.EVERY_VERSION,
    "deletes": True,
    "delivery": Delivery.EVENTBRIDGE,
    "filters": [s3.NotificationKeyFilter(prefix="in/")],
    "processing_timeout": Duration.minutes(5),
    "retry": RetryOptions(max_attempts=5),
    "concurrency": ConcurrencyOptions(batch_size=5),
    "audit": AuditOptions(settle_time=Duration.hours(2)),
    "removal_policy": RemovalPolicy.DESTROY,
    "encryption_key": lambda stack: kms.Key(stack, "Key"),
}
"""Options that change resources in place."""

PLAIN, NAMED = pipeline(), pipeline(name="orders")
LEDGER, NAMED_LEDGER = pipeline(ledger=ledger()), pipeline(ledger=ledger(ledger_name="rows"))
QUEUE, SQS, FIFO = pipeline(queue=queue()), intake(sqs), intake(fifo)
BUCKET, SETS = pipeline(bucket=own_bucket), sets(MARKER)

ROWS: dict[str, list[tuple[Make, Make]]] = {
    "`id` or the place in the construct tree, without a `name`": [
        (PLAIN, pipeline("Invoices")),
        (PLAIN, pipeline(within="Part")),
    ],
    "`id` or the place in the stack, with the same `name`": [
        (NAMED, pipeline("Invoices", name="orders")),
        (NAMED, pipeline(within="Part", name="orders")),
    ],
    "`name` is added, changed or removed": [
        (PLAIN, NAMED),
        (NAMED, pipeline(name="invoices")),
        (NAMED, PLAIN),
    ],
    "another stack, also with a `name`": [(NAMED, elsewhere)],
    "`bucket` is added or removed": [
        (PLAIN, BUCKET),
        (BUCKET, PLAIN),
    ],
    "`bucket_props` with another `bucket_name`": [(PLAIN, named("a-name")), (named("a-name"), named("b-name"))],
    "`ledger` is added or removed": [(PLAIN, LEDGER), (LEDGER, PLAIN)],
    "`id`, place or `ledger_name` of the `IntakeLedger`": [
        (LEDGER, pipeline(ledger=ledger("Rows"))),
        (LEDGER, NAMED_LEDGER),
    ],
    "`id` or place of the `IntakeLedger`, with the same `ledger_name`": [
        (NAMED_LEDGER, pipeline(ledger=ledger("Rows", ledger_name="rows")))
    ],
    "`queue` is added or removed": [(PLAIN, QUEUE), (QUEUE, PLAIN)],
    "`id` or place of the `IntakeQueue`, without a `name`": [(QUEUE, pipeline(queue=queue("Jobs")))],
    "`MessageSource.sqs()` becomes `fifo()`, or back": [(SQS, FIFO), (FIFO, SQS)],
    "`MessageSource.sqs()`, `kinesis()`, `dynamodb()` or `event_bridge()` becomes another of them": [
        (SQS, intake(kinesis)),
        (intake(kinesis), SQS),
    ],
    "`name` of a `MessageIntake`, or its `id` without one": [
        (SQS, intake(sqs, name="orders")),
        (SQS, intake(sqs, "Invoices")),
    ],
    "`name` of `FileSets`, or its `id` without one": [
        (SETS, sets(MARKER, name="loads")),
        (SETS, sets(MARKER, "Exports")),
    ],
    "`form` of `FileSets`": [(SETS, sets(MANIFEST))],
    "all other options": [
        (PLAIN, pipeline(**QUIET)),
        (LEDGER, pipeline(ledger=ledger(retention=Duration.days(90)))),
        (QUEUE, pipeline(queue=queue(retention=Duration.days(5)))),
        (PLAIN, pipeline(bucket_props=s3.BucketProps(event_bridge_enabled=True))),
    ],
}
"""The changes of each row of the page: the stack before, and the stack after."""


class Resource(NamedTuple):
    """A resource as far as CloudFormation replaces it by another."""

    id: str
    fixed: str
    """The properties that it cannot change in place."""


@cache
def create_only(type_: str) -> list[str]:
    schema: Mapping[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema("eu-central-1", type_).schema
    paths = [*schema.get("createOnlyProperties", ()), *schema.get("conditionalCreateOnlyProperties", ())]
    return [path.removeprefix("/properties/") for path in paths]


@cache
def stateful(make: Make) -> dict[str, set[Resource]]:
    stack = new_stack(app=new_app())
    make(stack)
    template: Json = template_of(stack)
    return {
        name: {
            Resource(key, str([resource.get("Properties", {}).get(one) for one in create_only(type_)]))
            for key, resource in (resources(template, type_).items() if "Resources" in template else ())
        }
        for name, type_ in TYPES.items()
    }


def documented() -> dict[str, dict[str, str]]:
    lines = re.findall(r"^\| (.+?) \| (kept|new|—) \| (kept|new|—) \| (kept|new) \|$", PAGE.read_text(), re.MULTILINE)
    return {change: dict(zip(TYPES, cells, strict=True)) for change, *cells in lines}


@pytest.mark.failure_mode("F314")
@pytest.mark.parametrize("change", ROWS)
def test_the_page_says_which_change_replaces_a_resource(change: str) -> None:
    """CloudFormation makes a new, empty resource for another logical ID, or another value of a fixed property."""
    told = documented()[change]
    for before, after in ROWS[change]:
        old, new = stateful(before), stateful(after)
        found = {
            name: "—" if not old[name] | new[name] else "kept" if old[name] == new[name] else "new" for name in TYPES
        }
        assert found == told


def test_the_page_has_each_row() -> None:
    assert list(documented()) == list(ROWS)


def test_a_fixed_property_is_seen() -> None:
    """The schemas of CloudFormation are those of cfn-lint."""
    assert {"BucketName", "TableName", "KeySchema", "FifoQueue", "QueueName"} <= {
        name for type_ in TYPES.values() for name in create_only(type_)
    }
