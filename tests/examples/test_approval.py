"""Run `make approval`."""

import pytest

from tests.examples.runs import ran


@pytest.mark.thorough
@pytest.mark.failure_mode("F527")
def test_a_late_approval_of_the_first_version_pays_nothing_and_the_correction_is_paid_once() -> None:
    found = ran("approval")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "in/4712.txt  refused: who is Eve?" in found.stdout
    assert found.stdout.splitlines()[-3:] == [
        "after the late approval:          []",
        "a late step of the first version: refused",
        "all payments ever written:        ['pay 120 to Ada']",
    ]
