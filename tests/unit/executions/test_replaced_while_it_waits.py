"""An object is overwritten while its execution waits for a person. `examples/approval` does the same, deployed."""

from typing import Any, cast

import pytest

from cdk_intake_ledger.testing import LocalPipeline, LocalRunner

KEY = "in/4711.txt"


@pytest.mark.failure_mode("F527")
@pytest.mark.parametrize(
    ("replaced", "is_paid"),
    [({"notYet": "a newer version is there", "retryInSeconds": 1}, True), ({"commit": "nothing to pay"}, False)],
    ids=["it waits", "it commits"],
)
def test_a_version_is_paid_if_the_newer_one_is_deleted(replaced: dict[str, Any], *, is_paid: bool) -> None:
    """The execution has seen the newer version, and pays nothing. As a commit, that would be its last outcome."""
    paid: list[str] = []
    calls = 0

    def approve(event: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == 1:
            newer = local.put(KEY, "corrected")
            assert newer is not None
            local.delete_version(KEY, newer)
            return replaced
        paid.append(event["versionId"])
        return {"commit": "paid"}

    local = LocalPipeline(cast("Any", approve), runner=LocalRunner.DURABLE_FUNCTION)
    first = local.put(KEY, "first")
    local.run()
    assert paid == ([first] if is_paid else [])
