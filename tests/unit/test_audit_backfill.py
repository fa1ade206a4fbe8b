"""F41: what was in a bucket before the pipeline is processed once, slowly, and resumably, against the real ledger."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest

from intake_ledger.audit.backfill import Backfill, Backfilled
from intake_ledger.audit.listing import Listing
from intake_ledger.audit.look import BACKFILL_ID
from intake_ledger.bucket import Bucket
from intake_ledger.changes import OWN_MESSAGE, parse_message
from intake_ledger.ledger import Ledger, LedgerOptions
from intake_ledger.rows import Ordering, Status
from intake_ledger.settings import KeyFilter
from intake_ledger.states import State, StateKind
from intake_ledger.verdicts import Policy, Verdict
from tests.unit.audit_support import AuditWorld
from tests.unit.support import BUCKET, DAY, HOUR, PIPELINE, RETENTION

YEAR = 365 * DAY


class Filled:
    """A bucket that was full before, a pass over it, and a consumer that does what the messages ask for."""

    def __init__(self, ordering: Ordering = Ordering.LATEST, **options: Any) -> None:
        self.world = AuditWorld(ordering, page_size=2, **options)
        self.clock, self.s3 = self.world.clock, self.world.s3
        self.since = self.clock()
        self.processed: list[tuple[str, str]] = []
        self.verdicts: Counter[Verdict] = Counter()
        s3 = cast("Any", self.s3)
        policy = Policy(3, RETENTION, deletes=True)
        owners = count()
        self.ledger = Ledger(
            self.world.ledger,
            Bucket(lambda: s3, BUCKET),
            LedgerOptions(PIPELINE, ordering, policy, 6 * HOUR),
            clock=self.clock,
            new_owner=lambda: f"owner-{next(owners)}",
        )

    def go_on(self, allowance: int = 1_000, remaining_ms: Callable[[], int] = lambda: 900_000) -> Backfilled:
        """One call of a function that knows nothing of the one before."""
        world = self.world
        backfill = Backfill(
            world.settings,
            world.ledger,
            Listing(cast("Any", self.s3), world.settings),
            dynamodb=cast("Any", world.store),
            sqs=cast("Any", world.sqs),
            clock=self.clock,
        )
        return backfill.go_on(self.since, allowance=allowance, remaining_ms=remaining_ms)

    @property
    def sent(self) -> list[str]:
        return self.world.sent

    def consume(self) -> None:
        """Whatever has been sent so far, twice, as SQS may deliver it."""
        bodies = list(self.world.sqs.bodies)
        self.world.sqs.bodies.clear()
        for body in bodies * 2:
            change = next(iter(parse_message(json.dumps({OWN_MESSAGE: body}))))
            answer = self.ledger.claim(cast("Any", change), lease_ms=60_000)
            self.verdicts[answer.verdict] += 1
            if answer.claim is not None:
                self.processed.append((answer.claim.change.key, answer.claim.row.identity))
                self.ledger.commit(answer.claim, "done")


@pytest.mark.parametrize("ordering", Ordering)
def test_f41_everything_of_before_is_processed_once(ordering: Ordering) -> None:
    """F41: of any age, in pages; whatever a death of the function or SQS repeats."""
    filled = Filled(ordering)
    ages = [YEAR, 60 * DAY, 36 * DAY, 20 * DAY, 3 * DAY, HOUR]
    states = {f"in/{number}": filled.s3.put(f"in/{number}", age=age) for number, age in enumerate(ages)}
    assert filled.go_on() == Backfilled(listed=6, sent=6, done=True)
    filled.consume()
    assert sorted(filled.processed) == sorted((key, state.identity) for key, state in states.items())
    assert filled.verdicts[Verdict.ACCEPTED] == 6
    assert filled.go_on() == Backfilled(done=True)


def test_f41_old_objects_come_as_one_reprocess_request_and_young_ones_as_the_audits() -> None:
    """F41: without it the consumer would take what is older than the retention for settled; with it for what is young,
    an event that is on its way would be processed as well.
    """
    filled = Filled()
    filled.s3.put("in/old", age=18 * DAY)
    young = filled.s3.put("in/young", age=17 * DAY)
    filled.go_on()
    told = {body["key"]: (body["kind"], body.get("reprocessId")) for body in filled.world.sqs.bodies}
    assert told == {"in/old": ("reprocess", BACKFILL_ID), "in/young": ("audit", None)}
    filled.world.commit("in/young", young)
    filled.consume()
    assert filled.processed == [("in/old", "v#in/old-0")]


def test_f41_filters_that_change_meanwhile_have_it_begin_again() -> None:
    """F41: there is no such place any more; what was sent already has a row, or is the same request."""
    filled = Filled(filters=(KeyFilter("in/"),))
    keys = ["a/1", "in/1", "in/2", "in/3"]
    for key in keys:
        filled.s3.put(key, age=YEAR)
    assert filled.go_on(allowance=1) == Backfilled(listed=2, sent=2)
    filled.world.settings = replace(filled.world.settings, filters=())
    assert filled.go_on() == Backfilled(listed=4, sent=4, done=True)
    filled.consume()
    assert sorted(key for key, _ in filled.processed) == keys


def test_a_persons_request_comes_after_it() -> None:
    """Ids are served in their order, and ULIDs are what people's requests have."""
    assert BACKFILL_ID < "01KAM00000"  # November 2026
    assert BACKFILL_ID < "0K00000000"


class TestWhatIsLeftAlone:
    """What is somebody else's."""

    @pytest.mark.parametrize("status", Status)
    def test_a_key_with_a_row(self, status: Status) -> None:
        """The ledger knows about it: failed, rejected or done."""
        filled = Filled()
        filled.world.insert("in/known", filled.s3.put("in/known", age=YEAR), status)
        assert filled.go_on() == Backfilled(listed=1, done=True)

    def test_a_mark_of_the_audits_is_no_row(self) -> None:
        """It says that a message was sent once, for a state that may have been another one."""
        filled = Filled()
        filled.s3.put("in/marked", age=2 * HOUR)
        filled.world.run()
        filled.world.sqs.bodies.clear()
        assert filled.go_on().sent == 1

    def test_what_came_after_the_pipeline(self) -> None:
        """That is the audit's."""
        filled = Filled()
        filled.since -= HOUR
        filled.s3.put("in/new", age=HOUR // 2)
        assert filled.go_on() == Backfilled(listed=1, done=True)

    def test_what_was_removed_and_what_passes_no_filter(self) -> None:
        """Nobody asked for either."""
        filled = Filled(filters=(KeyFilter("in/", ".csv"),))
        for key in ("in/a.csv", "in/a.txt", "out/a.csv", "in/gone.csv"):
            filled.s3.put(key, age=YEAR)
        filled.s3.mark("in/gone.csv", age=YEAR)
        filled.go_on()
        assert filled.sent == ["in/a.csv"]

    def test_overtaken_versions_unless_each_is_wanted(self) -> None:
        """LATEST is about what is current."""
        for ordering, expected in ((Ordering.LATEST, ["v#2"]), (Ordering.EVERY_VERSION, ["v#1", "v#2"])):
            filled = Filled(ordering)
            for version in ("1", "2"):
                filled.s3.put("in/key", age=YEAR, version=version)
            filled.go_on()
            filled.consume()
            assert sorted(identity for _, identity in filled.processed) == expected


class TestPace:
    """F41: no flood."""

    def test_f41_a_call_ends_when_it_has_sent_its_part(self) -> None:
        """F41: with the page that it is at; the next one goes on there."""
        filled = Filled()
        for number in range(7):
            filled.s3.put(f"in/{number}", age=YEAR)
        assert filled.go_on(allowance=3) == Backfilled(listed=4, sent=4)
        assert filled.go_on(allowance=0) == Backfilled()
        assert filled.go_on(allowance=-5) == Backfilled()
        assert filled.go_on(allowance=2) == Backfilled(listed=2, sent=2)
        assert filled.go_on(allowance=2) == Backfilled(listed=1, sent=1, done=True)
        assert filled.sent == [f"in/{number}" for number in range(7)]

    def test_f42_a_call_ends_before_its_time(self) -> None:
        """F42: and is gone on with."""
        filled = Filled()
        for number in range(4):
            filled.s3.put(f"in/{number}", age=YEAR)
        assert filled.go_on(remaining_ms=lambda: 0) == Backfilled(listed=2, sent=2)
        assert filled.go_on() == Backfilled(listed=2, sent=2, done=True)

    def test_a_page_that_sqs_took_in_part_is_sent_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is not noted as done."""
        filled = Filled()
        filled.s3.put("in/a", age=YEAR)
        failed = [{"Id": "0", "Message": "busy"}]
        with monkeypatch.context() as patch:
            patch.setattr(type(filled.world.sqs), "send_message_batch", lambda *_, **__: {"Failed": failed})
            with pytest.raises(RuntimeError, match="busy"):
                filled.go_on()
        assert filled.go_on().sent == 1

    def test_two_calls_at_once(self) -> None:
        """The one that comes later stops; what both sent is processed once."""
        filled = Filled()
        for number in range(6):
            filled.s3.put(f"in/{number}", age=YEAR)
        once = iter([True])

        def the_other_goes_first() -> int:
            if next(once, False):
                assert filled.go_on(allowance=1) == Backfilled(listed=2, sent=2)
            return 900_000

        assert filled.go_on(remaining_ms=the_other_goes_first) == Backfilled(listed=4, sent=4)
        filled.go_on()
        filled.consume()
        assert sorted(key for key, _ in filled.processed) == [f"in/{number}" for number in range(6)]


def test_an_unversioned_bucket() -> None:
    """The ETag is the state's name."""
    filled = Filled(versioned=False)
    filled.s3.put("in/key", age=YEAR, version="etag")
    filled.go_on()
    filled.consume()
    assert filled.processed == [("in/key", "e#etag")]


def test_the_audit_takes_the_pass_for_no_row() -> None:
    """Both have their item beside the rows."""
    filled = Filled(Ordering.EVERY_VERSION)
    filled.world.commit("in/a", filled.s3.put("in/a", age=YEAR))
    filled.go_on()
    report = filled.world.run()
    assert (report.complete, dict(report.counts)) == (True, {})
    assert filled.world.row_key("x", State(StateKind.OBJECT, "1")).sk.startswith(f"{PIPELINE}@")
