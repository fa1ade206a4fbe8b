"""The audit function is killed at each of its requests, and SQS refuses messages. No finding waits for an interval."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from intake_ledger.audit import one_function
from intake_ledger.audit.diff import Line
from intake_ledger.audit.report import NAMED_FINDINGS, Report, Stopped
from intake_ledger.audit.runs import MOST_REPEATS, RunLeaseLost, RunNotDue
from intake_ledger.delivery_check.check import DeliveryCheck
from intake_ledger.delivery_check.looked import Looked
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.settings import KeyFilter
from tests.unit.audit.invocations import Invocations, Killed
from tests.unit.audit.support import AuditWorld

LOST = ("a", "c", "e", "f", "overtaken", "removed")
SEND_BATCH = 10
"""SQS's limit of SendMessageBatch. A death repeats at most this number of messages."""


def world(**more: Any) -> AuditWorld:
    """Six keys differ, in three pages of the listing and in the scan."""
    made = AuditWorld(page_size=3, **({"budget": len(LOST)} | more))
    for key in ("a", "c", "e", "f"):
        made.s3.put(key)
    for key in ("b", "d", "overtaken"):
        made.commit(key, made.s3.put(key))
    made.s3.put("overtaken")
    made.insert("waits", made.s3.put("waits"), Status.PROCESSING, lease_until=made.clock() + 3_600_000 * 24)
    made.commit("removed", State(StateKind.OBJECT, "1", "1", 1))
    return made


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        yield made


@pytest.mark.failure_mode("F119")
@pytest.mark.parametrize("after", [False, True])
def test_a_run_killed_at_any_request_has_sent_everything_in_the_next_invocation(
    patch: pytest.MonkeyPatch, after: bool
) -> None:
    """With a budget that suffices exactly, and without a flood of repeated messages."""
    kills, at = 0, 0
    while True:
        at += 1
        audit = Invocations(world(), patch)
        try:
            audit.tick(kill_at=at, after=after)
            break
        except Killed:
            kills += 1
        sent = Counter(audit.world.sent)
        # The lease of the invocation that died outlives one tick.
        audit.next_tick(2)
        try:
            report = audit.tick()
        except RunNotDue:
            # It was killed when all was done.
            assert sent == Counter(LOST), f"killed at request {at}"
            continue
        assert report.complete, f"killed at request {at}"
        assert report.lines.total() == report.listed == 8
        both = Counter(audit.world.sent)
        assert set(both) == set(LOST), f"killed at request {at}"
        assert both.total() - len(LOST) <= SEND_BATCH
        assert max(both.values()) <= 2
    assert kills > 20


@pytest.mark.failure_mode("F119", "F42")
def test_an_invocation_that_outlives_its_lease_loses_and_hides_nothing(patch: pytest.MonkeyPatch) -> None:
    """A second one audits the same bucket meanwhile. A few messages are sent twice; the first one ends."""
    audit = Invocations(world(), patch)
    others: list[Report] = []

    def first_another_one_runs(operation: str, _: object) -> None:
        if operation == "send_message_batch" and not others:
            others.append(Report("", 0))
            audit.next_tick(2)
            others.append(audit.tick())

    audit.gate.before = first_another_one_runs
    with pytest.raises(RunLeaseLost):
        audit.tick()
    assert others[-1].complete
    sent = Counter(audit.world.sent)
    assert set(sent) == set(LOST)
    assert sent.total() <= len(LOST) + SEND_BATCH


class TestRefusals:
    """F119: SQS takes a part of a batch."""

    @pytest.mark.failure_mode("F119")
    def test_a_refused_message_is_sent_again_by_the_same_invocation(self, patch: pytest.MonkeyPatch) -> None:
        """A moment later; nothing is sent twice."""
        audit = Invocations(world(), patch)
        refused = list[str]()

        def once(body: str) -> bool:
            if refused or '"c"' not in body:
                return False
            refused.append(body)
            return True

        audit.sqs.refuses = once
        report = audit.tick()
        assert (report.complete, report.resubmitted) == (True, len(LOST))
        assert sorted(audit.world.sent) == sorted(LOST)

    @pytest.mark.failure_mode("F119")
    def test_what_is_refused_all_the_time_is_sent_by_the_next_invocation(self, patch: pytest.MonkeyPatch) -> None:
        """At the next tick and not an interval later. The budget counts messages that SQS took."""
        audit = Invocations(world(), patch)
        audit.sqs.refuses = lambda body: '"c"' in body
        report = audit.tick()
        assert (report.stopped, report.resubmitted, audit.world.sent) == (Stopped.REFUSED, 5, sorted({*LOST} - {"c"}))
        assert (report.lines + report.unlisted)[Line.REFUSED] == 1
        assert "SQS refused messages: InternalError, try again" in report.delivery
        audit.sqs.refuses = lambda _: False
        audit.next_tick()
        report = audit.tick()
        assert (report.complete, report.resubmitted) == (True, 1)
        assert audit.world.sent == sorted(LOST)
        assert (report.lines + report.unlisted)[Line.MARKED] == 5, "by the invocation before"

    @pytest.mark.failure_mode("F119")
    def test_a_message_that_sqs_never_takes_does_not_stop_the_audit(self, patch: pytest.MonkeyPatch) -> None:
        """All others are sent, wherever it comes; after some ticks the interval counts again."""
        patch.setattr(one_function, "BATCH", 1)
        for later in range(7):
            # Each run begins at another candidate.
            audit = Invocations(world(budget=100), patch)
            audit.world.clock.advance(later)
            audit.sqs.refuses = lambda body: '"c"' in body
            audit.tick()
            assert audit.world.sent == sorted({*LOST} - {"c"})
        audit.next_tick()
        for _ in range(MOST_REPEATS):
            report = audit.tick()
            assert report.stopped is Stopped.REFUSED
            assert report.lines[Line.REFUSED] == 1
            # The marks of the first tick lapse after an hour.
            assert set(audit.world.sent) == {*LOST} - {"c"}
            audit.next_tick()
        with pytest.raises(RunNotDue):
            audit.tick()

    @pytest.mark.failure_mode("F119")
    def test_a_queue_that_takes_nothing_stops_the_run(self, patch: pytest.MonkeyPatch) -> None:
        """Each refused batch takes seconds. The next tick begins with all of them, and with all of the budget."""
        patch.setattr(one_function, "BATCH", 1)
        audit = Invocations(world(), patch)
        audit.sqs.refuses = lambda _: True
        report = audit.tick()
        both = report.lines + report.unlisted
        assert (report.stopped, both[Line.REFUSED]) == (Stopped.REFUSED, 3)
        # The key that a worker holds is a candidate too.
        assert both[Line.NOT_LOOKED] + both[Line.LEASED] == len(LOST) - 3 + 1
        audit.sqs.refuses = lambda _: False
        audit.next_tick()
        assert audit.tick().resubmitted == len(LOST)

    @pytest.mark.failure_mode("F119")
    def test_a_refusal_leaves_no_mark(self, patch: pytest.MonkeyPatch) -> None:
        """A mark would keep every run from sending it until it lapses."""
        audit = Invocations(world(), patch)
        audit.sqs.refuses = lambda _: True
        audit.tick()
        assert not any("audit_resubmitted_at" in item for item in audit.store.items.values())


class TestSize:
    """F120: the run's own item has its state and the last report."""

    KEYS = 120
    LONGEST = 1_024
    """Bytes of a key or of a version id of S3."""

    @pytest.fixture(params=list(Ordering))
    def audit(self, request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> Invocations:
        made = AuditWorld(request.param, page_size=50, filters=(KeyFilter("", "\x01"),))
        for number in range(self.KEYS):
            made.s3.put(f"{number:03}".ljust(self.LONGEST, "\x01"), version=f"{number:03}".ljust(self.LONGEST, "\x02"))
            made.insert(
                f"gone-{number:03}".ljust(self.LONGEST, "\x01"),
                State(StateKind.OBJECT, "v" * self.LONGEST, "e", 1),
                Status.FAILED,
            )
        return Invocations(made, patch)

    @pytest.mark.failure_mode("F120")
    def test_a_report_of_the_longest_keys_fits_into_its_item(
        self, audit: Invocations, patch: pytest.MonkeyPatch
    ) -> None:
        """A control character takes six bytes of JSON. All findings are counted, and some are named."""
        problem = "the queue's policy\x03".ljust(2_000, "\x03")
        patch.setattr(DeliveryCheck, "look", lambda _: Looked([problem] * 100))
        report = audit.tick()
        assert (report.complete, report.counts.total(), report.resubmitted) == (True, 2 * self.KEYS, 2 * self.KEYS)
        assert 0 < len(report.findings) < NAMED_FINDINGS
        [item] = [item_ for (_, sk), item_ in audit.store.items.items() if sk.endswith("@audit")]
        last = json.loads(item["last_report"]["S"])
        assert last["counts"] == report.as_json(0)["counts"]
        assert (last["findings"][0]["key"], last["delivery"][0]) == (report.findings[0]["key"], problem)

    @pytest.mark.failure_mode("F120")
    def test_the_answer_fits_into_a_state_machine(self, audit: Invocations) -> None:
        """Step Functions passes 256 KiB from one state to the next (Developer Guide, "Service quotas")."""
        assert len(json.dumps(audit.tick().as_json(0))) < 256 * 1024
