"""A minor release changes no name that data, dashboards or scripts depend on."""

import pytest

from tests.synth.released_names import Names, present, released, removed

GONE = """These names are gone or renamed. CloudFormation would replace a bucket, a table or a queue by an empty one, or
a dashboard would lose its data. Keep the old name. Only a major release may change it, with steps in docs/upgrade.md
and a line in the changelog. Then run `python -m tests.synth.released_names`:"""
NEW = """These names are new, which a minor release may do. Run `python -m tests.synth.released_names`, so that later
releases keep them:"""


@pytest.fixture(scope="module")
def now() -> Names:
    return present()


@pytest.mark.failure_mode("F185")
def test_no_released_name_is_gone(now: Names) -> None:
    gone = removed(released(), now)
    assert not gone, "\n".join([GONE, *gone])


def test_each_new_name_is_kept_from_now_on(now: Names) -> None:
    new = removed(now, released()) if released() else []
    assert not new, "\n".join([NEW, *new])


def test_a_renamed_table_is_gone_and_new(now: Names) -> None:
    """The texts above name it."""
    tables = "AWS::DynamoDB::Table"
    renamed = now | {tables: ["Other" if "Orders" in name else name for name in now[tables]]}
    [gone] = removed(now, renamed)
    assert gone.startswith(f"{tables}: OrdersLedger")
    assert removed(renamed, now) == [f"{tables}: Other"]
