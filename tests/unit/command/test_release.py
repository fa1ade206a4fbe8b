"""F391: a person takes a claim from a dead worker, and a worker that is alive after all can do no harm."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from intake_ledger.ledger.conditions import ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, break_claim
from intake_ledger.messages.keyed_message import KeyedMessage
from intake_ledger.protocol.errors import Fenced
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status, from_dynamodb
from intake_ledger_cli.aws.clients import Aws
from tests.unit.command.support import NAME, WHO, FakeSts, Site, client, make_message_site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.messages.support import SOURCE_NAME, Intake, Killed, sqs
from tests.unit.support import HOUR, KEY, MINUTE, PIPELINE, START, MakeWorld, World, created, make_reason

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
REASON = Reason(ReasonCode.LOCK_BROKEN, "released by ana: the task was stopped")


def take(world: World, claim: Claim) -> Row:
    return break_claim(world.table, PIPELINE, claim.key, claim.row, REASON, now=world.clock())


class TestTheWorker:
    @pytest.mark.failure_mode("F391")
    @pytest.mark.parametrize("ordering", list(Ordering))
    @pytest.mark.parametrize("next_attempt", [False, True])
    @pytest.mark.parametrize("ending", ["commit", "fail", "reject", "release", "extend"])
    def test_a_late_worker_is_refused(
        self, make_world: MakeWorld, ordering: Ordering, ending: str, next_attempt: bool
    ) -> None:
        """Before the next attempt has claimed the row, and after that."""
        world = make_world(ordering)
        late = world.accept(created(world.s3.put(KEY, "1")))
        take(world, late)
        if next_attempt:
            world.accept(late.change)
        before = world.known(late.change)
        ends: dict[str, Callable[[], object]] = {
            "commit": lambda: world.ledger.commit(late, "late"),
            "fail": lambda: world.ledger.fail(late, make_reason("late")),
            "reject": lambda: world.ledger.reject(late, make_reason("late")),
            "release": lambda: world.ledger.release(late),
            "extend": lambda: world.ledger.extend(late, lease_ms=HOUR),
        }
        with pytest.raises(Fenced):
            ends[ending]()
        assert world.known(late.change) == before

    @pytest.mark.failure_mode("F391")
    def test_the_attempt_counts_and_the_next_one_need_not_wait(self, world: World) -> None:
        late = world.accept(created(world.s3.put(KEY, "1")))
        row = take(world, late)
        assert (row.status, row.attempts, row.reason_code) == (Status.FAILED, 1, "lock_broken")
        assert row.fence > late.row.fence
        after = world.accept(late.change)
        assert (after.row.attempts, after.row.first_claimed_at) == (2, late.row.first_claimed_at)

    @pytest.mark.failure_mode("F391")
    def test_a_late_effect_is_reported_before_the_next_attempt(self, world: World) -> None:
        """Otherwise the effect of another state in between would stay under it."""
        late = world.accept(created(world.s3.put(KEY, "1")))
        take(world, late)
        assert world.ledger.report_late_write(late)
        after = world.accept(created(world.s3.put(KEY, "2")))
        world.ledger.commit(after)

    @pytest.mark.failure_mode("F391")
    def test_a_worker_that_extends_its_lease_is_alive(self, world: World) -> None:
        claim = world.accept(created(world.s3.put(KEY, "1")))
        world.clock.advance(MINUTE)
        world.ledger.extend(claim, lease_ms=HOUR)
        with pytest.raises(ConditionFailed):
            take(world, claim)
        world.ledger.commit(claim)


@pytest.mark.failure_mode("F391")
def test_the_lock_of_a_key_is_free_at_once() -> None:
    """The messages of a key exclude each other, and the one of the dead worker goes on at its next delivery."""

    def die_first(message: KeyedMessage) -> None:
        if (message.identity, message.attempt) == ("e-1", 1):
            raise Killed

    intake = Intake(process=die_first)
    with pytest.raises(Killed):
        intake.handle([sqs("o-1", "e-1")])
    # The process is gone, so nothing was freed.
    intake.table.items[(f"{SOURCE_NAME}/o-1", "orders@lock")]["holder"] = {"S": "orders@v#e-1"}
    assert intake.handle([sqs("o-1", "e-2")], intake.worker()) == ["o-1.e-2"]
    table, place = LedgerTable(intake.table, "table"), RowKey(f"{SOURCE_NAME}/o-1", "orders@v#e-1")
    row = table.get(place)
    assert row is not None
    break_claim(table, "orders", place, row, REASON, now=intake.clock())
    assert intake.handle([sqs("o-1", "e-2", receives=2)], intake.worker()) == []
    assert intake.handle([sqs("o-1", "e-1", receives=2)], intake.worker()) == []
    first, second, third = intake.calls
    assert first.fence < second.fence < third.fence
    assert third.attempt == 2


@pytest.fixture
def seat(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Person]:
    monkeypatch.setattr(Aws, "sts", FakeSts())

    def with_site(site: Site) -> Person:
        return sit(site, audit=site.deployed.audit_function is not None)

    return with_site


def now() -> int:
    return time.time_ns() // 1_000_000


def hold(site: Site, key: str, *, left: int = 17 * MINUTE, version: str = "v1") -> None:
    row = Row(Status.PROCESSING, START, version_id=version, attempts=2, updated_at=now() - MINUTE)
    site.row(key, replace(row, lease_owner="w7", lease_until=now() + left))


def row_of(site: Site, key: str) -> dict[str, Any]:
    items = client("dynamodb").scan(TableName=site.deployed.table)["Items"]
    found = [from_dynamodb(one) for one in items if one["pk"]["S"] == f"{site.deployed.bucket}/{key}"]
    return next(one for one in found if "fence" in one)


RELEASE = ("release", "in/a", "--because", "the task was stopped", "--yes")


class TestTheCommand:
    @pytest.mark.failure_mode("F391")
    def test_it_shows_the_claim_and_wakes_the_key(self, seat: Callable[..., Person]) -> None:
        site = make_site()
        person = seat(site)
        hold(site, "in/a")
        found = person.reads(*RELEASE)
        said = " ".join(person.complaint.split())
        assert f"A worker (w7) of {NAME} holds in/a: attempt 2, since" in said
        assert "cannot commit any more" in said
        assert (found["leaseOwner"], found["attempt"], found["woken"]) == ("w7", 2, True)
        [change] = site.changes()
        assert change.key == "in/a"
        row = row_of(site, "in/a")
        assert (row["status"], row["attempts"], row["fence"]) == ("FAILED", 2, found["fence"])
        assert row["reason"] == f"released by {WHO.rpartition('/')[2]}: the task was stopped"
        [operation] = person.reads("operations")["operations"]
        assert (operation["what"], operation["because"]) == ("release in/a", "the task was stopped")
        assert "of w7 taken" in operation["result"]

    def test_without_a_terminal_it_asks_for_yes(self, seat: Callable[..., Person]) -> None:
        site = make_site()
        hold(site, "in/a")
        seat(site).types(*RELEASE[:-1], ends=2)
        assert row_of(site, "in/a")["status"] == "PROCESSING"

    def test_a_message_comes_again_from_its_source(self, seat: Callable[..., Person]) -> None:
        site = make_message_site()
        hold(site, "in/a", version="e1")
        found = seat(site).reads(*RELEASE)
        assert not found["woken"]
        assert 0 < found["deliveredBy"] < now() + HOUR
        assert site.messages() == []

    def test_of_several_messages_in_work_one_is_named(self, seat: Callable[..., Person]) -> None:
        site = make_message_site()
        hold(site, "in/a", version="e1")
        hold(site, "in/a", version="e2")
        person = seat(site)
        person.types(*RELEASE, ends=2)
        assert "name one with --version-id: e1, e2" in person.complaint
        person.types(*RELEASE, "--version-id", "e2")

    @pytest.mark.parametrize(
        ("left", "way_out"), [(-MINUTE, "the lease of in/a has ended"), (None, "no worker holds in/a")]
    )
    def test_without_a_claim_it_names_the_way_out(
        self, seat: Callable[..., Person], left: int | None, way_out: str
    ) -> None:
        site = make_site()
        if left is not None:
            hold(site, "in/a", left=left)
        person = seat(site)
        person.types(*RELEASE, ends=1)
        assert way_out in person.complaint

    @pytest.mark.failure_mode("F391")
    def test_a_claim_that_changed_meanwhile_stays(
        self, seat: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The operation has the reason as its result."""
        site = make_site()
        hold(site, "in/a")

        class Slow(FakeSts):
            def get_caller_identity(self) -> dict[str, str]:
                hold(site, "in/a", left=HOUR)  # the worker extends its lease while the person reads
                return super().get_caller_identity()

        person = seat(site)
        monkeypatch.setattr(Aws, "sts", Slow())
        person.types(*RELEASE, ends=1)
        assert "its worker has extended the lease meanwhile, so it is alive" in person.complaint
        assert site.changes() == []
        assert "alive" in person.reads("operations")["operations"][0]["result"]


class TestRetryNow:
    @pytest.mark.failure_mode("F391")
    def test_it_says_what_each_key_needs(self, seat: Callable[..., Person]) -> None:
        site = make_site()
        person = seat(site)
        hold(site, "in/held")
        hold(site, "in/lapsed", left=-MINUTE)
        site.reject("in/rejected", "no amount")
        found = person.reads("retry", "in/held", "in/lapsed", "in/rejected", "in/unseen")
        assert found["due"]["retried"] == 1
        assert {change.key for change in site.changes()} == {"in/lapsed", "in/rejected"}
        assert {one["key"]: (one["status"], one["choice"]) for one in found["choices"]} == {
            "in/held": ("PROCESSING", "leave"),
            "in/lapsed": ("PROCESSING", "now"),
            "in/rejected": ("REJECTED", "reopen"),
            "in/unseen": ("no row", "leave"),
        }
        shown = person.types("retry", "in/held", "in/unseen")
        assert "see `release`" in shown
        assert "at the end of its visibility timeout" in shown
        assert found["due"]["inFlight"] == {"number": 0, "visibilitySeconds": 30}
