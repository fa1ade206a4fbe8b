"""Sets of files on the local AWS: each form, in one deployed stack."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from boto3.dynamodb.types import TypeDeserializer

from cdk_intake_ledger.testing import LocalAws
from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger_testing.function_logs import json_objects
from tests.local.conftest import Outputs, Typed
from tests.local.sets.sets_stack import STACK
from tests.local.support import TIMEOUT, drained

Entry = dict[str, Any]
_read = TypeDeserializer().deserialize


@dataclass(frozen=True)
class Sets:
    """The deployed stack."""

    aws: LocalAws
    found: dict[str, str]

    def put(self, key: str, body: str | list[str]) -> str:
        """Upload an object, and return its version. A list becomes a manifest."""
        content = body if isinstance(body, str) else json.dumps(body)
        answer = self.aws.client("s3").put_object(Bucket=self.found["Bucket"], Key=key, Body=content.encode())
        return str(answer["VersionId"])

    def runs(self, key: str) -> list[Entry]:
        """The calls of a processor about a key."""
        items = self._items(self.found["EffectsTable"], "place", key)
        return [item | {"parts": [tuple(part) for part in item["parts"]]} for item in items]

    def row(self, key: str, name: str) -> Entry:
        """The row of a set; empty if there is none."""
        rows = self._items(self.found["Table"], "pk", key)
        return next((row for row in rows if row["sk"] == f"{name}OfTests@latest"), {})

    def run_of(self, key: str, *parts: tuple[str, str, str]) -> Entry:
        """The run of a set with exactly these parts (key, version and content), awaited."""

        def found() -> list[Entry]:
            return [run for run in self.runs(key) if run["parts"] == list(parts)]

        run: Entry = self.wait(found, f"{key} is processed with {parts}")[0]
        return run

    def row_with(self, key: str, name: str, **expected: object) -> Entry:
        """The row of a set with these values, awaited."""

        def found() -> Entry | None:
            row = self.row(key, name)
            return row if row and all(row.get(field) == value for field, value in expected.items()) else None

        row: Entry = self.wait(found, f"the row of {key} has {expected}")
        return row

    def wait[Found](self, look: Callable[[], Found], what: str) -> Any:
        return self.aws.wait_until(look, what, timeout=TIMEOUT)

    def invoke(self, name: str, payload: Entry) -> Entry:
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.found[f"{name}Function"], Payload=json.dumps(payload).encode()
        )
        return dict(json.load(answer["Payload"]))

    def ages(self, name: str) -> list[float]:
        """The values of the metric of the oldest waiting set."""
        lines = json_objects(self.aws.logs(self.found[f"{name}Function"]))
        return [age for line in lines for age in line.get("OldestWaitingSet", [])]

    def _items(self, table: str, name: str, key: str) -> list[Entry]:
        answer = self.aws.client("dynamodb").query(
            TableName=table,
            KeyConditionExpression=f"{name} = :place",
            ExpressionAttributeValues={":place": {"S": f"{self.found['Bucket']}/{key}"}},
            ConsistentRead=True,
        )
        return [{field: _read(value) for field, value in item.items()} for item in answer["Items"]]


@pytest.fixture(scope="module")
def sets(aws: LocalAws, outputs: Outputs) -> Sets:
    return Sets(aws, outputs[STACK])


Command = Callable[..., Any]


@pytest.fixture
def command(typed: Typed) -> Command:
    """Runs the command about the sets of manifests, and reads its document, or the text of a code that is not 0."""

    def run(*arguments: str, code: int = 0, pipeline: str = "LoadsOfTests") -> Any:
        printed = typed(*arguments, "--stack", STACK, "--pipeline", pipeline, "--json", code=code)
        return printed if code else json.loads(printed)

    return run


@pytest.mark.parametrize("order", ["manifest first", "manifest last", "manifest in between"])
def test_a_manifest_and_its_parts_become_one_run_in_any_order(sets: Sets, order: str) -> None:
    folder = f"loads/{quote(order)}"
    place = {"manifest first": 0, "manifest in between": 1, "manifest last": 2}[order]
    versions = {}
    uploads = [("b.csv", "B"), ("a.csv", "A")]
    uploads.insert(place, ("manifest.json", json.dumps(["a.csv", "b.csv"])))
    for name, body in uploads:
        versions[name] = sets.put(f"{folder}/{name}", body)
    a, b = f"{folder}/a.csv", f"{folder}/b.csv"
    run = sets.run_of(f"{folder}/manifest.json", (a, versions["a.csv"], "A"), (b, versions["b.csv"], "B"))
    assert run["calls"] == 1
    assert sets.runs(f"{folder}/manifest.json") == [run], "no other version of the set was processed"
    assert [len(sets.runs(key)) for key in (a, b)] == [1, 1], "each part was processed by the pipeline before"


@pytest.mark.failure_mode("F493")
@pytest.mark.parametrize("name", ["Parts", "Loads"])
def test_rejected_rows_are_in_their_bucket_until_the_file_is_repaired(sets: Sets, command: Command, name: str) -> None:
    """`Parts` is the pipeline of objects, and the file is a part of a set of `Loads`."""
    folder = {"Parts": "tables", "Loads": "loads/tables"}[name]
    key = file = f"{folder}/a.csv"
    s3, place = sets.aws.client("s3"), {"Bucket": sets.found["RejectsBucket"]}
    version = sets.put(file, "n\n1\nx\n")
    if name == "Loads":
        key = f"{folder}/manifest.json"
        sets.put(key, ["a.csv"])
    place["Key"] = f"{name.lower()}/{key}.rejects.jsonl"

    def listed() -> list[tuple[str, int, int]]:
        found = command("list", "--status", "rejected-rows", pipeline="Parts" if name == "Parts" else f"{name}OfTests")
        return [(row["key"], row["rejected_rows"], row["read_rows"]) for row in found["rows"]]

    sets.wait(listed, "the rejected rows are listed")
    assert listed() == [(key, 1, 2)]
    row = json.loads(s3.get_object(**place)["Body"].read())
    assert (row["source"], row["version_id"], row["line"], row["column"]) == (file, version, 3, "n")
    sets.put(file, "n\n1\n2\n")
    # A row in work is not listed either.
    sets.wait(lambda: "intake-removed" in s3.head_object(**place)["Metadata"], "the output is removed")
    sets.wait(lambda: not listed(), "the repaired file is committed")


@pytest.mark.failure_mode("F170")
def test_a_missing_part_is_a_waiting_row_and_its_arrival_completes_the_set(sets: Sets, command: Command) -> None:
    """The command names the parts with their status."""
    key = "loads/waits/manifest.json"
    one = sets.put("loads/waits/1", "one")
    sets.put(key, ["1", "2", "3"])
    row = sets.row_with(key, "Loads", status="FAILED", reason="2 of 3 parts are missing: loads/waits/2, loads/waits/3")
    assert row["waiting_since"]
    assert row["needs_review"]
    assert sets.runs(key) == []
    # Its age is a metric before its deadline.
    assert sets.invoke("Loads", {"auditSets": True})["oldestWaitingMs"] > 0
    sets.wait(lambda: any(age > 0 for age in sets.ages("Loads")), "the age of the waiting set is a metric")
    status = command("status")
    assert (status["waiting"], status["maxWaitSeconds"]) == (1, 259_200)
    shown = command("inspect", key)
    assert (shown["agree"], shown["row"]["status"]) == (True, "FAILED")
    assert [(part["key"][-1], part["version"], part["status"]) for part in shown["parts"]] == [
        ("1", f"v#{one}", "PROCESSED"),
        ("2", None, "no row"),
        ("3", None, "no row"),
    ]
    # A line comes later than its row.
    sets.wait(
        lambda: {one["outcome"] for one in command("inspect", key)["history"]["attempts"]} == {"Waiting"},
        "the attempts are in the log",
    )
    two, three = sets.put("loads/waits/2", "two"), sets.put("loads/waits/3", "three")
    sets.run_of(key, ("loads/waits/1", one, "one"), ("loads/waits/2", two, "two"), ("loads/waits/3", three, "three"))
    sets.row_with(key, "Loads", status="PROCESSED")


def test_a_set_is_rejected_after_its_deadline_and_heals_when_the_part_comes(sets: Sets, command: Command) -> None:
    key = "hasty/1/manifest.json"
    sets.put(key, ["part"])
    row = sets.row_with(key, "Hasty", status="REJECTED")
    assert "1 of 1 parts are missing: hasty/1/part" in row["reason"]
    assert [one["key"] for one in command("list", "--status", "REJECTED", pipeline="HastyOfTests")["rows"]] == [key]
    assert command("status", pipeline="HastyOfTests")["rejected"] == 1
    found = command("retry", "--prefix=", "--yes", pipeline="HastyOfTests")
    assert found["redriven"]["moved"] + found["reopened"] == 1
    version = sets.put("hasty/1/part", "late")
    sets.run_of(key, ("hasty/1/part", version, "late"))
    sets.row_with(key, "Hasty", status="PROCESSED")


def test_replaced_parts_and_manifests_make_new_versions_and_duplicates_make_none(sets: Sets) -> None:
    key = "loads/versions/manifest.json"
    a, b = "loads/versions/a", "loads/versions/b"
    first = sets.put(a, "first")
    sets.put(key, ["a"])
    sets.run_of(key, (a, first, "first"))
    second = sets.put(a, "second")
    sets.run_of(key, (a, second, "second"))
    other = sets.put(b, "other")
    sets.put(key, ["b", "a"])
    sets.run_of(key, (b, other, "other"), (a, second, "second"))
    settled = sets.row_with(key, "Loads", status="PROCESSED")
    queue = sets.aws.client("sqs")
    for _ in range(3):
        body = own_message(Origin.PART, sets.found["Bucket"], key)
        queue.send_message(QueueUrl=sets.found["LoadsQueueUrl"], MessageBody=body)
        again = own_message(Origin.AUDIT, sets.found["Bucket"], a)
        queue.send_message(QueueUrl=sets.found["PartsQueueUrl"], MessageBody=again)

    # The message of a part that was processed before wakes its sets too.
    drained(sets.aws, sets.found["PartsQueueUrl"], sets.found["LoadsQueueUrl"])
    assert [run["calls"] for run in sets.runs(key)] == [1, 1, 1]
    assert sets.row(key, "Loads")["fence"] == settled["fence"]


def test_a_marker_closes_its_folder(sets: Sets) -> None:
    key = "exports/day/_SUCCESS"
    one, two = sets.put("exports/day/part-1", "1"), sets.put("exports/day/deep/part-2", "2")
    sets.put(key, "")
    sets.run_of(key, ("exports/day/deep/part-2", two, "2"), ("exports/day/part-1", one, "1"))
    assert sets.runs("exports/day/part-1")[0]["calls"] == 1


def test_a_folder_is_processed_when_it_is_quiet(sets: Sets) -> None:
    one, two = sets.put("drops/eu/1", "1"), sets.put("drops/eu/2", "2")
    sets.run_of("drops/eu/", ("drops/eu/1", one, "1"), ("drops/eu/2", two, "2"))
    three = sets.put("drops/eu/3", "3")
    sets.run_of("drops/eu/", ("drops/eu/1", one, "1"), ("drops/eu/2", two, "2"), ("drops/eu/3", three, "3"))
    assert len(sets.runs("drops/eu/")) == 2


def test_the_audit_runs_in_the_function_of_the_sets(sets: Sets, command: Command) -> None:
    """`audit` starts it, and `report` and `status` show its record."""
    found = command("audit", "--resend")
    assert found.get("complete") is True, found
    assert found["findings"] == [], "each set is younger than the settle time"
    assert found["checked"] >= 1
    assert command("audit", "--last")["runId"] == found["runId"]
    assert command("status")["audit"]["last"]["summary"] == f"{found['checked']} sets agree with the ledger"


@pytest.mark.failure_mode("F165")
def test_a_set_is_processed_again_when_a_person_asks_for_it(sets: Sets, command: Command) -> None:
    """The same version, once for an ID, under a new fence."""
    key = "loads/again/manifest.json"
    one = sets.put("loads/again/1", "one")
    sets.put(key, ["1"])
    sets.run_of(key, ("loads/again/1", one, "one"))
    before = sets.row_with(key, "Loads", status="PROCESSED")
    asked = command("retry", "--again", key, "--yes")
    command("retry", "--again", key, "--id", asked["requestId"], "--yes")
    sets.row_with(key, "Loads", status="PROCESSED", served_reprocess_id=asked["requestId"])
    [run], after = sets.runs(key), sets.row(key, "Loads")
    assert (run["parts"], run["calls"]) == ([("loads/again/1", one, "one")], 2)
    assert after["fence"] > before["fence"]
    assert "is no set of LoadsOfTests" in command("retry", "--again", "loads/again/1", code=2)
