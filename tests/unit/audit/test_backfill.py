"""F41: objects that are older than the pipeline are processed once, against the real ledger."""

import json
from collections import Counter
from itertools import count
from typing import Any, cast

import pytest

from intake_ledger.audit.look import BACKFILL_ID
from intake_ledger.audit.report import Report
from intake_ledger.aws.bucket import Bucket
from intake_ledger.events.parser import OWN_MESSAGE, parse_message
from intake_ledger.ledger.ledger import Claim, LedgerOptions
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.verdict import Policy, Verdict
from intake_ledger_testing.consumers import object_ledger
from tests.unit.audit.support import AuditWorld
from tests.unit.support import BUCKET, DAY, HOUR, PIPELINE, RETENTION

YEAR = 365 * DAY


class Filled:
    """A bucket with existing objects, an audit run, and a consumer that handles its messages."""

    def __init__(self, ordering: Ordering = Ordering.LATEST, **options: Any) -> None:
        self.world = AuditWorld(ordering, page_size=2, **options)
        self.clock, self.s3 = self.world.clock, self.world.s3
        self.since = self.clock()
        self.processed: list[tuple[str, str]] = []
        self.verdicts: Counter[Verdict] = Counter()
        s3 = cast("Any", self.s3)
        policy = Policy(3, RETENTION, deletes=True)
        owners = count()
        self.ledger = object_ledger(
            self.world.ledger,
            Bucket(lambda: s3, BUCKET),
            LedgerOptions(PIPELINE, ordering, policy, 6 * HOUR),
            clock=self.clock,
            new_owner=lambda: f"owner-{next(owners)}",
        )

    def go_on(self) -> Report:
        """One run."""
        return self.world.run(backfill=True)

    @property
    def sent(self) -> list[str]:
        return self.world.sent

    def consume(self) -> None:
        """Deliver all messages so far twice, as SQS may do."""
        bodies = list(self.world.sqs.bodies)
        self.world.sqs.messages.clear()
        for body in bodies * 2:
            change = next(iter(parse_message(json.dumps({OWN_MESSAGE: body}))))
            answer = self.ledger.claim(cast("Any", change), lease_ms=60_000)
            self.verdicts[answer.verdict] += 1
            if isinstance(answer, Claim):
                self.processed.append((answer.change.key, answer.row.identity))
                self.ledger.commit(answer, "done")


@pytest.mark.failure_mode("F41")
@pytest.mark.parametrize("ordering", Ordering)
def test_everything_of_before_is_processed_once(ordering: Ordering) -> None:
    """Objects of any age, in pages, although a dead function and SQS repeat messages."""
    filled = Filled(ordering)
    ages = [YEAR, 60 * DAY, 36 * DAY, 20 * DAY, 3 * DAY, 2 * HOUR]
    states = {f"in/{number}": filled.s3.put(f"in/{number}", age=age) for number, age in enumerate(ages)}
    assert filled.go_on().resubmitted == 6
    filled.consume()
    assert sorted(filled.processed) == sorted((key, state.identity) for key, state in states.items())
    assert filled.verdicts[Verdict.ACCEPTED] == 6
    report = filled.go_on()
    assert (report.complete, dict(report.counts)) == (True, {})


@pytest.mark.failure_mode("F41")
def test_old_objects_come_as_one_reprocess_request_and_young_ones_as_the_audits() -> None:
    """Without it the consumer would take what is older than the retention for settled; with it for what is young,
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


def test_a_persons_request_comes_after_it() -> None:
    """IDs are processed in their order, and people's requests have ULIDs."""
    assert BACKFILL_ID < "01KAM00000"  # November 2026
    assert BACKFILL_ID < "0K00000000"


class TestWhatIsLeftAlone:
    """Objects that the pipeline must not process."""

    def test_what_was_removed_and_what_passes_no_filter(self) -> None:
        """No request names the object."""
        filled = Filled(filters=(KeyFilter("in/", ".csv"),))
        for key in ("in/a.csv", "in/a.txt", "out/a.csv", "in/gone.csv"):
            filled.s3.put(key, age=YEAR)
        filled.s3.mark("in/gone.csv", age=YEAR)
        filled.go_on()
        assert filled.sent == ["in/a.csv"]

    def test_overtaken_versions_unless_each_is_wanted(self) -> None:
        """LATEST processes current states only."""
        for ordering, expected in ((Ordering.LATEST, ["v#2"]), (Ordering.EVERY_VERSION, ["v#1", "v#2"])):
            filled = Filled(ordering)
            for version in ("1", "2"):
                filled.s3.put("in/key", age=YEAR, version=version)
            filled.go_on()
            filled.consume()
            assert sorted(identity for _, identity in filled.processed) == expected


def test_an_unversioned_bucket() -> None:
    """The ETag is the state's name."""
    filled = Filled(versioned=False)
    filled.s3.put("in/key", age=YEAR, version="etag")
    filled.go_on()
    filled.consume()
    assert filled.processed == [("in/key", "e#etag")]
