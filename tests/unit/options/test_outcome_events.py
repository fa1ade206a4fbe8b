"""Events out: which change of a row is an outcome, and what EventBridge gets."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalMessages, LocalPipeline, LocalSets
from intake_ledger import Commit, ObjectChange, Unprocessable, outcome_events
from intake_ledger.contract import OUTCOME_BUS, OUTCOME_INTAKES
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.handover import MAX_RESULT_BYTES
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Row, Settlement, Status, row_attributes, to_dynamodb
from tests.known import known

KINDS = {"Orders": "objects"}
PK, SK = "inbox/eu/a.csv", "Orders@latest"
CLAIMED = Row(Status.PROCESSING, 8, version_id="v2", committed_state="v#v1", committed_fence=5, first_claimed_at=70)
COMMITTED = replace(
    CLAIMED, status=Status.PROCESSED, committed_state="v#v2", committed_fence=8, committed_at=90, commit_id="row 4"
)
REJECTED = replace(CLAIMED, status=Status.REJECTED, reason="no amount", reason_code="unprocessable")
LATER = replace(CLAIMED, status=Status.LATER_FORMAT)


def detail(before: Row | None, after: Row | None, pk: str = PK, sk: str = SK) -> dict[str, Any] | None:
    found = outcome_events.outcome_of(pk, sk, before, after, KINDS)
    return None if found is None else {"type": found["DetailType"], **json.loads(found["Detail"])}


def test_a_commit_has_the_names_of_its_effect() -> None:
    found = known(detail(CLAIMED, COMMITTED))
    assert {name: found[name] for name in ("type", "pipeline", "bucket", "key", "versionId", "fence", "commitId")} == {
        "type": "Intake Committed",
        "pipeline": "Orders",
        "bucket": "inbox",
        "key": "eu/a.csv",
        "versionId": "v2",
        "fence": "8",
        "commitId": "row 4",
    }


@pytest.mark.failure_mode("F563")
@pytest.mark.parametrize("character", ["\x01", "é", '"'])
def test_ten_events_with_the_longest_results_fit_into_a_request(character: str) -> None:
    """EventBridge takes 256 KB. The row has the whole result, and the event its beginning."""
    row = replace(COMMITTED, commit_id=character * (MAX_RESULT_BYTES // len(character.encode())))
    found = known(outcome_events.outcome_of(PK, SK, CLAIMED, row, KINDS))
    assert json.loads(found["Detail"])["commitId"].startswith(character * 50)
    assert len(json.dumps(found)) * outcome_events.ENTRIES < 256 * 1024


def test_a_rejection_has_its_reason() -> None:
    found = known(detail(CLAIMED, REJECTED))
    assert (found["type"], found["reason"], found["reasonCode"]) == ("Intake Rejected", "no amount", "unprocessable")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (None, CLAIMED, "a claim"),
        (CLAIMED, replace(CLAIMED, status=Status.FAILED, reason="timed out"), "a failure"),
        (COMMITTED, replace(COMMITTED, updated_at=99), "the commit stays"),
        (COMMITTED, None, "the row has expired"),
        (COMMITTED, replace(COMMITTED, settled_as=Settlement.REMOVAL), "the object was removed, and nothing ran"),
        (None, replace(COMMITTED, settled_as=Settlement.REMOVED_UNPROCESSED), "nothing was processed"),
        (None, replace(COMMITTED, committed_fence=None), "no attempt committed it"),
        (REJECTED, replace(REJECTED, spent_messages="m-1"), "the rejection stays"),
        (CLAIMED, LATER, "a later release decides"),
    ],
)
def test_other_changes_are_no_outcome(before: Row | None, after: Row | None, why: str) -> None:
    assert detail(before, after) is None, why


def test_each_further_commit_and_rejection_is_one() -> None:
    again = replace(COMMITTED, committed_fence=11, fence=11)
    assert detail(COMMITTED, again)["id"] != detail(CLAIMED, COMMITTED)["id"]  # type: ignore[index]
    assert detail(REJECTED, replace(REJECTED, fence=9)) is not None


@pytest.mark.failure_mode("F533")
def test_a_released_claim_of_a_rejected_state_is_no_further_rejection() -> None:
    rejected = row_changes.rejected(CLAIMED, Reason(ReasonCode.UNPROCESSABLE, "no"), review_partition="r", now=90)
    again = replace(rejected, status=Status.PROCESSING, fence=11)
    released = row_changes.released(again, rejected)
    first, later = detail(CLAIMED, rejected), detail(None, released)
    assert first is not None
    assert later is not None
    assert (released.fence, detail(again, released)) == (11, None)
    assert (first["id"], first["fence"]) == (later["id"], later["fence"])
    assert detail(again, replace(released, rejected_fence=11)) is not None


@pytest.mark.parametrize(
    ("pk", "sk"), [(PK, "Others@latest"), ("Orders#downstream", "breaker"), ("inbox", "Orders@ledger")]
)
def test_rows_of_others_and_other_items_are_none(pk: str, sk: str) -> None:
    assert detail(CLAIMED, COMMITTED, pk, sk) is None


class FakeBus:
    """Takes the events, but for those of keys in `refused`."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.taken: list[str] = []
        self.requests = 0

    def put_events(self, *, Entries: Sequence[dict[str, Any]]) -> Any:  # noqa: N803 - as boto3
        self.requests += 1
        keys = [json.loads(one["Detail"])["key"] for one in Entries]
        self.taken += [key for key in keys if key not in self.refused]
        return {"Entries": [{"ErrorCode": "ThrottlingException"} if key in self.refused else {} for key in keys]}


def image(row: Row, key: str) -> dict[str, Any]:
    return to_dynamodb({"pk": f"inbox/{key}", "sk": SK} | row_attributes(row))


def batch(*keys: str) -> dict[str, Any]:
    return {
        "Records": [
            {
                "dynamodb": {
                    "Keys": to_dynamodb({"pk": f"inbox/{key}", "sk": SK}),
                    "SequenceNumber": f"number of {key}",
                    "OldImage": image(CLAIMED, key),
                    "NewImage": image(COMMITTED, key),
                }
            }
            for key in keys
        ]
    }


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> FakeBus:
    made = FakeBus()
    monkeypatch.setenv(OUTCOME_INTAKES, json.dumps(KINDS))
    monkeypatch.setenv(OUTCOME_BUS, "outcomes")
    monkeypatch.setattr(outcome_events, "_client", lambda: made)
    return made


def test_a_batch_is_sent_in_requests_of_ten(bus: FakeBus) -> None:
    keys = [f"k{number}" for number in range(23)]
    assert outcome_events.handler(batch(*keys), None) == {"batchItemFailures": []}
    assert (bus.taken, bus.requests) == (keys, 3)


def test_a_refused_event_is_repeated_with_all_behind_it(bus: FakeBus) -> None:
    """Lambda repeats a batch of a stream from the first failed record on: no event is lost."""
    keys = [f"k{number}" for number in range(23)]
    bus.refused = {"k4", "k15"}
    assert outcome_events.handler(batch(*keys), None) == {"batchItemFailures": [{"itemIdentifier": "number of k4"}]}
    bus.refused = set()
    outcome_events.handler(batch(*keys[4:]), None)
    assert set(bus.taken) == set(keys)


@pytest.mark.failure_mode("F663")
@pytest.mark.parametrize("ends", ["committed", "rejected"])
def test_outcomes_of_one_call_have_different_ids(ends: str) -> None:
    """Their rows have the same fence."""

    def process(changes: Sequence[ObjectChange]) -> dict[str, Commit | str | Exception | None]:
        end = None if ends == "committed" else Unprocessable("no")
        return {change.idempotency_key: end for change in changes}

    objects = LocalPipeline(process, max_per_call=3)
    for key in "abc":
        objects.put(key, "content")
    objects.run()
    rows = {key: objects.row(key) for key in "abc"}
    ids = set()
    for key, row in rows.items():
        found = known(outcome_events.outcome_of(f"local-bucket/{key}", "local@latest", None, row, {"local": "objects"}))
        ids.add(json.loads(found["Detail"])["id"])
    assert len({row.fence for row in rows.values() if row}) == 1
    assert len(ids) == 3


@pytest.mark.failure_mode("F663")
def test_an_id_can_be_the_identity_of_a_message() -> None:
    """An intake of messages may receive the events. A row of the longest names has an ID of 32 characters."""
    found = known(detail(CLAIMED, COMMITTED, sk=f"Orders@{'v' * 1_000}"))
    assert len(found["id"]) == 32


def test_an_event_has_the_idempotency_key_that_the_processor_got() -> None:
    """Of an object, of a message and of a set."""
    seen: list[Any] = []
    objects = LocalPipeline(seen.append)
    objects.put("a", "content")
    messages = LocalMessages(seen.append, key="order", identity="id")
    messages.send({"order": "o-7", "id": "m-1"})
    sets = LocalSets(seen.append, marker="exports/*/_SUCCESS")
    sets.put("exports/7/b", "content")
    sets.put("exports/7/_SUCCESS", "")
    for intake in (objects, messages, sets):
        intake.run()
    rows = (objects.row("a"), messages.row("o-7", "m-1"), sets.row("exports/7/_SUCCESS"))
    names = (("local-bucket", "a"), ("messages:local", "o-7"), ("local-bucket", "exports/7/_SUCCESS"))
    kinds = (("local", "objects"), ("local", "messages"), ("local-sets", "sets"))
    for change, row, place, (name, kind) in zip(seen, rows, names, kinds, strict=True):
        found = known(outcome_events.outcome_of("/".join(place), f"{name}@latest", None, row, {name: kind}))
        assert json.loads(found["Detail"])["idempotencyKey"] == change.idempotency_key, kind
