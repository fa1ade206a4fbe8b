"""`of_execution` of objects, messages and sets: the thing that an execution works for, in a durable function."""

import json
import sqlite3
from contextlib import closing
from io import BytesIO
from typing import Any, cast

import pytest

from cdk_intake_ledger.testing import LocalMessages, LocalPipeline, LocalRunner, LocalSets
from intake_ledger import FileSet, KeyedMessage, ObjectChange, ObjectGone, Overtaken
from intake_ledger.outputs.sql import lock_object, schema
from intake_ledger.protocol.row import Ordering
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import s3_error
from tests.known import known


class Durable:
    """A pipeline whose processor is a durable function, and the events of its executions."""

    def __init__(self, ordering: Ordering = Ordering.LATEST) -> None:
        self.events: list[dict[str, Any]] = []
        self.outputs = MemoryOutputs()
        self.local = LocalPipeline(cast("Any", self._run), ordering=ordering, runner=LocalRunner.DURABLE_FUNCTION)

    def _run(self, event: dict[str, Any]) -> dict[str, str]:
        self.events.append(json.loads(json.dumps(event)))
        return {"commit": "done"}

    def change(self, number: int) -> ObjectChange:
        """The change of an execution, made in another invocation of the function."""
        return ObjectChange.of_execution(self.events[number], make_client=lambda: cast("Any", self))

    def __getattr__(self, name: str) -> Any:
        """The client of S3: it reads the pipeline's objects, and writes outputs."""
        key = {"get_object": self.local._s3}
        return getattr(key.get(name, self.outputs), name)

    def two(self) -> tuple[ObjectChange, ObjectChange]:
        """Two versions of one key, of which each had an execution."""
        for content in ("1", "22"):
            self.local.put("in/a.csv", content)
            self.local.run()
        return self.change(0), self.change(1)


def content(change: ObjectChange) -> bytes:
    return f"{change.fence},{change.key}".encode()


def test_it_has_the_fields_of_the_claim_and_opens_its_version() -> None:
    durable = Durable()
    first, second = durable.two()
    row = known(durable.local.row("in/a.csv"))
    assert (second.fence, second.attempt, second.key, second.version_id) == (row.fence, 1, "in/a.csv", row.version_id)
    assert second.fence > first.fence
    assert second.idempotency_key != first.idempotency_key
    assert [one.open().read() for one in (first, second)] == [b"1", b"22"]
    with second.download() as file:
        assert file.read() == b"22"


@pytest.mark.failure_mode("F525")
def test_a_late_execution_cannot_write_over_a_later_one() -> None:
    """A stopped execution runs on: its last step writes after the step of its successor."""
    durable = Durable()
    late, current = durable.two()
    current.output("results", "out/a").put(content(current))
    with pytest.raises(Overtaken):
        late.output("results", "out/a").put(content(late))
    assert durable.outputs.objects["results", "out/a"].content == content(current)


@pytest.mark.failure_mode("F525")
def test_a_late_execution_writes_nothing_to_a_database() -> None:
    durable = Durable()
    late, current = durable.two()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema())
        lock_object(connection.cursor(), current)
        lock_object(connection.cursor(), current)
        with pytest.raises(Overtaken):
            lock_object(connection.cursor(), late)


def test_a_step_that_runs_again_writes_the_same() -> None:
    """Lambda repeats a step that died before its checkpoint, with the fence of its execution."""
    durable = Durable()
    durable.two()
    for _ in range(2):
        durable.change(1).output("results", "out/a").put(content(durable.change(1)))
    assert durable.outputs.objects["results", "out/a"].content == content(durable.change(1))


@pytest.mark.failure_mode("F526")
def test_a_later_step_replaces_the_output_of_an_earlier_one() -> None:
    """In another invocation it has the same fence. It is no repeat, whose answer alone was lost."""
    durable = Durable()
    durable.two()
    for step in (b"draft", b"final", b"last"):
        change = durable.change(1)
        change.output("results", "out/a").put(content(change) + step)
        assert durable.outputs.objects["results", "out/a"].content.endswith(step)
    durable.change(1).output("results", "out/a").remove()
    assert b"last" not in durable.outputs.objects["results", "out/a"].content


def test_versions_have_fences_and_outputs_of_their_own() -> None:
    """With EVERY_VERSION, no version is late for another one."""
    first, second = Durable(Ordering.EVERY_VERSION).two()
    assert (first.fenced_version, second.fenced_version) == (first.version_id, second.version_id)
    for one in (second, first):
        one.output("results", f"out/{one.version_id}").put(content(one))


@pytest.mark.parametrize(
    "changes",
    [
        {"intake": 1},
        {"format": 2},
        {"kind": "moved"},
        {"parts": {}},
        {"body": {}},
        {"versionId": None, "etag": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_events_are_refused(changes: dict[str, object]) -> None:
    durable = Durable()
    durable.two()
    with pytest.raises(ValueError, match="not the input of an execution for an object"):
        ObjectChange.of_execution(durable.events[0] | changes)
    with pytest.raises(RuntimeError, match="pass remaining_seconds"):
        _ = durable.change(0).remaining_seconds
    known = ObjectChange.of_execution(durable.events[0], remaining_seconds=lambda: 3.0)
    assert known.remaining_seconds == 3.0


class DurableSets:
    """Sets whose processor is a durable function, and the events of its executions."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.outputs = MemoryOutputs()
        self.local = LocalSets(cast("Any", self._run), manifest="*/set.json", runner=LocalRunner.DURABLE_FUNCTION)

    def _run(self, event: dict[str, Any]) -> dict[str, str]:
        self.events.append(json.loads(json.dumps(event)))
        return {"commit": "done"}

    def files(self, number: int) -> FileSet:
        return FileSet.of_execution(self.events[number], make_client=lambda: cast("Any", self))

    def get_object(self, **request: Any) -> Any:
        """Answer as S3, which has the lists of parts in another bucket."""
        if request["Bucket"] != "lists":
            return self.local.parts._s3.get_object(**request)
        content = self.local.lists.get(request["Key"].removesuffix(".json"))
        if content is None:
            raise s3_error("GetObject", 404, "NoSuchKey")
        return {"Body": BytesIO(content)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outputs, name)

    def two(self) -> tuple[FileSet, FileSet]:
        """Two versions of one set, of which each had an execution."""
        self.local.put("a/set.json", '["2", "1"]')
        self.local.put("a/1", "one")
        for part in ("two", "TWO"):
            self.local.put("a/2", part)
            self.local.run()
        return self.files(0), self.files(1)


@pytest.mark.failure_mode("F525")
def test_a_set_has_its_parts_and_a_late_execution_writes_nothing() -> None:
    """The parts are those of the claimed version, in the order of the manifest."""
    durable = DurableSets()
    late, current = durable.two()
    assert [[part.open().read() for part in one.parts] for one in (late, current)] == [
        [b"two", b"one"],
        [b"TWO", b"one"],
    ]
    row = known(durable.local.row("a/set.json"))
    assert (current.key, current.version, current.fence, current.attempt) == (
        "a/set.json",
        row.version_id,
        row.fence,
        1,
    )
    assert current.idempotency_key != late.idempotency_key
    current.output("results", "out/a").put(f"{current.fence},x".encode())
    with pytest.raises(Overtaken):
        late.output("results", "out/a").put(f"{late.fence},x".encode())
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema())
        lock_object(connection.cursor(), current)
        with pytest.raises(Overtaken):
            lock_object(connection.cursor(), late)


def test_a_set_whose_list_was_never_stored_is_gone() -> None:
    """Its worker died before, and the set has changed. The next attempt has another list."""
    durable = DurableSets()
    durable.two()
    durable.local._outputs.objects.clear()
    with pytest.raises(ObjectGone, match="the list of the set's parts is not there"):
        durable.files(0)


@pytest.mark.failure_mode("F538")
def test_the_fence_of_a_message_is_that_of_its_key_in_both_forms() -> None:
    """The clock of a second worker is an hour behind. Its row has a lower fence than the key's last execution."""
    events: list[dict[str, Any]] = []

    def run(event: dict[str, Any]) -> dict[str, str]:
        events.append(event)
        return {"commit": "done"}

    local = LocalMessages(cast("Any", run), key="order", identity="id", runner=LocalRunner.DURABLE_FUNCTION)
    for number in ("1", "2"):
        local.send({"order": "a", "id": number})
        local.run()
        local.clock.advance(-3600 * 1000)
    first, second = (KeyedMessage.of_execution(one) for one in events)
    assert second.fence > first.fence
    assert [one["fenceText"] for one in events] == [str(one["fence"]) for one in events]
    assert (second.key, second.identity, second.body) == ("a", "2", {"order": "a", "id": "2"})
    assert json.loads(second.raw) == second.body
    assert second.attempt == 1
    assert second.idempotency_key != first.idempotency_key


def test_an_input_of_another_kind_is_refused() -> None:
    durable = Durable()
    durable.two()
    for kind, words in ((KeyedMessage, "a message"), (FileSet, "a set")):
        with pytest.raises(ValueError, match=f"for {words}: pass the event"):
            kind.of_execution(durable.events[0])
