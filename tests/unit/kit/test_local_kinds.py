"""The testing kit of messages and of sets of files: users test their processors with it."""

import base64
import json

import pytest

from cdk_intake_ledger.testing import DeadLetter, Fault, LocalMessages, LocalSets
from intake_ledger import Commit, FileSet, KeyedMessage, NotYet, Unprocessable
from intake_ledger.protocol.row import Status
from tests.unit.support import DAY

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


@pytest.mark.parametrize("source", ["fifo", "kinesis"])
def test_no_order_of_a_run_changes_the_order_of_a_group(source: str) -> None:
    """SQS and Lambda never deliver a message before an earlier one of its group. A copy has the group too."""
    for seed in range(20):
        begun: list[tuple[str, int]] = []

        def process(message: KeyedMessage, begun: list[tuple[str, int]] = begun) -> None:
            begun.append((message.key, message.body["order_id"]))

        intake = LocalMessages(process, key="article", identity="order_id", source=source)
        for number in range(8):
            intake.send(order(number, "ab"[number % 2]), group="ab"[number % 2])
        intake.duplicate()
        intake.reverse()
        intake.run(seed=seed, hours=0)
        assert {one.group for one in intake._sqs.messages} <= {"a", "b"}
        intake.run(seed=seed)
        for group in "ab":
            first = list(dict.fromkeys(number for key, number in begun if key == group))
            assert first == sorted(first), (seed, group)


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


@pytest.mark.failure_mode("F614")
@pytest.mark.parametrize("source", ["sqs", "fifo", "kinesis"])
@pytest.mark.parametrize("days", [0, 400])
def test_a_person_opens_a_rejected_message_with_the_content_that_is_chosen(source: str, days: int) -> None:
    """Other content has another idempotency key, and keeps it. The first content keeps the first one."""
    good, calls = set[int](), []

    def process(message: KeyedMessage) -> str:
        calls.append((message.body["pieces"], message.idempotency_key, message.fence))
        if message.body["pieces"] not in good:
            raise Unprocessable("no pieces")
        return "booked"

    intake = LocalMessages(process, key="article", identity="order_id", source=source)

    def letters() -> dict[int, DeadLetter]:
        opens = (pieces_of(one.body) for one in intake.dead_letters)
        return dict(zip(opens, intake.dead_letters, strict=True))

    def pieces_of(body: str) -> int:
        content = json.loads(body)
        if "intakeLedger" in content:
            content = json.loads(base64.b64decode(content["intakeLedger"]["record"]["kinesis"]["data"]))
        return int(content["pieces"])

    for pieces in (0, 3, 5):
        intake.send(order(1, pieces=pieces), group="a")
        intake.run()
        intake.clock.advance(days * DAY)
    intake.redrive()  # the others stay, because a person has to choose
    intake.run()
    assert [one for one, _, _ in calls] == [0, 0]
    for pieces in (3, 5, 0, 3):
        intake.open(letters()[pieces])
        intake.run()
    good.add(3)
    intake.open(letters()[3])
    intake.run()
    row = intake.row("a", 1)
    assert row
    assert (row.status, row.commit_id, intake.waiting) == ("PROCESSED", "booked", 0)
    assert [one for one, _, _ in calls] == [0, 0, 3, 5, 0, 3, 3]
    keys = {pieces: {key for one, key, _ in calls if one == pieces} for pieces in (0, 3, 5)}
    assert len(set.union(*keys.values())) == len(keys) == 3
    assert [fence for _, _, fence in calls] == sorted({fence for _, _, fence in calls})
    with pytest.raises(ValueError, match="is not rejected with this dead letter"):
        intake.open(letters()[5])


@pytest.mark.failure_mode("F615")
@pytest.mark.parametrize("fingerprint", ["", "pieces"])
def test_no_other_content_takes_a_message_that_a_person_has_opened(fingerprint: str) -> None:
    """The chosen content fails and is tried again. Meanwhile a late copy of the first one comes."""
    fails, calls = [True], list[int]()

    def process(message: KeyedMessage) -> None:
        calls.append(message.body["pieces"])
        if message.body["pieces"] < 1:
            raise Unprocessable("no pieces")
        if fails.pop():
            fails.append(False)
            raise RuntimeError("the stock is out")

    intake = LocalMessages(process, key="article", identity="order_id", fingerprint=fingerprint)
    for pieces in (0, 3):
        intake.send(order(1, pieces=pieces))
        intake.run()
    intake.open(intake.dead_letters[1])
    intake.run(hours=0)
    intake.clock.advance(60_000)
    intake.send(order(1, pieces=0))
    intake.reverse()
    intake.run()
    row = intake.row("a", 1)
    assert row
    assert (row.status, calls) == ("PROCESSED", [0, 3, 3])
    assert [one.attributes["reason_code"] for one in intake.dead_letters][1:] in (["identity_collides"], [])


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


@pytest.mark.failure_mode("F667")
@pytest.mark.parametrize(("second", "warns"), [("placed", False), ("cancelled", True)])
def test_a_message_that_an_identity_swallows_is_a_warning(
    caplog: pytest.LogCaptureFixture, second: str, warns: bool
) -> None:
    """The runtime counts it in `IdentityCollisions`."""
    intake = LocalMessages(lambda _: None, key="article", identity="order")
    for event in ("placed", second):
        intake.send({"article": "nuts", "order": "o-1", "type": event})
        intake.run()
    assert ("takes no effect" in caplog.text) is warns
