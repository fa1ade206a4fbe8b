"""The audit of synthetic objects: the short form of `python -m tests.local.audit_run.synthetic`."""

from collections.abc import Callable

import pytest

from intake_ledger.audit.report import Report
from tests.local.audit_run.synthetic import World, audit_in_one, audit_in_parts, findings, problems
from tests.settings import examples


@pytest.mark.failure_mode("F115")
@pytest.mark.parametrize("audit", [audit_in_parts, audit_in_one])
def test_what_happened_to_thousands_of_objects_is_found_and_nothing_else(
    audit: Callable[[World], Report],
) -> None:
    """Each finding with its kind, one message for each, and all other objects in their lines."""
    world = World(examples(20_000) if audit is audit_in_parts else 4_000)
    with findings() as found:
        report = audit(world)
    assert problems(world, report, found) == []
