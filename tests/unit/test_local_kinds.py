"""The testing kit of messages and of sets of files: users test their processors with it."""

import json

import pytest

from cdk_intake_ledger.testing import Fault, LocalMessages, LocalSets
from intake_ledger import Commit, FileSet, KeyedMessage, NotYet, Unprocessable
from intake_ledger.protocol import Status

MANIFEST = "loads/7/manifest.json"


class Stock:
    """A downstream that counts each order once."""

    def __init__(self) -> None:
        self.booked: dict[str, dict[str, int]] = {}

    def process(self, message: KeyedMessage) -> Commit:
        if message.body["pieces"] < 1:
            raise Unprocessable("no pieces")
        self.booked.setdefault(message.key, {})[message.idempotency_key] = message.body["pieces"]
        return Commit(message.idempotency_key)


def order(number: int, article: str = "a", pieces: int = 1) -> dict[str, object]:
    return {"article": article, "order_id": number, "pieces": pieces}


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_each_message_takes_effect_once(seed: int | None) -> None:
    stock = Stock()
    intake = LocalMessages(stock.process, key="article", identity="order_id")
    for number in range(6):
        intake.send(order(number, "ab"[number % 2], pieces=number + 1))
    intake.duplicate()
    intake.reverse()
    intake.next(Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN, None, Fault.CONNECTION_CUT)
    intake.run(seed=seed)
    assert {key: sum(orders.values()) for key, orders in stock.booked.items()} == {"a": 9, "b": 12}
    assert intake.outcomes["Committed"] == 6
    assert intake.waiting == 0
    row = intake.row("a", 0)
    assert row
    assert row.status is Status.PROCESSED


def test_a_rejected_message_is_redriven() -> None:
    """Its row and its dead letter have the reason."""
    stock = Stock()
    intake = LocalMessages(stock.process, key="article", identity="order_id")
    intake.send(order(1, pieces=0))
    intake.send("no JSON")
    intake.run()
    row = intake.row("a", 1)
    assert row
    assert row.status is Status.REJECTED
    assert min(one.reason for one in intake.dead_letters) == "no pieces"
    assert len(intake.dead_letters) == 2
    intake.lose()
    intake.redrive()
    intake.run()
    assert len(intake.dead_letters) == 2


def test_an_error_of_a_message_reaches_the_test() -> None:
    intake = LocalMessages(lambda message: str(message.body["no such name"]), key="k", identity="i", raise_errors=True)
    intake.send({"k": 1, "i": 1})
    with pytest.raises(KeyError, match="no such name"):
        intake.run()


class Load:
    """A downstream that counts each version of a set once."""

    def __init__(self) -> None:
        self.loaded: dict[str, list[str]] = {}

    def process(self, files: FileSet) -> str:
        self.loaded[files.idempotency_key] = [part.read(100).decode() for part in files.parts]
        return files.version


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_set_is_processed_when_its_parts_are_committed(seed: int | None) -> None:
    load = Load()
    sets = LocalSets(load.process, manifest="loads/*/manifest.json")
    sets.put(MANIFEST, json.dumps(["a.csv", "b.csv"]))
    sets.put("loads/7/a.csv", "1")
    sets.duplicate()
    sets.run(hours=1)
    assert not load.loaded
    waiting = sets.row(MANIFEST)
    assert waiting
    assert waiting.status is Status.FAILED
    assert sets.waiting
    sets.put("loads/7/b.csv", "2")
    sets.reverse()
    sets.next(Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN)
    sets.run(seed=seed)
    assert list(load.loaded.values()) == [["1", "2"]]
    row, part = sets.row(MANIFEST), sets.part_row("loads/7/b.csv")
    assert row
    assert part
    assert (row.status, part.status) == (Status.PROCESSED, Status.PROCESSED)
    assert sets.outcomes["Committed"] == 1


def test_a_set_that_stays_incomplete_is_rejected_at_its_deadline() -> None:
    """And completed by the part that comes too late."""
    load = Load()
    sets = LocalSets(load.process, marker="exports/*/_SUCCESS", deadline=7_200, part_processor=later)
    sets.put("exports/1/a.csv", "slow")
    sets.put("exports/1/_SUCCESS", "")
    sets.run(hours=1)
    assert not load.loaded
    start = sets.now
    sets.run()
    assert "exports/1/a.csv" in sets.dead_letters[0].reason
    assert sets.now - start >= 3_600_000
    sets.put("exports/1/a.csv", "quick")
    sets.run()
    assert list(load.loaded.values()) == [["quick"]]


def later(change: object) -> None:
    """The part of the first upload waits."""
    content = change.read(100)  # type: ignore[attr-defined]
    if content == b"slow":
        raise NotYet("slow")


def test_a_quiet_folder_is_a_set() -> None:
    load = Load()
    sets = LocalSets(load.process, quiet_folder="drops/*/", quiet_seconds=600)
    sets.put("drops/1/a.csv", "1")
    sets.put("drops/1/b.csv", "2")
    sets.run(hours=0.1)
    assert not load.loaded
    sets.run()
    assert list(load.loaded.values()) == [["1", "2"]]


@pytest.mark.parametrize("forms", [{}, {"manifest": "m", "marker": "n"}])
def test_sets_have_one_form(forms: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="forms of sets: pass one of manifest, marker and quiet_folder"):
        LocalSets(Load().process, **forms)  # type: ignore[arg-type] # mypy takes the texts for other options


def test_what_is_no_function_is_refused_by_the_name_of_the_class() -> None:
    for kit in (lambda: LocalMessages(Stock, key="k", identity="i"), lambda: LocalSets(Load, marker="m")):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"pass a function, such as Local(Messages|Sets)\(process\)"):
            kit()
