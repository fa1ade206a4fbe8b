"""Requests of people: their records, the check of the audit, and the output of `operations`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from intake_ledger.aws.queues import Queues
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.ulids import ulid
from intake_ledger.requests.check import RequestCheck
from intake_ledger.requests.record import (
    BATCH_ENTRIES,
    Command,
    Entry,
    RequestBatch,
    batch_item,
    batch_key,
    queried_batches,
)
from intake_ledger.requests.standing import Standing, standing_of
from intake_ledger.requests.stop import Stop, read_stop
from intake_ledger_cli.act import recording, sender
from intake_ledger_cli.act.sender import Request
from intake_ledger_cli.app import now_ms
from tests.settings import CONSUMER
from tests.unit.audit.test_function import LiveAudit, deployed  # noqa: F401 - a fixture
from tests.unit.command.support import Site, client, deny_puts, groups_of, make_message_site, make_sender, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import DAY, HOUR, START

pytestmark = pytest.mark.usefixtures("dynamodb")
ID, LATER = ulid(START, 7), ulid(START + HOUR, 7)
SKEW = 120_000
REPROCESS = RequestBatch(ID, "1", Command.REPROCESS, START)
REDRIVE = RequestBatch(ID, "1", Command.REDRIVE, START)
DONE = Row(Status.PROCESSED, START - HOUR, committed_fence=START - HOUR)
NO = Row(Status.REJECTED, START - HOUR, rejected_fence=START - HOUR, reason_code="unprocessable")

STANDINGS = [
    pytest.param(REPROCESS, DONE, Standing.OUTSTANDING, id="processed before"),
    pytest.param(REPROCESS, NO, Standing.OUTSTANDING, id="rejected before"),
    pytest.param(REPROCESS, replace(DONE, served_reprocess_id=ID), Standing.SERVED, id="committed for it"),
    pytest.param(REPROCESS, replace(DONE, served_reprocess_id=LATER), Standing.SERVED, id="a later request"),
    pytest.param(REPROCESS, replace(NO, reprocess_id=ID), Standing.SERVED, id="rejected again"),
    pytest.param(REPROCESS, Row(Status.FAILED, 3, reprocess_id=ID), Standing.SERVED, id="failed, the audit goes on"),
    pytest.param(REPROCESS, Row(Status.PROCESSING, 3, reprocess_id=ID), Standing.IN_WORK, id="may be released"),
    pytest.param(REPROCESS, Row(Status.FAILED, 3), Standing.IN_WORK, id="other work of the key"),
    pytest.param(REPROCESS, Row(Status.LATER_FORMAT, 0), Standing.IN_WORK, id="a later release"),
    pytest.param(REPROCESS, replace(DONE, fence=START + HOUR), Standing.OUTSTANDING, id="released after it"),
    pytest.param(
        REPROCESS, replace(DONE, committed_fence=START + SKEW), Standing.OUTSTANDING, id="may have begun before"
    ),
    pytest.param(REPROCESS, replace(DONE, committed_fence=START + SKEW + 1), Standing.VOID, id="replaced after it"),
    pytest.param(REPROCESS, replace(NO, rejected_fence=START + HOUR), Standing.VOID, id="replaced and rejected"),
    pytest.param(REPROCESS, None, Standing.NO_ROW, id="no row"),
    pytest.param(REDRIVE, NO, Standing.OUTSTANDING, id="the rejection"),
    pytest.param(REDRIVE, replace(NO, reason_code="copy_lost"), Standing.LOST, id="lost"),
    pytest.param(REDRIVE, replace(NO, rejected_fence=START), Standing.SERVED, id="another rejection"),
    pytest.param(REDRIVE, replace(NO, status=Status.PROCESSING), Standing.IN_WORK, id="claimed, may be released"),
    pytest.param(REDRIVE, replace(NO, status=Status.FAILED), Standing.SERVED, id="failed"),
    pytest.param(REDRIVE, DONE, Standing.SERVED, id="committed"),
    pytest.param(REDRIVE, None, Standing.VOID, id="its row has expired"),
]


@pytest.mark.failure_mode("F430")
@pytest.mark.failure_mode("F432")
@pytest.mark.parametrize(("batch", "row", "expected"), STANDINGS)
def test_the_row_shows_how_a_request_stands(batch: RequestBatch, row: Row | None, expected: Standing) -> None:
    entry = Entry("in/a", fence=START - HOUR)
    assert standing_of(row, entry, batch, requested_at=START, skew_ms=SKEW) is expected


ENTRIES = [
    Entry("in/a"),
    Entry("in/ü", state=State(StateKind.OBJECT, "v1", "e1", 3, START)),
    Entry("in/b", identity="v#1", fence=START),
]


def test_a_record_is_read_as_it_was_written() -> None:
    site, batch = make_site(), RequestBatch(ID, "1", Command.REDRIVE, START, ENTRIES, 2)
    table = LedgerTable(client("dynamodb"), site.deployed.table)
    table.write(batch_key("p", batch), batch_item(batch, made_at=START))
    assert list(queried_batches(client("dynamodb"), site.deployed.table, "p")) == [batch]


def recorded(site: Site) -> list[Entry]:
    found = queried_batches(client("dynamodb"), site.deployed.table, site.deployed.name)
    return [entry for batch in found for entry in batch.entries]


def test_a_thousand_long_keys_fit_into_records_that_cost_little() -> None:
    """Each key has the longest length. Short ones take about a fiftieth of a write unit each."""
    site = make_site()
    names = [f"{number:05d}" + "\x01" * 1019 for number in range(BATCH_ENTRIES)]
    make_sender(site.deployed, records=True).send([Request("{}", Entry(name)) for name in names])
    assert sorted(entry.key for entry in recorded(site)) == names
    batch = RequestBatch(ID, "1", Command.REPROCESS, START, [Entry(f"in/2026/11/{n:06d}.csv") for n in range(500)])
    assert len(str(batch_item(batch, made_at=START))) < 10 * 1024


@pytest.mark.parametrize("most", [1, 2, 100])
def test_requests_that_were_not_sent_leave_the_record(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A record goes on with the next call. Two dead letters of a rejection are one request: one of them is enough."""
    site, entries = make_site(), [replace_fence(one) for one in ENTRIES]
    monkeypatch.setattr(sender, "RECORDED", {Command.REDRIVE: most})
    bad = Request("bad", entries[2])

    def refuse(client_: Any, url: str, messages: Any) -> Any:
        return ["not today" if one.body == "bad" else None for one in messages]

    monkeypatch.setattr(sender, "send", refuse)
    one = make_sender(site.deployed, records=True)
    one.send([Request("{}", entries[0])])
    assert one.send([Request("{}", entries[1]), bad, bad._replace(entry=entries[1])]) == [None, *["not today"] * 2]
    assert sorted(recorded(site)) == entries[:2]
    assert (one.recorded, one.unmarked) == (2, 0)


def replace_fence(entry: Entry) -> Entry:
    """The request as one of a redrive."""
    return entry._replace(state=None, fence=7)


class Check:
    """A look at the records of a site, with a bucket in memory."""

    def __init__(
        self,
        site: Site,
        is_lost: Callable[[int], bool] | None = None,
        at: int = START + 3 * HOUR,
        deletes: bool = False,
    ) -> None:
        self.site, self.states, self.now = site, dict[str, State](), at
        pipeline, sqs = site.deployed, client("sqs")
        settings = replace(
            CONSUMER,
            pipeline=pipeline.name,
            bucket=pipeline.bucket,
            table=pipeline.table,
            ordering=pipeline.ordering,
            filters=pipeline.filters,
            deletes=deletes,
        )
        self.check = RequestCheck(
            client("dynamodb"),
            Queues(lambda: sqs, pipeline.queue_url, ""),
            settings,
            clock=lambda: self.now,
            look=lambda key, _state, _row: self.states.get(key, ABSENT),
            is_lost=is_lost,
        )

    def record(self, command: Command, *entries: Entry) -> None:
        batch = RequestBatch(ID, "1", command, START, list(entries))
        table = LedgerTable(client("dynamodb"), self.site.deployed.table)
        table.write(batch_key(self.site.deployed.name, batch), batch_item(batch, made_at=START))

    def run(self) -> dict[str, int]:
        found = self.check.run(self.check.due(self.now - HOUR), has_time=lambda: True)
        return {name: number for name, number in found.numbers.items() if number}


@pytest.mark.failure_mode("F430")
def test_what_no_row_shows_is_sent_again_until_it_is_served() -> None:
    site = make_site()
    check = Check(site)
    check.record(Command.REPROCESS, Entry("in/a"), Entry("in/b"))
    site.row("in/a", DONE)
    site.row("in/b", replace(DONE, served_reprocess_id=ID))
    groups = groups_of("SendMessageBatch")
    assert check.run() == {"served": 1, "resent": 1}
    assert groups == [ID], "fresh files come first"
    [change] = site.changes()
    assert (change.key, change.reprocess_id) == ("in/a", ID)
    assert recorded(site) == [Entry("in/a")]
    assert check.run() == {}, "it was sent a moment ago"
    check.now += 2 * HOUR
    site.row("in/a", replace(DONE, served_reprocess_id=ID))
    assert check.run() == {"served": 1}
    assert recorded(site) == []


@pytest.mark.failure_mode("F643")
@pytest.mark.parametrize("command", Command)
def test_a_request_that_has_failed_stays_recorded_until_it_ends(command: Command) -> None:
    """A `wait` that begins after the audit follows it. Its message is not sent again."""
    site = make_site()
    check = Check(site)
    check.record(command, Entry("in/a", fence=START - HOUR if command is Command.REDRIVE else None))
    site.row("in/a", Row(Status.FAILED, START, reprocess_id=ID))
    assert check.run() == {"in_work": 1}
    check.now += 3 * HOUR
    assert check.run() == {"in_work": 1}
    assert len(recorded(site)) == 1
    check.now += 3 * HOUR
    site.row("in/a", replace(DONE, served_reprocess_id=ID))
    assert check.run() == {"served": 1}
    assert site.messages() == []


@pytest.mark.failure_mode("F433")
@pytest.mark.failure_mode("F641")
def test_the_requests_of_a_stopped_operation_are_counted_and_not_sent_again() -> None:
    """As long as one may still begin. What a later request does then, changes nothing."""
    site = make_site()
    check, name = Check(site), site.deployed.name
    table = LedgerTable(client("dynamodb"), site.deployed.table)
    keys = ("before", "after", "retried", "later", "work", "left", "replaced", "new")
    check.record(Command.REPROCESS, *map(Entry, keys))
    batch = RequestBatch(LATER, "20", Command.REPROCESS, check.now - 2 * HOUR, [Entry("left")])
    table.write(batch_key(name, batch), batch_item(batch, made_at=START))
    stop = Stop(ID, check.now - 5 * 60_000, "me", "the wrong prefix")
    table.write(stop.key(name), stop.item)
    served = replace(DONE, served_reprocess_id=ID, reprocess_id=None)
    site.row("before", replace(served, first_claimed_at=stop.at, fence=stop.at + HOUR))
    site.row("after", replace(served, first_claimed_at=stop.at + 1))
    site.row("retried", Row(Status.FAILED, stop.at + 1, reprocess_id=ID, first_claimed_at=START - HOUR))
    site.row("later", replace(DONE, served_reprocess_id=LATER))
    site.row("work", Row(Status.PROCESSING, stop.at + 1, reprocess_id=ID, first_claimed_at=stop.at + 1))
    site.row("left", DONE)
    site.row("replaced", replace(DONE, committed_fence=START + HOUR))

    def counted() -> tuple[dict[str, int], int]:
        found = queried_batches(client("dynamodb"), site.deployed.table, name)
        [own] = [one for one in found if one.request_id == ID]
        return own.counts, len(own.entries)

    counts = {"begunBefore": 1, "begunAfter": 3, "servedLater": 2}
    assert check.run() == {"resent": 1}
    [change] = site.changes()
    assert (change.key, change.reprocess_id) == ("left", LATER)
    assert counted() == (counts | {"outstanding": 2}, 8)
    check.now += HOUR
    check.run()
    assert counted() == (counts | {"outstanding": 2}, 8), "one is in work"
    site.row("work", replace(served, first_claimed_at=stop.at + 1))
    check.run()
    assert counted() == (counts | {"withdrawn": 2}, 0)
    site.row("left", replace(DONE, served_reprocess_id=LATER))
    check.now += 3 * HOUR
    check.run()
    assert counted() == (counts | {"withdrawn": 2}, 0)
    assert read_stop(table, name, ID) == stop


@pytest.mark.failure_mode("F430")
def test_a_redriven_rejection_is_sent_with_its_fence() -> None:
    site = make_site(Ordering.EVERY_VERSION)
    check = Check(site)
    check.record(Command.REDRIVE, Entry("in/a", "v#v1", fence=START - HOUR))
    check.states["in/a"] = State(StateKind.OBJECT, "v1")
    site.row("in/a", replace(NO, version_id="v1"))
    assert check.run() == {"resent": 1}
    [message] = site.messages()
    assert message["rejected_fence"] == str(START - HOUR)
    assert '"versionId": "v1"' in message["body"]


@pytest.mark.failure_mode("F432")
@pytest.mark.parametrize(
    ("key", "state", "age", "expected"),
    [
        ("in/a", State(StateKind.OBJECT, "v1", "e1"), 3 * HOUR, {"resent": 1}),
        ("in/a", ABSENT, 3 * HOUR, {"void": 1}),
        ("out/a", State(StateKind.OBJECT, "v1", "e1"), 3 * HOUR, {"void": 1}),
        ("in/a", State(StateKind.OBJECT, "v1", "e1"), 400 * DAY, {"void": 1}),
    ],
    ids=["never processed", "removed", "outside the filters", "its row may have expired"],
)
def test_without_a_row_the_bucket_decides(key: str, state: State, age: int, expected: dict[str, int]) -> None:
    site = make_site(filters=(KeyFilter("in/"),))
    check = Check(site, at=START + age)
    check.states[key] = state
    check.record(Command.REPROCESS, Entry(key))
    assert check.run() == expected


@pytest.mark.failure_mode("F432")
@pytest.mark.parametrize(
    ("state", "deletes", "expected"),
    [
        (State(StateKind.MARKER, "m1"), True, {"resent": 1}),
        (State(StateKind.MARKER, "m1"), False, {"void": 1}),
        (ABSENT, True, {"void": 1}),
    ],
    ids=["a processor of removals", "objects only", "neither object nor marker"],
)
def test_without_a_row_a_delete_marker_is_work_for_a_processor_of_removals(
    state: State, deletes: bool, expected: dict[str, int]
) -> None:
    check = Check(make_site(), deletes=deletes)
    check.states["in/a"] = state
    check.record(Command.REPROCESS, Entry("in/a"))
    assert check.run() == expected


@pytest.mark.failure_mode("F642")
@pytest.mark.parametrize(
    ("kind", "shown", "expected"),
    [
        (StateKind.OBJECT, ABSENT, {"void": 1}),
        (StateKind.MARKER, ABSENT, {"void": 1}),
        (StateKind.OBJECT, State(StateKind.OBJECT, "v1"), {"resent": 1}),
        (StateKind.DELETED, ABSENT, {"resent": 1}),
    ],
)
def test_a_request_is_void_if_exactly_its_version_is_gone(
    kind: StateKind, shown: State, expected: dict[str, int]
) -> None:
    """A processor of removals may be told of a permanent deletion again."""
    site = make_site(Ordering.EVERY_VERSION)
    check, state = Check(site, deletes=True), State(kind, "v1", "e1", 3)
    check.states["in/a"] = shown
    site.row("in/a", replace(DONE, version_id="v1", kind=kind))
    check.record(Command.REPROCESS, Entry("in/a", state=state))
    assert check.run() == expected


@pytest.mark.failure_mode("F431")
def test_a_message_is_lost_only_if_no_queue_has_it() -> None:
    site, gone = make_message_site(), [False]
    check = Check(site, is_lost=lambda sent_at: gone[0] and sent_at == START)
    check.record(Command.REDRIVE, Entry("o-7", "v#e1", fence=START - HOUR))
    site.row("o-7", replace(NO, version_id="e1"))
    assert check.run() == {"waiting": 1}
    gone[0] = True
    assert check.run() == {"lost": 1}
    assert check.run() == {}, "it is counted once"
    assert site.messages() == []


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:  # noqa: F811
    return sit(make_site())


def progress(person: Person) -> tuple[int, int]:
    [one] = person.reads("operations")["operations"]
    return one["outstanding"], one["copiesLost"]


@pytest.mark.failure_mode("F430")
def test_operations_tell_served_from_outstanding(person: Person) -> None:
    site = person.site
    site.put("in/a", "in/b")
    person.types("retry", "--again", "--prefix", "in/", "--yes")
    [batch] = queried_batches(client("dynamodb"), site.deployed.table, site.deployed.name)
    assert (batch.entries, progress(person)) == ([Entry("in/a"), Entry("in/b")], (2, 0))
    site.row("in/a", replace(DONE, served_reprocess_id=batch.request_id))
    assert "2 requests sent, 0 failed; 1 served, 1 outstanding" in " ".join(person.types("operations").split())
    site.row("in/b", replace(DONE, served_reprocess_id=batch.request_id))
    assert progress(person) == (0, 0)


def test_a_large_operation_makes_no_other_inexact(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    site = person.site
    monkeypatch.setattr(recording, "MOST_JUDGED", 1)
    site.put("in/a", "in/b", "out/c")
    for prefix in ("in/", "out/"):
        person.types("retry", "--again", "--prefix", prefix, "--yes")
    for batch in queried_batches(client("dynamodb"), site.deployed.table, site.deployed.name):
        for entry in batch.entries:
            site.row(entry.key, replace(DONE, served_reprocess_id=batch.request_id))
    small, large = person.reads("operations")["operations"]
    assert (small["outstanding"], large["outstanding"]) == (0, 2)
    assert "2 outstanding at the last audit" in " ".join(person.types("operations").split())


def test_operations_of_redriven_messages(person: Person) -> None:
    site = person.site
    site.dead_letter("{}", key="in/a", rejected_fence=START - HOUR, pipeline=site.deployed.name)
    site.dead_letter("{}")
    site.row("in/a", NO)
    person.types("retry", "--prefix", "", "--yes")
    assert recorded(site) == [Entry("in/a", fence=START - HOUR)]
    assert progress(person) == (1, 0)
    site.row("in/a", replace(NO, reason_code="copy_lost"))
    assert progress(person) == (0, 1)


def test_an_interrupted_call_records_what_it_sent(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit must not send the interrupted requests."""
    site = person.site
    site.put(*(f"in/{number:02d}" for number in range(25)))
    send, sent = getattr(sender, "send"), list[int]()  # noqa: B009 - the module does not export it

    def interrupted(*arguments: Any) -> Any:
        if len(sent) == 2:
            raise KeyboardInterrupt
        sent.append(1)
        return send(*arguments)

    monkeypatch.setattr(sender, "send", interrupted)
    person.types("retry", "--again", "--prefix", "in/", "--yes", ends=130)
    assert [entry.key for entry in recorded(site)] == [f"in/{number:02d}" for number in range(20)]


def test_without_permission_it_says_so_and_goes_on(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person.site.put("in/a")
    deny_puts(monkeypatch)
    person.types("retry", "--again", "in/a", "--yes")
    assert "the requests are not recorded, so no audit repeats them" in person.complaint
    assert len(person.site.messages()) == 1


@pytest.mark.failure_mode("F430")
def test_each_tick_of_the_audit_looks(deployed: LiveAudit) -> None:  # noqa: F811
    """A dry run sends nothing."""
    deployed.upload("in/a")
    batch = RequestBatch(ulid(now_ms() - HOUR, 7), "1", Command.REPROCESS, now_ms() - HOUR, [Entry("in/a")])
    table = LedgerTable(client("dynamodb"), deployed.table)
    table.write(batch_key("p", batch), batch_item(batch, made_at=START))
    deployed.audit(dryRun=True)
    assert deployed.receive() == []
    deployed.audit(everySeconds=86_400)
    assert deployed.receive() == ["in/a", "in/a"], "the audit's finding, and the request"
    assert deployed.audit(everySeconds=86_400)["skipped"]
    assert deployed.receive() == ["in/a"], "no row shows it yet, and the settle time is 0"
