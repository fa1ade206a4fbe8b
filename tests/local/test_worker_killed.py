"""A worker that dies in the middle."""

from tests.local.support import Pipeline


def test_a_killed_worker_leaves_the_work_to_the_next_attempt(dying_worker: tuple[Pipeline, str, str]) -> None:
    """F126: SIGKILL after the claim. Soon after its lease the message comes back: the second attempt has the effect."""
    second, key, version = dying_worker

    assert second.effect(key, version)["attempt"] == 2

    # On a slow machine the message may come back before the lease ends, and is BUSY.
    lines = second.aws.wait_until(
        lambda: (
            lines if len(lines := [one for one in second.decisions(key) if one.get("verdict") != "BUSY"]) > 2 else []
        ),
        "both attempts are logged",
    )
    assert [one.get("verdict", one["message"]) for one in lines] == ["ACCEPTED", "ACCEPTED", "committed"]
    assert lines[1]["fence"] > lines[0]["fence"]
