"""An execution environment that is warm keeps its consumer. No error of one invocation may decide a later one."""

import json
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.protocol.row import Status
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import MemorySQS
from intake_ledger_testing.memory_step_functions import MemoryStepFunctions
from intake_ledger_testing.outcome_counter import OutcomeCounter
from tests.kinds.cells import Cell
from tests.kinds.conformance import CELLS, Place
from tests.unit.sets.bench import SetBench

MANIFEST = FormSettings(FormKind.MANIFEST, "*.json")
REQUESTS: dict[type, tuple[str, tuple[str, ...]]] = {
    MemoryS3: ("AccessDenied", ("head_object", "get_object", "list_objects_v2")),
    MemoryDynamoDB: (
        "InternalServerError",
        ("put_item", "update_item", "get_item", "batch_get_item", "batch_write_item", "query", "transact_write_items"),
    ),
    MemorySQS: ("InternalError", ("send_message", "change_message_visibility_batch")),
    MemoryStepFunctions: ("ThrottlingException", ("start_execution", "describe_execution")),
}


class Refusals:
    """AWS refuses one of its requests, and some after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first = self.left = self.asked = 0
        for service, (code, operations) in REQUESTS.items():
            for operation in operations:
                monkeypatch.setattr(service, operation, self._refused(getattr(service, operation), code, operation))
        # The local pipeline raises errors that its own AWS cannot have.
        monkeypatch.setattr(OutcomeCounter, "log_error", lambda *_: None)

    def begin(self, first: int, number: int) -> None:
        """Refuse `number` requests from this one on."""
        self.first, self.left, self.asked = first, number, 0

    def _refused(self, method: Any, code: str, operation: str) -> Any:
        def request(*plain: Any, **arguments: Any) -> Any:
            self.asked += 1
            if self.asked > self.first and self.left:
                self.left -= 1
                status: Any = {"HTTPStatusCode": 403 if code == "AccessDenied" else 500, "HTTPHeaders": {}}
                raise ClientError({"Error": {"Code": code}, "ResponseMetadata": status}, operation)
            return method(*plain, **arguments)

        return request


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(monkeypatch)


@pytest.mark.failure_mode("F262")
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("place", CELLS, ids=" ".join)
def test_a_refused_request_is_forgotten(refusals: Refusals, place: Place, number: int) -> None:
    """Whichever request of AWS fails, the work is processed in the end by the same consumer."""
    tried = 0
    while True:
        kind = Cell(*place)
        kind.submit()
        refusals.begin(tried, number)
        kind.run()
        left, refusals.left = refusals.left, 0
        assert (kind.known().status, kind.sqs.dead_letters) == (Status.PROCESSED, []), f"request {tried} was refused"
        if left:
            break
        tried += 1
    assert tried >= 3


@pytest.mark.failure_mode("F262")
def test_a_manifest_that_s3_refused_for_a_while_is_read_again() -> None:
    """It was archived for a moment. A warm function and a new one end alike."""
    bench = SetBench(MANIFEST, warm=True)
    bench.put("a.csv")
    bench.run()
    bench.put("set.json", json.dumps(["a.csv"]))
    bench.s3.archived.add("set.json")
    bench.run(0.01)
    assert bench.known("set.json").status is Status.FAILED
    bench.s3.archived.clear()
    bench.run()
    assert (bench.known("set.json").status, len(bench.runs), bench.dead_letters) == (Status.PROCESSED, 1, [])


@pytest.mark.parametrize("versioned", [True, False])
def test_a_manifest_is_read_once_for_each_content(versioned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its date is that of the present upload, also where the ETag names the state."""
    read: list[str] = []
    get = MemoryS3.get_object

    def get_object(self: MemoryS3, **request: Any) -> Any:
        read.append(request["Key"])
        return get(self, **request)

    monkeypatch.setattr(MemoryS3, "get_object", get_object)
    bench = SetBench(MANIFEST, warm=True, versioned=versioned)
    bench.put("set.json", json.dumps(["a.csv"]))
    bench.run(0.5)
    reader = cast("Any", bench.new_worker().kind).reader
    first = reader.listing("set.json")
    bench.put("set.json", json.dumps(["a.csv"]))
    bench.run(0.5)
    second = reader.listing("set.json")
    assert read.count("set.json") == (2 if versioned else 1)
    assert (second.source.created_at or 0) > (first.source.created_at or 0)
