"""F441: what `intake-ledger forget` removes, refuses and lists. No store names the key afterwards."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.options.exclusive_by import holder_name
from intake_ledger.outputs.conditional_put import source_of
from intake_ledger.outputs.output import Output
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import (
    Ordering,
    Row,
    RowKey,
    Status,
    forgotten_key,
    group_key,
    group_line,
    newest_forgotten_key,
    rejects_place,
    row_key,
    to_dynamodb,
)
from intake_ledger.protocol.ulids import ulid
from intake_ledger.requests.record import Command, Entry, RequestBatch, batch_item, batch_key, queried_batches
from intake_ledger.set_members.membership import Membership
from intake_ledger_cli.act import forget_command, forgetting
from intake_ledger_cli.aws.clients import Aws
from tests.unit.command.forget_support import with_variables
from tests.unit.command.support import (
    NAME,
    FakeSts,
    Site,
    client,
    make_message_site,
    make_set_site,
    make_site,
    new_consumer_log,
)
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import DAY, HOUR, MINUTE, START, notification, record

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
KEY, OTHER = "in/Ana Díaz.csv", "in/Ana Díaz.csv.bak"
BECAUSE = ("--because", "ticket 4711", "--yes")


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def seat(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], Person]:
    monkeypatch.setattr(Aws, "sts", FakeSts())
    monkeypatch.setattr(time, "sleep", lambda _: None)
    new_consumer_log()
    return lambda site: sit(site, audit=site.deployed.audit_function is not None)


def body_of(key: str, site: Site) -> str:
    return notification(record(key, State(StateKind.OBJECT, "v1", "e", 1), bucket=site.deployed.bucket))


def put(site: Site, place: RowKey, **content: Any) -> None:
    item = to_dynamodb({"pk": place.pk, "sk": place.sk, **content})
    client("dynamodb").put_item(TableName=site.deployed.table, Item=item)


def fill(site: Site, key: str, *, at: int = START) -> None:
    """Each store of the pipeline names the key."""
    pk, deployed = f"{site.deployed.bucket}/{key}", site.deployed
    site.row(key, Row(Status.REJECTED, at, version_id="v1", rejected_fence=at, reason=f"{key} is bad", updated_at=at))
    body = '{"order": 1}' if deployed.message_source else body_of(key, site)
    site.dead_letter(body, reason="no amount", key=quote(key), rejected_fence=at, pipeline=NAME)
    put(site, RowKey(pk, f"{NAME}@lock"), fence=at, holder="")
    for what in (f"dismiss {key}", f"release s3://{deployed.bucket}/{key}"):
        record_ = {"at": START, "done_by": "ana", "what": what, "because": f"{key}!", "result": "1 row"}
        put(site, RowKey(deployed.operations_partition, f"{START:014d}#{what[:3]}{len(key)}"), **record_)
    put(site, RowKey(f"{NAME}#downstream", f"pause {len(key)}"), because=f"pause for {key}")
    batch = RequestBatch(ulid(START, len(key)), "1", Command.REPROCESS, START, [Entry(key), Entry("in/others")])
    LedgerTable(client("dynamodb"), deployed.table).write(batch_key(NAME, batch), batch_item(batch, made_at=START))


def stores(site: Site) -> list[str]:
    """Everything that the stores have, as texts: table, both queues, and the bucket."""
    sqs, deployed = client("sqs"), site.deployed
    requests = map(str, queried_batches(client("dynamodb"), deployed.table, NAME))
    found = [str(item) for item in client("dynamodb").scan(TableName=deployed.table)["Items"]]
    for url in (deployed.queue_url, deployed.dead_letter_url):
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=0
        )
        found += [f"{one['Body']} {one.get('MessageAttributes')}" for one in answer.get("Messages", ())]
    if deployed.message_source is None:
        found += [str(one) for one in client("s3").list_object_versions(Bucket=deployed.bucket).get("Versions", ())]
    return [*found, *requests]


def names(text: str, key: str = KEY) -> bool:
    forms = (key, quote(key), quote(key, safe=""), key.encode("unicode_escape").decode())
    return any(one in text.replace(OTHER, "").replace(quote(OTHER), "") for one in forms)


SITES: dict[str, Callable[[], Site]] = {
    "objects": make_site,
    "every version": lambda: make_site(Ordering.EVERY_VERSION),
    "messages": make_message_site,
    "sets": make_set_site,
}


def filled(kind: str) -> tuple[Site, str]:
    """A pipeline of a kind whose stores name a key and another one."""
    site = SITES[kind]()
    key = "loads/7/manifest.json" if kind == "sets" else KEY
    fill(site, key)
    fill(site, OTHER)
    if kind == "sets":
        parts = Membership(client("dynamodb"), site.deployed.table, site.deployed.bucket)
        parts.register(NAME, key, "v#1", ["loads/7/a", "loads/7/b"])
    return site, key


@pytest.mark.failure_mode("F441")
@pytest.mark.parametrize("kind", SITES)
def test_no_store_names_the_key_afterwards(seat: Callable[[Site], Person], kind: str) -> None:
    """Those of other keys stay, also of a longer one. The record of the operation has the hash and the reason."""
    site, key = filled(kind)
    person = seat(site)
    assert any(names(text, key) for text in stores(site))
    found = person.reads("forget", key, *BECAUSE)
    assert not [text for text in stores(site) if names(text, key)]
    assert sum(OTHER in text or quote(OTHER) in text for text in stores(site)) >= 4
    assert (found["rows"], found["deadLetters"], found["unfinished"]) == (1, 1, False)
    assert found["otherItems"] == {"sets": 4}.get(kind, 1)
    marker = forgotten_key(NAME, f"{site.deployed.bucket}/{key}")
    assert found["digest"] == marker.sk
    operations = person.reads("operations")["operations"]
    assert (operations[0]["what"], operations[0]["because"]) == (f"forget {marker.sk}", "ticket 4711")
    assert operations[0]["result"].startswith("1 row")
    assert {one["what"] for one in operations[1:]} >= {"dismiss (forgotten)", "release (forgotten)"}
    remains = " ".join(one["what"] for one in found["remains"])
    for part in ("log lines in", "copies in the queue", "the table's point-in-time recovery"):
        assert part in remains or part.startswith("the table")
    assert found["refusedUntil"] > now() + DAY
    # A second call finds nothing more, and its marker is later.
    again = person.reads("forget", key, *BECAUSE)
    assert (again["rows"], again["deadLetters"]) == (0, 0)


@pytest.mark.failure_mode("F755")
def test_a_message_without_attributes_is_forgotten_by_the_names_in_its_body(seat: Callable[[Site], Person]) -> None:
    site = make_message_site()
    for key in (KEY, OTHER):
        site.dead_letter(json.dumps({"order": key, "id": "v1"}))
    found = seat(site).reads("forget", KEY, *BECAUSE)
    assert (found["deadLetters"], found["unfinished"]) == (1, False)
    assert not [text for text in stores(site) if names(text)]
    assert site.visible(site.deployed.dead_letter_url) == 1


@pytest.mark.failure_mode("F441")
@pytest.mark.parametrize("form", ["a prefix", "all rows"])
def test_the_position_of_a_reprocess_names_the_key_no_more(seat: Callable[[Site], Person], form: str) -> None:
    """The call is then resumed from its beginning."""
    site = make_site()
    pk = f"{site.deployed.bucket}/{KEY}"
    forms = {"a prefix": KEY, "all rows": json.dumps([pk, "x@"])}
    place = RowKey(site.deployed.operations_partition, f"reprocess#{ulid(START, 1)}")
    put(site, place, selection="{}", position=forms[form], sent=3)
    seat(site).reads("forget", KEY, *BECAUSE)
    assert LedgerTable(client("dynamodb"), site.deployed.table).read(place)["position"] == ""


@pytest.mark.failure_mode("F579")
@pytest.mark.failure_mode("F441")
def test_a_record_that_a_reprocess_writes_meanwhile_keeps_its_requests(
    seat: Callable[[Site], Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    table = LedgerTable(client("dynamodb"), site.deployed.table)
    batch = RequestBatch(ulid(START, 1), "1", Command.REPROCESS, START, [Entry(KEY)])

    def then_more(*arguments: Any) -> list[RequestBatch]:
        found = [*queried_batches(*arguments)]
        batch.entries.append(Entry("in/others"))
        table.write(batch_key(NAME, batch), batch_item(batch, made_at=START))
        return found

    table.write(batch_key(NAME, batch), batch_item(batch, made_at=START))
    monkeypatch.setattr(forgetting, "queried_batches", then_more)
    found = seat(site).reads("forget", KEY, *BECAUSE, ends=1)
    [left] = queried_batches(client("dynamodb"), site.deployed.table, NAME)
    assert Entry("in/others") in left.entries
    assert (found["unfinished"], found["remains"][0]["what"][:8]) == (True, "a record")


@pytest.mark.failure_mode("F441")
@pytest.mark.parametrize(("key", "left"), [(KEY, False), (OTHER, True)])
def test_the_lock_of_its_group_names_the_key_no_more(
    seat: Callable[[Site], Person],
    key: str,
    left: bool,
) -> None:
    """Its last attempt may have left it there. Another key that has the group keeps it."""
    site = make_site()
    site = Site(with_variables(site.deployed, INTAKE_EXCLUSIVE_BY="in/{name}."))
    fill(site, KEY)
    row = row_key(NAME, Ordering.LATEST, site.deployed.bucket, key, "v#v1")
    place = group_key(NAME, "Ana Díaz")
    put(site, place, fence=START, holder=holder_name(row), holder_fence=START)
    seat(site).reads("forget", KEY, *BECAUSE)
    holder = LedgerTable(client("dynamodb"), site.deployed.table).read(place)["holder"]
    assert holder == (holder_name(row) if left else "")


@pytest.mark.failure_mode("F633")
def test_the_line_of_its_group_names_the_key_no_more(seat: Callable[[Site], Person]) -> None:
    site = make_site()
    site = Site(with_variables(site.deployed, INTAKE_EXCLUSIVE_BY="in/{name}."))
    fill(site, KEY)
    line = {}
    for number, key in enumerate((KEY, OTHER)):
        row = row_key(NAME, Ordering.LATEST, site.deployed.bucket, key, "v#v1")
        line[key] = RowKey(group_key(NAME, "Ana Díaz").pk, f"{group_line(NAME)}{number}")
        put(site, line[key], fence=START, waiter=holder_name(row))
    seat(site).reads("forget", KEY, *BECAUSE)
    table = LedgerTable(client("dynamodb"), site.deployed.table)
    assert table.read(line[KEY]) == {}
    assert table.read(line[OTHER])["fence"] == START


def test_the_marker_is_the_one_that_workers_read(seat: Callable[[Site], Person]) -> None:
    site = make_message_site()
    found = seat(site).reads("forget", KEY, *BECAUSE)
    items = [one for one in client("dynamodb").scan(TableName=site.deployed.table)["Items"] if "forgotten_at" in one]
    places = {RowKey(one["pk"]["S"], one["sk"]["S"]) for one in items}
    assert places == {forgotten_key(NAME, f"{site.deployed.bucket}/{KEY}"), newest_forgotten_key(NAME)}
    assert {int(one["forgotten_at"]["N"]) for one in items} == {found["forgottenAt"]}
    # Two queues with four days each, the longest wait, and a day.
    assert round((found["refusedUntil"] - found["forgottenAt"]) / DAY) == 2 * 4 + 365 + 1


def held(site: Site) -> None:
    row = Row(Status.PROCESSING, START, version_id="v1", lease_owner="w", lease_until=now() + HOUR, updated_at=START)
    site.row(KEY, row)


def just_ended(site: Site) -> None:
    site.row(KEY, Row(Status.PROCESSED, START, version_id="v1", committed_state="v#v1", updated_at=now() - MINUTE))


def deleted_only(site: Site) -> None:
    site.put(KEY)
    client("s3").delete_object(Bucket=site.deployed.bucket, Key=KEY)


REFUSED = [
    pytest.param(make_site, lambda site: site.put(KEY), "S3 has 1 versions or delete markers", id="a version"),
    pytest.param(make_site, deleted_only, "S3 has 2 versions or delete markers", id="a delete marker"),
    pytest.param(make_message_site, held, "a worker holds the key", id="a live claim"),
    pytest.param(make_message_site, just_ended, "ended a moment ago", id="an attempt that just ended"),
    pytest.param(
        lambda: make_site(deletes=True), lambda site: fill(site, KEY), "not told of the removal", id="an effect"
    ),
    pytest.param(
        lambda: make_site(Ordering.EVERY_VERSION, deletes=True),
        lambda site: fill(site, KEY),
        "not told of the removal of 1 versions",
        id="an effect of a version",
    ),
]


@pytest.mark.failure_mode("F441")
@pytest.mark.parametrize(("make", "use", "why"), REFUSED)
def test_a_key_in_use_is_refused(
    seat: Callable[[Site], Person], make: Callable[[], Site], use: Callable[[Site], object], why: str
) -> None:
    """Nothing changes then, and no marker is written."""
    made = make()
    site = Site(replace(made.deployed, clock_skew_seconds=120))
    person = seat(site)
    use(site)
    before = stores(site)
    person.types("forget", KEY, *BECAUSE, ends=1)
    assert why in person.complaint
    assert KEY not in person.complaint
    assert sorted(stores(site)) == sorted(before)


def test_an_execution_may_run(seat: Callable[[Site], Person]) -> None:
    made = make_site()
    site = Site(with_variables(made.deployed, INTAKE_STATE_MACHINE="arn:machine"))
    lapsed = Row(Status.PROCESSING, START, version_id="v1", lease_owner="w", lease_until=START, updated_at=START)
    site.row(KEY, lapsed)
    person = seat(site)
    person.types("forget", KEY, *BECAUSE, ends=1)
    assert "an execution of the key may run" in person.complaint


@pytest.mark.failure_mode("F441")
@pytest.mark.parametrize("use", [held, lambda site: site.put(KEY)], ids=["a claim", "an upload"])
def test_a_use_during_the_wait_stops_it(
    seat: Callable[[Site], Person], monkeypatch: pytest.MonkeyPatch, use: Callable[[Site], object]
) -> None:
    """The record has the reason, without the key."""
    site = make_site()
    fill(site, KEY)
    person = seat(site)
    monkeypatch.setattr(forgetting.Forgetting, "wait", lambda _: use(site))
    person.types("forget", KEY, *BECAUSE, ends=1)
    assert any(names(text) for text in stores(site))
    [operation] = [one for one in person.reads("operations")["operations"] if one["what"].startswith("forget")]
    assert operation["result"].startswith("failed: ")
    assert not names(str(operation))


def test_the_reason_may_not_name_the_key(seat: Callable[[Site], Person]) -> None:
    person = seat(make_site())
    person.types("forget", KEY, "--because", f"{KEY} asked", "--yes", ends=2)
    assert "leave it out" in person.complaint


def test_a_dead_letter_about_other_keys_is_listed(seat: Callable[[Site], Person]) -> None:
    """So is one without a key whose text has it, and one of another pipeline."""
    site = make_site()
    both = [record(key, State(StateKind.OBJECT, "v1", "e", 1), bucket=site.deployed.bucket) for key in (KEY, "in/b")]
    site.dead_letter(notification(*both))
    site.dead_letter(f'{{"text": "about {KEY} only"}}')
    site.dead_letter(body_of(KEY, site), pipeline="Another")
    found = seat(site).reads("forget", KEY, *BECAUSE, ends=1)
    listed = [one["what"] for one in found["remains"] if "dead-letter" in one["what"]]
    assert len(listed) == 3
    assert sum("of Another" in one for one in listed) == 1
    assert site.visible(site.deployed.dead_letter_url) == 3


@pytest.fixture
def outputs() -> str:
    name = f"outputs-{now()}"
    client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    client("s3").put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


def output_of(bucket: str, key: str = KEY) -> Output:
    return Output(client("s3"), bucket, "small.png", fence=7, source=source_of(key, None), look_first=False)


@pytest.mark.failure_mode("F441")
def test_a_tombstone_is_removed_after_a_day(
    seat: Callable[[Site], Person], outputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it keeps a late worker out. All versions of the output go, which may have its content."""
    site, uri = make_site(), f"s3://{outputs}/small.png"
    person = seat(site)
    output = output_of(outputs)
    output.put(b"7 EUR")
    person.types("forget", KEY, *BECAUSE, "--output", uri, ends=1)
    assert "still has its content" in person.complaint
    output.remove()
    person.types("forget", KEY, *BECAUSE, "--output", uri, ends=1)
    assert "guards against a late worker" in person.complaint
    monkeypatch.setattr(forget_command, "now_ms", lambda: now() + DAY + HOUR)
    found = person.reads("forget", KEY, *BECAUSE, "--output", uri, "--output", f"s3://{outputs}/none")
    assert found["outputs"] == 1
    listed = client("s3").list_object_versions(Bucket=outputs)
    assert not [*listed.get("Versions", ()), *listed.get("DeleteMarkers", ())]


@pytest.mark.failure_mode("F441")
def test_rejected_rows_need_no_option(
    seat: Callable[[Site], Person], outputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the content of the object. The pipeline knows their place."""
    site = make_site()
    site.deployed = with_variables(site.deployed, INTAKE_REJECTS=f"{outputs}/rejects/")
    person = seat(site)
    bucket, name = rejects_place(f"{outputs}/rejects/", KEY, None)
    rows = Output(client("s3"), bucket, name, fence=7, source=source_of(KEY, None), look_first=False)
    rows.put(b"7 EUR")
    person.types("forget", KEY, *BECAUSE, ends=1)
    assert "still has its content" in person.complaint
    rows.remove()
    monkeypatch.setattr(forget_command, "now_ms", lambda: now() + DAY + HOUR)
    assert person.reads("forget", KEY, *BECAUSE)["outputs"] == 1


def test_an_output_of_another_key_is_refused(seat: Callable[[Site], Person], outputs: str) -> None:
    person = seat(make_site())
    output_of(outputs, OTHER).remove()
    person.types("forget", KEY, *BECAUSE, "--output", f"s3://{outputs}/small.png", ends=1)
    assert "is no output of this key" in person.complaint
    person.types("forget", KEY, *BECAUSE, "--output", outputs, ends=2)


def test_items_of_another_pipeline_are_listed(seat: Callable[[Site], Person]) -> None:
    site = make_site()
    put(site, RowKey(f"{site.deployed.bucket}/{KEY}", "Another@latest"), fence=1, status="PROCESSED")
    found = seat(site).reads("forget", KEY, *BECAUSE)
    assert "items of the key of Another: use the command with --pipeline Another" in [
        one["what"] for one in found["remains"]
    ]


def items_of(site: Site) -> list[Any]:
    return list(client("dynamodb").scan(TableName=site.deployed.table)["Items"])


def restore(site: Site, items: list[Any]) -> None:
    """The table as it was."""
    dynamodb, table = client("dynamodb"), site.deployed.table
    for one in items_of(site):
        dynamodb.delete_item(TableName=table, Key={name: one[name] for name in ("pk", "sk")})
    for one in items:
        dynamodb.put_item(TableName=table, Item=one)


def marker_of(site: Site, key: str) -> dict[str, Any]:
    marker = forgotten_key(NAME, f"{site.deployed.bucket}/{key}")
    return LedgerTable(client("dynamodb"), site.deployed.table).read(marker)


@pytest.mark.failure_mode("F644")
@pytest.mark.parametrize("kind", SITES)
def test_a_restore_brings_no_forgotten_key_back(seat: Callable[[Site], Person], kind: str) -> None:
    """The stream of operations has the hash and the time. The marker gets this time, and not that of the restore."""
    site, key = filled(kind)
    person, before = seat(site), items_of(site)
    person.types("forget", key, *BECAUSE)
    marker = marker_of(site, key)
    del marker["removed"]  # the restored table has no claim of a paused worker
    restore(site, before)
    assert any(names(text, key) for text in stores(site))
    for found in (person.reads("forget", "--again", *BECAUSE), person.reads("forget", "--again", *BECAUSE)):
        assert (found["hashes"], found["later"], found["left"]) == (1, 0, {})
        assert not [text for text in stores(site) if names(text, key)]
        assert marker_of(site, key) == marker
    assert sum(OTHER in text or quote(OTHER) in text for text in stores(site)) >= 4


@pytest.mark.failure_mode("F644")
def test_a_new_use_of_a_forgotten_key_stays(seat: Callable[[Site], Person]) -> None:
    """Its row is later than the marker. So does a key that the bucket has, and its marker does not refuse new uses."""
    site = make_site()
    for key in (KEY, OTHER):
        fill(site, key)
    person, before = seat(site), items_of(site)
    for key in (KEY, OTHER):
        person.types("forget", key, *BECAUSE)
    times = [marker_of(site, key)["forgotten_at"] for key in (KEY, OTHER)]
    restore(site, before)
    site.row(KEY, Row(Status.PROCESSED, now() + HOUR, version_id="v9", updated_at=now() + HOUR))
    site.put(OTHER)
    found = person.reads("forget", "--again", *BECAUSE, ends=1)
    assert (found["hashes"], found["keys"], found["later"]) == (2, 2, 1)
    assert [key for key, why in found["left"].items() if "S3 has 1 versions" in why] == [OTHER]
    assert [marker_of(site, key)["forgotten_at"] for key in (KEY, OTHER)] == times
    rows = [one for one in items_of(site) if one["sk"]["S"] == f"{NAME}@latest"]
    assert {one["pk"]["S"].partition("/")[2] for one in rows} == {KEY, OTHER}
    assert person.types("operations").count("forget --again") == 1
    client("logs").delete_log_group(logGroupName="/aws/lambda/consumer")
    person.types("forget", "--again", *BECAUSE, ends=1)
    assert "cannot be read: there is no log group" in person.complaint


@pytest.mark.parametrize("arguments", [(), (KEY, "--again"), ("--again", "--output", "s3://b/k")])
def test_again_takes_no_key(seat: Callable[[Site], Person], arguments: tuple[str, ...]) -> None:
    person = seat(make_site())
    person.types("forget", *arguments, *BECAUSE, ends=2)
    assert "--again without a key" in person.complaint
