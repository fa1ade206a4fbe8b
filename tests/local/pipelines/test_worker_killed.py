"""A worker that dies in the middle."""

from tests.local.support import Pipeline


def test_a_killed_worker_leaves_the_work_to_the_next_attempt(dying_worker: tuple[Pipeline, str, str]) -> None:
    """F126: SIGKILL after the claim. Soon after its lease the message comes back: the second attempt has the effect."""
    second, key, version = dying_worker

    assert second.effect(key, version)["attempt"] == 2

    assert [effect["attempt"] for effect in second.effects(key)] == [2]
