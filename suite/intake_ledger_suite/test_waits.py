"""Waits by delayed copies, and Lambda's detection of recursive loops."""

from collections.abc import Callable

import pytest

from intake_ledger_suite.deployed import Deployed

HOPS = 20
ROUNDS = 24
"""Rounds of a loop that Lambda stops after about 16."""
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.background,
    pytest.mark.only_on_aws("MiniStack does not count the passes of a message through a function", steps=True),
]


@pytest.mark.assumptions("LAM-06", "SQS-12", "SQS-13")
@pytest.mark.changes(HOPS)
def test_hops_of_a_wait_are_no_loop(checks: Deployed, evidence: Callable[[str], None]) -> None:
    """Lambda does not take a wait of 20 delayed copies for a loop."""
    evidence(hop(checks, "Waiting"))


@pytest.mark.assumptions("LAM-06")
@pytest.mark.changes(HOPS + ROUNDS)
def test_hops_with_a_loop_in_the_same_function_go_on(checks: Deployed, evidence: Callable[[str], None]) -> None:
    """Lambda stops a loop of the processor's own, and not the copies that wait in the same function."""
    checks.put("Looping", "loop/first", {"loop": ROUNDS})
    detail = hop(checks, "Looping")
    rounds = sum(bool(checks.object_calls("Looping", f"loop/{left}")) for left in range(1, ROUNDS + 1))
    assert checks.aws.is_local or rounds < ROUNDS, f"Lambda has not stopped a loop of {ROUNDS} rounds"
    evidence(f"{detail}. The loop ended after {rounds} rounds")


def hop(checks: Deployed, pipeline: str) -> str:
    """Wait as 20 copies of a minute, or of a second on a local AWS."""
    key, seconds = "waits/a.json", 1 if checks.aws.is_local else 60
    version = checks.put(pipeline, key, {"hops": HOPS, "seconds": seconds})
    delayed: list[int] = []

    def ended() -> bool:
        delayed.append(checks.depth(f"{pipeline}Queue")[2])
        return version in checks.object_calls(pipeline, key)

    checks.until(ended, f"a wait of {HOPS} hops has ended", seconds=600 + HOPS * seconds * 2)
    assert any(delayed), "no delayed message was seen: the waits were no copies"
    assert checks.object_calls(pipeline, key) == {version: 1, f"{version}#calls": HOPS + 1}
    return f"{HOPS} delayed copies of {seconds} s, then one effect"
