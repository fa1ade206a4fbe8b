"""Read a row of a later release without a crash, leave it alone and count it.

After a rollback, the rows of the later release are still there. Hypothesis builds them: a later format, an unknown
status or kind, attributes of another type, unknown attributes.
"""

import copy
import json
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.audit.report import report_of
from intake_ledger.consumer.consumer import MAX_LATER_FORMAT_SECONDS, later_format_seconds
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import (
    FORMAT,
    STORED_STATUSES,
    Ordering,
    Row,
    RowKey,
    Status,
    from_dynamodb,
    row_attributes,
    row_from_attributes,
    to_dynamodb,
)
from intake_ledger.protocol.verdict import Verdict
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.s3_listing import ListedVersion
from intake_ledger_cli.read import inspection, listing
from intake_ledger_cli.show import json_output
from intake_ledger_cli.show.console import console
from intake_ledger_testing.dynamodb_expressions import Item
from tests.alarms import points_of
from tests.settings import examples
from tests.unit.audit.support import AuditWorld
from tests.unit.command.test_formatting import DEPLOYED
from tests.unit.consumer.test_consumer import Bench, FakeTelemetry, message
from tests.unit.support import (
    DAY,
    HOUR,
    KEY,
    PIPELINE,
    START,
    Clock,
    FakeS3,
    Wire,
    World,
    created,
    notification,
    record,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NUMBERS = st.one_of(st.integers(-(10**20), 10**20).map(str), st.sampled_from(["1.5", "-0", "1E+3", "9.99E-130"]))
TYPED = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"S": st.text()}),
        st.fixed_dictionaries({"N": NUMBERS}),
        st.fixed_dictionaries({"B": st.binary()}),
        st.fixed_dictionaries({"BOOL": st.booleans()}),
        st.just({"NULL": True}),
        st.fixed_dictionaries({"SS": st.lists(st.text(min_size=1), min_size=1, max_size=3)}),
        st.fixed_dictionaries({"NS": st.lists(NUMBERS, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"BS": st.lists(st.binary(), min_size=1, max_size=3)}),
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"L": st.lists(inner, max_size=2)}),
        st.fixed_dictionaries({"M": st.dictionaries(st.text(), inner, max_size=2)}),
    ),
    max_leaves=3,
)
"""An attribute value of any type that DynamoDB has."""
OTHERS = st.dictionaries(st.from_regex(r"\Atomorrow_[a-z]{1,8}\Z"), TYPED, max_size=3)
UNKNOWN = st.text(min_size=1).filter(lambda text: text not in STORED_STATUSES and text not in StateKind)
FIELDS = sorted(set(row_attributes(Row(Status.FAILED, 1, reason="x", retry_at=1, lease_until=1))) - {"format"})


@st.composite
def later(draw: st.DrawFn) -> Item:
    """Attributes that replace those of a row: at least one is nothing that this release writes."""
    name = draw(st.sampled_from(FIELDS))
    number = isinstance(row_attributes(Row(Status.FAILED, 1, reason="x", retry_at=1, lease_until=1))[name], int)
    changes: Item = draw(
        st.one_of(
            st.integers(FORMAT + 1, 10**6).map(lambda found: {"format": {"N": str(found)}}),
            st.sampled_from([{"format": {"S": "2"}}, {"format": {"N": "1.5"}}, {"format": {"NULL": True}}]),
            st.fixed_dictionaries({"status": st.fixed_dictionaries({"S": UNKNOWN})}),
            st.just({"status": {"S": Status.LATER_FORMAT.value}}),
            st.fixed_dictionaries({"kind": st.fixed_dictionaries({"S": UNKNOWN})}),
            TYPED.filter(lambda typed: not isinstance(from_dynamodb({"x": typed})["x"], int if number else str)).map(
                lambda typed: {name: typed}
            ),
        )
    )
    return {**draw(OTHERS), **changes}


def stored(key: RowKey, row: Row, changes: Item) -> Item:
    return to_dynamodb({"pk": key.pk, "sk": key.sk, **row_attributes(row)}) | changes


def world(ordering: Ordering) -> tuple[World, MemoryDynamoDB]:
    store, clock = MemoryDynamoDB(), Clock()
    wire = Wire(cast("DynamoDBClient", store))
    table = LedgerTable(cast("DynamoDBClient", wire), "ledger")
    return World(clock, FakeS3(clock), wire, table, "ledger", ordering), store


ROWS = st.builds(
    Row,
    st.sampled_from(STORED_STATUSES),
    st.integers(0, START),
    late_writes=st.sampled_from([frozenset[str](), frozenset({"v#v1"}), frozenset({"v#v2"})]),
    version_id=st.sampled_from(["v1", "v2"]),
    attempts=st.integers(1, 9),
    lease_until=st.none() | st.sampled_from([START - DAY, START + DAY]),
    lease_owner=st.none() | st.just("owner-1"),
    committed_state=st.none() | st.just("v#v1"),
    reason=st.none() | st.just("ValueError at invoices:1"),
    retry_at=st.none() | st.just(START - DAY),
    rejected_fence=st.just(7),
    updated_at=st.just(START - 2 * HOUR),
    needs_review=st.just(f"{PIPELINE}#0"),
)


@pytest.mark.failure_mode("F113")
@pytest.mark.parametrize("ordering", Ordering)
@settings(max_examples=examples(50))
@given(row=ROWS, changes=later(), redriven=st.booleans())
def test_the_consumer_leaves_it_alone(ordering: Ordering, row: Row, changes: Item, redriven: bool) -> None:
    """Every message goes back for long; nothing is written, processed or dead-lettered."""
    made, store = world(ordering)
    bench = Bench(made)
    state = made.s3.put(KEY, "1")
    key = made.key(created(state))
    store.items[key.pk, key.sk] = stored(key, row, changes)
    before = copy.deepcopy(store.items)
    body = notification(record(KEY, state, at=START))
    fence = 7 if redriven else None
    assert bench.handle(message(body, "a", rejected_fence=fence), message(body, "b", receives=4)) == ["a", "b"]
    assert store.items == before
    assert (bench.seen, bench.queues.copies, bench.telemetry.troubles) == ([], [], [])
    assert set(bench.telemetry.verdicts) == {Verdict.LATER_FORMAT}
    assert bench.queues.delays == {"handle-a": 900, "handle-b": 3600}


@pytest.mark.failure_mode("F113")
def test_a_group_of_new_keys_leaves_it_alone() -> None:
    """Its neighbours are processed."""
    made, store = world(Ordering.LATEST)
    bench = Bench(made)
    states = {name: made.s3.put(name, "1") for name in "abc"}
    key = made.key(created(states["b"], key="b"))
    store.items[key.pk, key.sk] = stored(key, Row(Status.PROCESSED, 1), {"format": {"N": "2"}})
    before = copy.deepcopy(store.items[key.pk, key.sk])
    batch = [message(notification(record(name, state, at=START)), name) for name, state in states.items()]
    assert bench.handle(*batch) == ["b"]
    assert [change.key for change in bench.seen] == ["a", "c"]
    assert store.items[key.pk, key.sk] == before


@pytest.mark.failure_mode("F113")
def test_a_row_without_a_status_is_not_replaced() -> None:
    """A later release may keep its status elsewhere. The format stays where it is."""
    made, store = world(Ordering.LATEST)
    state = made.s3.put(KEY, "1")
    key = made.key(created(state))
    store.items[key.pk, key.sk] = {"pk": {"S": key.pk}, "sk": {"S": key.sk}, "format": {"N": "2"}}
    before = copy.deepcopy(store.items)
    assert made.verdict(created(state)) is Verdict.LATER_FORMAT
    assert store.items == before


@pytest.mark.failure_mode("F113")
def test_a_worker_whose_row_a_later_release_took_over_is_refused() -> None:
    """After the deployment, an old worker's commit meets the new release's claim."""
    made, store = world(Ordering.LATEST)
    bench = Bench(made)
    state = made.s3.put(KEY, "1")
    key = made.key(created(state))

    def take_over(_: object) -> None:
        item = store.items[key.pk, key.sk]
        item |= {"fence": {"N": str(int(item["fence"]["N"]) + 1)}, "format": {"N": "2"}, "status": {"S": "RUNNING"}}

    bench.acts = [take_over]
    assert bench.handle(message(notification(record(KEY, state, at=START)))) == ["m1"]
    item = store.items[key.pk, key.sk]
    assert (item["status"], item.get("late_writes")) == ({"S": "RUNNING"}, None)
    assert bench.telemetry.troubles == []


@pytest.mark.failure_mode("F113")
@given(more=OTHERS)
def test_attributes_that_nobody_knows_are_kept(more: Item) -> None:
    """Within a format a later release may add attributes. The row is judged by the known ones."""
    made, store = world(Ordering.LATEST)
    state = made.s3.put(KEY, "1")
    made.process(created(state))
    key = made.key(created(state))
    store.items[key.pk, key.sk] |= more
    assert made.verdict(created(state)) is Verdict.DUPLICATE
    made.process(created(made.s3.put(KEY, "2")))
    assert {name: value for name, value in store.items[key.pk, key.sk].items() if name in more} == more


@pytest.mark.failure_mode("F113")
def test_it_is_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message that waits for the later release is a metric, and its log line says why."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"{PIPELINE}-later")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    made, store = world(Ordering.LATEST)
    bench = Bench(made)
    bench.telemetry = cast("FakeTelemetry", PowertoolsTelemetry())
    state = made.s3.put(KEY, "1")
    key = made.key(created(state))
    store.items[key.pk, key.sk] = stored(key, Row(Status.PROCESSED, 1), {"format": {"N": "2"}})
    bench.handle(message(notification(record(KEY, state, at=START))))
    output = capsys.readouterr().out
    assert [(one.name, one.value) for one in points_of(output, 0)] == [("LaterFormat", 1)]
    assert "a later release wrote the row: its format is 2" in output


@pytest.mark.failure_mode("F113")
def test_no_wait_uses_a_messages_receives_up() -> None:
    """The queue gives a message up after 300 receives; fourteen days are the longest that it keeps one."""
    waited, receives = 0.0, 0
    while waited < 14 * DAY / 1000:
        receives += 1
        waited += later_format_seconds(receives)
    assert receives < 100
    assert later_format_seconds(10**6) == MAX_LATER_FORMAT_SECONDS


@pytest.mark.failure_mode("F113")
@pytest.mark.parametrize("ordering", Ordering)
@settings(max_examples=examples(50))
@given(row=ROWS, changes=later(), listed=st.booleans())
@example(row=Row(Status.PROCESSING, 1), changes={"lease_until": {"N": "1.5"}}, listed=False)
@example(row=Row(Status.PROCESSING, 1), changes={"lease_until": {"S": "1"}}, listed=False)
def test_the_audit_leaves_it_alone_and_counts_it(
    ordering: Ordering,
    row: Row,
    changes: Item,
    listed: bool,
) -> None:
    """Whether S3 still shows the object or not."""
    audited = AuditWorld(ordering)
    state = audited.s3.put("k", version="v1")
    key = audited.row_key("k", state)
    if not listed:
        audited.s3.keys.clear()
    audited.store.items[key.pk, key.sk] = stored(key, row, changes)
    before = copy.deepcopy(audited.store.items)
    report = audited.run()
    assert audited.store.items == before
    assert (report.counts.total(), audited.sent) == (0, [])
    # The scan leaves out attributes that it does not need, and with them their types.
    seen = {"format", "status", "committed_state", "updated_at", "lease_until"} & set(changes)
    assert report.later_format == (1 if seen else 0)
    if seen:
        assert "1 rows of a later release were left alone" in report.summary(START)
        assert report_of(json.loads(json.dumps(report.as_json(START)))).later_format == 1


@pytest.mark.failure_mode("F113")
@given(row=ROWS, changes=later())
def test_the_command_shows_it(row: Row, changes: Item) -> None:
    """`list` and `inspect` print the readable attributes, as text and as JSON."""
    key = RowKey("uploads/k", f"{PIPELINE}@latest")
    found = row_from_attributes(from_dynamodb(stored(key, row, changes)))
    assert found is not None
    assert found.status is Status.LATER_FORMAT
    state = State(StateKind.OBJECT, "v1", "e", 1, START)
    listed = listing.ReviewPage(rows=[ObjectRow("k", found)])
    [compared] = inspection.compare(
        [ObjectRow("k", found)], [ListedVersion(state, current=True)], DEPLOYED, START, None
    )
    assert compared.agree is None
    inspected = inspection.InspectedKey(
        pipeline=PIPELINE, bucket="uploads", key="k", wanted=True, filters=(), denied=None, states=[compared]
    )
    terminal = console()
    with terminal.capture() as capture:
        terminal.print(listing.list_table(DEPLOYED, listed, START))
        terminal.print(inspection.inspect_table(DEPLOYED, inspected, START))
    assert "by a later release" in capture.get()
    json.dumps(json_output.document([listed, inspected]))
