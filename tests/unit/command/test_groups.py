"""`status` and `inspect` show which groups are held, by which keys, and how many wait."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.options.exclusive_by import holder_hash, holder_name
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status, group_key, row_key
from tests.unit.command.forget_support import with_variables
from tests.unit.command.support import NAME, Site, client, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.command.test_kinds import now
from tests.unit.support import HOUR, MINUTE

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")


def grouped(*, lease_ms: int) -> tuple[Site, int]:
    """`in/acme/1` has the group `acme`, and two keys wait. One waits for `idle`, which is free."""
    site = make_site()
    deployed = with_variables(site.deployed, INTAKE_EXCLUSIVE_BY="in/{account}/")
    site, at = Site(deployed), now() - 2 * MINUTE
    held = Row(Status.PROCESSING, at, version_id="v1", lease_until=at + lease_ms, lease_owner="w", updated_at=at)
    site.row("in/acme/1", held)
    row = row_key(NAME, Ordering.LATEST, deployed.bucket, "in/acme/1", "v#v1")
    table = LedgerTable(client("dynamodb"), deployed.table)
    table.write(
        group_key(NAME, "acme"), {"fence": at, "holder": holder_name(row), "holder_fence": at, "held_since": at}
    )
    table.write(group_key(NAME, "idle"), {"fence": at, "holder": "", "holder_fence": at, "held_since": at})
    waits = replace(held, status=Status.FAILED, lease_until=None, waiting_since=at, reason_code=ReasonCode.GROUP_HELD)
    for key in ("in/acme/2", "in/acme/3", "in/idle/1"):
        site.row(key, waits)
    site.row("in/acme/4", replace(waits, reason_code=ReasonCode.NOT_YET))
    return site, at


def test_status_names_the_groups_that_are_waited_for(sit: Callable[..., Person]) -> None:
    site, at = grouped(lease_ms=HOUR)
    person = sit(site)
    assert person.reads("status")["groups"] == [
        {"group": "acme", "heldBy": "in/acme/1", "heldSince": at, "waiting": 2},
        {"group": "idle", "heldBy": None, "heldSince": None, "waiting": 1},
    ]
    shown = " ".join(person.types("status").split())
    assert "acme, held by in/acme/1, since 2" in shown
    assert "idle, free, 1 waiting" in shown


@pytest.mark.failure_mode("F633")
def test_a_reason_keeps_a_hash_and_commands_name_the_key(sit: Callable[..., Person]) -> None:
    site, at = grouped(lease_ms=HOUR)
    holder = row_key(NAME, Ordering.LATEST, site.deployed.bucket, "in/acme/1", "v#v1")
    hashes = {"in/acme/5": holder_hash(holder_name(holder)), "in/acme/6": holder_hash("another")}
    for key, name in hashes.items():
        reason = f"another key of the group acme is in work since 2026-11-18T11:06:40+00:00: {name}"
        waits = Row(Status.FAILED, at, version_id="v1", updated_at=at, waiting_since=at, reason=reason)
        site.row(key, replace(waits, reason_code=ReasonCode.GROUP_HELD))
    person = sit(site)
    shown = {
        one["key"]: one["reason"] for one in person.reads("list", "--status", "waiting")["rows"] if one["key"] in hashes
    }
    assert shown["in/acme/5"].endswith(": in/acme/1")
    assert shown["in/acme/6"].endswith(hashes["in/acme/6"]), "it has lost the group since"
    [found] = person.reads("inspect", "in/acme/5", "--no-logs")["states"]
    assert found["row"]["reason"].endswith(": in/acme/1")


@pytest.mark.parametrize(("lease_ms", "holder"), [(HOUR, "in/acme/1"), (MINUTE, None)])
def test_inspect_names_the_key_that_has_the_group(
    sit: Callable[..., Person],
    lease_ms: int,
    holder: str | None,
) -> None:
    """A lock whose lease has ended is not held."""
    site, _ = grouped(lease_ms=lease_ms)
    person = sit(site)
    found = person.reads("inspect", "in/acme/2", "--no-logs")
    assert (found["group"]["group"], found["group"]["heldBy"]) == ("acme", holder)
    assert "Group" in person.types("inspect", "in/acme/2", "--no-logs")
    assert person.reads("inspect", "other/1", "--no-logs")["group"] is None


def test_a_pipeline_without_groups_sends_no_request_for_them(sit: Callable[..., Person]) -> None:
    person = sit(make_site())
    assert person.reads("status")["groups"] is None
    assert person.reads("inspect", "in/acme/2", "--no-logs")["group"] is None
