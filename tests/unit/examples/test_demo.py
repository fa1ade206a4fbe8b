"""Tests the demo's rules and its script without AWS."""

from collections import Counter
from pathlib import Path

import pytest
from examples.demo import script
from examples.demo.judge import SideFacts, _compare_effects
from examples.demo.material import MaterialError, files_below
from examples.harness.objects import Action

KEY = "models/one"


def judged(epochs: list[str | None], *states: str | None, pids: tuple[int, ...] = ()) -> SideFacts:
    """Judge effects that wrote these states in this order."""
    effects = [
        {
            "key": KEY,
            "kind": "removed" if state is None else "created",
            "version": state or "",
            "pid": pids[n] if pids else 1,
            "started": n * 10,
            "ended": n * 10 + (15 if pids else 5),
        }
        for n, state in enumerate(states)
    ]
    facts = SideFacts()
    _compare_effects(effects, {KEY: epochs}, {(KEY, epoch) for epoch in epochs if epoch}, facts)
    return facts


@pytest.mark.parametrize(
    ("epochs", "states"),
    [
        (["v1"], ["v1"]),
        (["v1", "v2", "v3"], ["v1", "v3"]),
        (["v1", None, "v1"], ["v1", None, "v1"]),
        (["v1", "v2", "v1"], ["v1", "v2", "v1"]),
        (["v1", None], [None]),
    ],
    ids=["once", "one overtaken", "deleted and back", "rolled back", "only the removal"],
)
def test_effects_that_follow_what_s3_held_are_right(epochs: list[str | None], states: list[str | None]) -> None:
    """States may be skipped, and may repeat if S3 showed them again."""
    facts = judged(epochs, *states)
    assert (facts.repeated, facts.backwards, facts.removed_present) == ([], [], [])


def test_each_mistake_has_its_name() -> None:
    """An older version over a newer one is a step backwards, and mending it is none."""
    assert judged(["v1", "v2"], "v2", "v1", "v2").backwards == [KEY]
    assert judged(["v1", None, "v2"], "v1", None, "v2", None, "v2").removed_present == [KEY]
    assert judged(["v1", "v2"], "v1", "v2", pids=(1, 2)).overlapping == [KEY]
    facts = judged(["v1", "v2"], "v1", "v1", "v2", "v2")
    assert facts.repeated == [KEY, KEY]
    assert facts.per_version == Counter({2: 2})


@pytest.mark.parametrize("number", [1, 3, 60])
@pytest.mark.parametrize("short", [True, False])
def test_any_number_of_files_makes_a_whole_script(tmp_path: Path, number: int, short: bool) -> None:
    """Each story occurs, each key has one, and a seed always gives the same script."""
    for n in range(number):
        (tmp_path / f"{n}.csv").write_text("a,b\n" * n)
    sources, left_out = files_below(tmp_path)
    assert (len(sources), left_out) == (number, 0)

    told = script.write(sources, seed=1, short=short)

    expected = {story.name for story in script.STORIES if not (short and story.kills)}
    assert set(told.stories.values()) == {*expected, script.HOT, script.POISON}
    assert not {operation.key for operation in told.first} & set(told.stories)
    assert len({(operation.key, operation.story) for operation in told.operations}) == len(told.stories)
    assert told == script.write(sources, seed=1, short=short)
    assert bool(told.kill_keys) is not short
    for key in told.stories:
        steps = [operation.action for operation in told.operations if operation.key == key]
        assert steps[0] is Action.PUT


def test_a_path_with_nothing_to_upload_is_refused(tmp_path: Path) -> None:
    """The message has the path."""
    with pytest.raises(MaterialError, match="nowhere"):
        files_below(tmp_path / "nowhere")
    (tmp_path / ".hidden").write_text("x")
    with pytest.raises(MaterialError, match="no readable file"):
        files_below(tmp_path)
