"""The scan of the ledger before the listing saves requests, and decides nothing alone."""

import pytest

from intake_ledger.audit.diff import Line
from intake_ledger.protocol.row import STORED_STATUSES, Ordering, Status
from tests.unit.audit.support import AuditWorld


@pytest.fixture(params=list(Ordering))
def world(request: pytest.FixtureRequest) -> AuditWorld:
    return AuditWorld(request.param)


class TestRequests:
    """A request for each row would cost more than all the rest."""

    def test_no_row_of_a_healthy_bucket_is_asked_for(self, world: AuditWorld) -> None:
        """All of it is in one scan."""
        for number in range(300):
            key = f"key-{number}"
            world.commit(key, world.s3.put(key))
        world.store.requests.clear()
        report = world.run()
        assert (report.checked, report.complete, dict(report.counts)) == (300, True, {})
        assert set(world.store.requests) == {"Scan"}

    def test_only_what_differs_is(self, world: AuditWorld) -> None:
        """Once, with its neighbours."""
        for number in range(150):
            key = f"key-{number}"
            world.commit(key, world.s3.put(key))
        for number in range(20):
            world.s3.put(f"lost-{number}")
        world.store.requests.clear()
        assert world.run(resubmit=False).counts == {"missing": 20}
        assert world.store.requests.count("BatchGetItem") == 1
        assert len(world.s3.heads) == (20 if world.ordering is Ordering.LATEST else 0)

    def test_no_head_for_what_is_processed_during_the_run(self, world: AuditWorld) -> None:
        """A busy bucket has thousands of those between the reading of the rows and the end."""

        def meanwhile() -> None:
            for number in range(20):
                key = f"new-{number}"
                world.commit(key, world.s3.put(key, age=0))

        world.s3.meanwhile = meanwhile
        report = world.run()
        assert (dict(report.lines), dict(report.counts), world.s3.heads) == ({Line.SETTLING: 20}, {}, [])


class TestTruth:
    """The row was read before the listing."""

    @pytest.mark.failure_mode("F74")
    def test_another_state_than_the_one_that_was_read_is_found(self, world: AuditWorld) -> None:
        """The key is known, and its state is not."""
        world.commit("key", world.s3.put("key"))
        done: list[str] = []
        world.s3.meanwhile = lambda: done.append(world.s3.put("key").identity)
        assert [finding["state"] for finding in world.run().findings] == done

    @pytest.mark.parametrize("status", [one for one in STORED_STATUSES if one is not Status.PROCESSED])
    def test_a_row_that_is_not_settled_has_committed_nothing(self, world: AuditWorld, status: Status) -> None:
        """The downstream may be half done, although an earlier state was committed."""
        state = world.s3.put("key")
        world.insert("key", state, status, committed_state=state.identity)
        assert world.run().checked == 1
        assert "BatchGetItem" in world.store.requests
