"""Each failure and each rejection has a stable code: in the row, in the dead-letter copy and in the log line."""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.consumer.deadline import Overrun
from intake_ledger.events.parser import own_message
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.protocol import reasons
from intake_ledger.protocol.change import Origin, State, StateKind
from intake_ledger.protocol.errors import (
    Fenced,
    NotBegun,
    NotYet,
    ObjectGone,
    ObjectReadError,
    RemoteError,
    RemoteTimeoutError,
    TransactionRefused,
)
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode, matches_reason
from intake_ledger.protocol.row import Ordering, Row, Status, row_attributes, row_from_attributes
from tests.unit.consumer.test_consumer import Bench, message, put, raising
from tests.unit.support import BUCKET, DAY, KEY, MakeWorld, World, created, notification, record

ROOT = Path(__file__).parents[3]
DENIED_RESPONSE: Any = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
DENIED = ClientError(DENIED_RESPONSE, "GetObject")


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


class TestCodes:
    def test_codes_are_a_contract(self) -> None:
        """People redrive by code. This list may grow. No code may be renamed or removed."""
        assert set(ReasonCode) == {
            "attempts_exhausted", "consumer_error", "copy_lost", "dead_letter_refused", "ended", "group_held",
            "identity_collides", "identity_rejected",
            "invalid_output", "invalid_transaction",
            "late_write", "lease_lost", "lock_broken", "same_content", "max_receives", "max_wait", "no_space",
            "not_yet", "object_gone", "processor_error", "processor_throttled", "processor_timeout", "read_error",
            "removed_unprocessed", "reprocess_id_ahead", "result_not_kept", "overtaken", "s3_refused", "start_refused",
            "max_rate", "schema_drift", "tag_missing", "tag_refused", "tag_refuses", "tags_full", "too_many_rejects",
            "transaction_refused",
            "unparseable_message", "unprocessable", "version_missing", "wrong_bucket", "wrong_return",
        }  # fmt: skip

    def test_the_operating_page_lists_each_code_with_its_meaning(self) -> None:
        page = (ROOT / "docs" / "operating.md").read_text()
        table = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 3]
        listed = {row.split("|")[1].strip(" `"): row.split("|")[2].strip() for row in table}
        assert {code: listed.get(code) for code in ReasonCode} == _meanings()


def _meanings() -> dict[str, str]:
    """The docstring of each code."""
    [definition] = [
        node
        for node in ast.parse(inspect.getsource(reasons)).body
        if isinstance(node, ast.ClassDef) and node.name == "ReasonCode"
    ]
    meanings = {}
    for member, docstring in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(docstring, ast.Expr):
            meanings[ast.literal_eval(member.value)] = str(ast.literal_eval(docstring.value))
    return meanings


class TestMatching:
    @pytest.mark.parametrize(
        ("wanted", "code", "text", "expected"),
        [
            ("processor_error", "processor_error", "KeyError", True),
            ("processor_error", "processor_timeout", "processor_error", False),
            ("Processor_Error", "processor_error", "KeyError", False),
            ("keyerror", "processor_error", "KeyError at invoices:42", True),
            ("ValueError", "processor_error", "KeyError", False),
            ("processor_timeout", None, "the processor ran longer than its limit of 60 s", False),
            ("ran longer", "", "the processor ran longer than its limit of 60 s", True),
            ("max_wait", None, "waited for 30 hours (max_wait): no customer", True),
            ("code_of_a_later_release", "code_of_a_later_release", "?", True),
        ],
    )
    def test_a_code_matches_exactly_and_a_text_in_part(
        self, wanted: str, code: str | None, text: str, *, expected: bool
    ) -> None:
        """A reason without a code matches by its text."""
        assert matches_reason(wanted, code, text) is expected


class TestConsumer:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (KeyError("total"), ReasonCode.PROCESSOR_ERROR),
            (Fenced("of another ledger"), ReasonCode.PROCESSOR_ERROR),
            (RemoteError("the function failed"), ReasonCode.PROCESSOR_ERROR),
            (RemoteTimeoutError("the function ran into its own timeout"), ReasonCode.PROCESSOR_TIMEOUT),
            (Overrun(), ReasonCode.PROCESSOR_TIMEOUT),
            (NotBegun("Lambda throttles the function"), ReasonCode.PROCESSOR_THROTTLED),
            (NotYet("no customer"), ReasonCode.NOT_YET),
            (ObjectReadError("the connection to S3 ended"), ReasonCode.READ_ERROR),
            (TransactionRefused("element 1: no", passing=False), ReasonCode.TRANSACTION_REFUSED),
            (ObjectGone("v1"), ReasonCode.OBJECT_GONE),
            (DENIED, ReasonCode.S3_REFUSED),
        ],
    )
    def test_a_failed_row_has_the_code_of_its_error(
        self,
        bench: Bench,
        error: BaseException,
        code: ReasonCode,
    ) -> None:
        bench.acts = [raising(error)] * 2
        state, body = put(bench)
        bench.handle(message(body))
        row = bench.row(state)
        assert (row.status, row.reason_code) == (Status.FAILED, code)

    def test_a_wait_that_lasts_too_long_is_rejected_as_max_wait(self, bench: Bench) -> None:
        bench.acts = [raising(NotYet("no customer"))] * 2
        state, body = put(bench)
        bench.handle(message(body))
        bench.world.clock.advance(4 * DAY)
        bench.handle(message(body, receives=2))
        assert bench.row(state).reason_code == ReasonCode.MAX_WAIT
        assert [copy["reason_code"] for _, copy in bench.queues.copies] == [ReasonCode.MAX_WAIT]

    def test_messages_that_cannot_be_handled_have_a_code(self, make_world: MakeWorld) -> None:
        bench = Bench(make_world(ordering=Ordering.EVERY_VERSION))
        state = State(StateKind.OBJECT, "v1", "e1", 1)
        ahead = own_message(Origin.REPROCESS, BUCKET, KEY, state, reprocess_id="7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
        bodies = {
            "not JSON": ReasonCode.UNPARSEABLE_MESSAGE,
            notification(record(KEY, state, bucket="another")): ReasonCode.WRONG_BUCKET,
            own_message(Origin.AUDIT, BUCKET, KEY): ReasonCode.VERSION_MISSING,
            ahead: ReasonCode.REPROCESS_ID_AHEAD,
        }
        for body in bodies:
            bench.handle(message(body))
        assert [copy["reason_code"] for _, copy in bench.queues.copies] == list(bodies.values())


class TestRow:
    def test_rows_of_later_releases_are_read(self) -> None:
        """A later release may write a code that this release does not know."""
        stored = row_attributes(Row(Status.REJECTED, 1, version_id="v1", reason="no"))
        row = row_from_attributes({**stored, "reason_code": "code_of_a_later_release"})
        assert row is not None
        assert (row.status, row.reason, row.reason_code) == (Status.REJECTED, "no", "code_of_a_later_release")


class TestLogLines:
    @pytest.fixture
    def telemetry(self, monkeypatch: pytest.MonkeyPatch) -> Telemetry:
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "orders")
        return PowertoolsTelemetry()

    @pytest.mark.parametrize(
        ("write", "code"),
        [
            (
                lambda t, claim, reason: t.ended(claim, OutcomeKind.FAILED, reason, duration_ms=1),
                ReasonCode.NO_SPACE,
            ),
            (lambda t, _, reason: t.unparseable(reason, "m1"), ReasonCode.NO_SPACE),
            (lambda t, _, reason: t.downstream_out(reason, pause_ms=1), ReasonCode.NO_SPACE),
            (lambda t, *_: t.log_error("it failed", "m1", OSError()), ReasonCode.CONSUMER_ERROR),
            (
                lambda t, claim, _: t.exhausted(claim.change, Row(Status.REJECTED, 1, reason_code="max_wait")),
                ReasonCode.MAX_WAIT,
            ),
        ],
    )
    def test_a_failure_is_logged_with_its_code(
        self,
        telemetry: Telemetry,
        world: World,
        caplog: pytest.LogCaptureFixture,
        write: Callable[[Telemetry, Claim, Reason], None],
        code: ReasonCode,
    ) -> None:
        claim = world.accept(created(world.s3.put(KEY, "1")))
        write(telemetry, claim, Reason(ReasonCode.NO_SPACE, "no space"))
        assert [vars(line)["reason_code"] for line in caplog.records] == [code]

    def test_a_success_is_logged_without_a_code(
        self, telemetry: Telemetry, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        claim = world.accept(created(world.s3.put(KEY, "1")))
        telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=1)
        assert [vars(line)["reason_code"] for line in caplog.records] == [None]
