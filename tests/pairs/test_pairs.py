"""Play worlds of pairs: known ones, and those drawn by seed. A failing world is shrunk, and printed to be copied."""

import logging
import math
import threading
from collections.abc import Iterator

import pytest

from tests.pairs.defects import defects
from tests.pairs.features import ALWAYS, FEATURES, fits, make_world
from tests.pairs.search import Script, draw, play, search, shrink
from tests.pairs.stories import STORIES
from tests.pairs.world import Fault, Step
from tests.protocol.mutants import MUTANTS
from tests.settings import PAIR_SEEDS

FOUND = {
    "a message with other content waits for an execution that is not ready": Script(
        ("messages", "machine", "lambda", "fingerprint"),
        (Step("send", 0, 5), Step("turn"), Step("send"), Step("end")),
    ),
    "a message with other content sees that an execution was rejected": Script(
        ("messages", "machine", "lambda"),
        (Step("send", 0, 3), Step("double"), Step("send"), Step("turn"), Step("time", 3), Step("time", 3)),
    ),
    "a message with other content comes while the original waits": Script(
        ("messages", "machine", "lambda"),
        (
            *(Step("send", 10, 5), Step("turn"), Step("send"), Step("time", 2)),
            *(Step("send", 10, 3), Step("turn"), Step("turn"), Step("double", 2)),
        ),
    ),
    "a message ends at a row that waits for another content": Script(
        ("messages", "inline", "lambda", "rate"),
        (
            *(Step("send again", 0, 4), Step("send", 10, 12), Step("turn once more", 0, 5, Fault("die", 4))),
            *(Step("send again", 7, 15), Step("send again", 0, 13)),
        ),
    ),
    "a worker takes the lock of its key after another one has finished its message": Script(
        ("FIFO messages", "inline", "worker"),
        (
            *(Step("send", 0, 3), Step("send", 8, 0)),
            Step("turn again", 0, 0, Fault("pause", 8, (Step("time", 3, 0), Step("turn")))),
        ),
    ),
    "a late worker of transactions has written nothing": Script(
        ("objects", "inline", "lambda", "transact"),
        (
            Step("upload"),
            Step("turn", 0, 1, Fault("pause", 0, (Step("overwrite"), Step("time", 3), Step("turn", 1, 1)))),
        ),
    ),
    "a delivery deletes no message of a set that came again": Script(
        ("sets", "machine", "lambda"),
        (
            *(Step("manifest"), Step("part"), Step("part", 0, 8), Step("turn"), Step("double"), Step("part", 0, 3)),
            Step("turn", 0, 0, Fault("pause", 2, (Step("time", 3), Step("turn")))),
        ),
    ),
    "a late effect in a group comes before the commit of another key": Script(
        ("objects", "inline", "lambda", "groups"),
        (
            *(Step("upload"), Step("turn", 0, 0, Fault("sleep", 0)), Step("upload", 7), Step("time", 3)),
            *(Step("turn", 1, 1, Fault("sleep", -1)), Step("wake"), Step("wake")),
        ),
    ),
    "a purge while the worker of a group's key pauses": Script(
        ("every version", "durable", "lambda", "groups", "purge"),
        (
            *(Step("upload", 10, 0), Step("overwrite")),
            Step("turn again", 0, 0, Fault("pause", 4, (Step("purge"), Step("report again")))),
        ),
    ),
    "a set after a pause of months": Script(
        ("sets", "inline", "lambda", "months"),
        (
            Step("manifest"),
            Step("turn again", 0, 0, Fault("pause", 7, (Step("months"),))),
            Step("manifest"),
            Step("turn", 0, 0, Fault("lose", 7)),
        ),
    ),
    "a restore of the row of a message that has ended": Script(
        ("messages", "machine", "lambda", "restore"),
        (
            *(Step("send again"), Step("turn again"), Step("end")),
            *(Step("back up"), Step("turn again"), Step("restore")),
        ),
    ),
    "a person ends an execution, and a newer version comes": Script(
        ("objects", "machine", "lambda", "end"),
        (
            *(Step("overwrite", 0, 5), Step("turn again"), Step("end work")),
            *(Step("overwrite"), Step("end"), Step("upload", 9, 0)),
        ),
    ),
    "an execution of an overtaken version starts after it was looked for": Script(
        ("objects", "machine", "lambda", "stop_overtaken"),
        (Step("overwrite"), Step("turn", 0, 0, Fault("sleep", 0)), Step("upload")),
    ),
    "a worker stands still between the object and its processor": Script(
        ("every version", "inline", "lambda"),
        (
            *(Step("upload"), Step("overwrite"), Step("turn", 0, 0, Fault("sleep", -3))),
            *(Step("turn again", 0, 0, Fault("sleep", 0)), Step("wake")),
        ),
    ),
    **{
        f"the removal of a version comes before its upload: {' '.join(others)}": Script(
            ("objects", *others),
            (
                *(Step("upload", 0, 3 if "deletes" not in others else 0), Step("rollback"), Step("upload", 9)),
                *(*([Step("upload", 7)] if "calls" in others else []), Step("turn", 0, 1), Step("turn", 0, 1)),
            ),
        )
        for others in (
            *(("remote", "lambda"), ("remote", "lambda", "deletes"), ("durable", "lambda", "deletes")),
            *(("machine", "lambda", "deletes", "stop_overtaken"), ("machine", "worker", "deletes", "groups")),
            ("inline", "lambda", "calls", "deletes"),
        )
    },
    **{
        f"{name}, an execution {end}, and another message of the key is in the batch of its end": Script(
            (name, "machine", "lambda"),
            (
                *(Step("upload", 0, mood), Step("turn"), Step("end")),
                *(Step("upload" if name == "objects" else "report again"), Step("upload", 9)),
            ),
        )
        for name in ("objects", "every version")
        for mood, end in ((0, "commits"), (3, "is rejected"), (4, "fails"), (5, "waits"))
    },
    "the report of a late write is refused": Script(
        ("objects", "inline", "worker"),
        (
            *(Step("overwrite", 9), Step("turn", 0, 0, Fault("sleep", 3)), Step("upload", 8), Step("time", 3)),
            *(Step("turn again"), Step("lose event"), Step("wake", 0, 0, Fault("refuse", 3))),
        ),
    ),
    "the commit of a late worker is refused": Script(
        ("objects", "inline", "lambda"),
        (
            *(Step("upload", 7), Step("overwrite", 9), Step("remove"), Step("lose event", 2)),
            *(Step("turn", 0, 0, Fault("sleep", 9)), Step("rollback", 10), Step("time", 3), Step("turn again")),
            Step("wake", 0, 0, Fault("refuse", -1)),
        ),
    ),
    "a person redrives the copy of a request that was stopped": Script(
        ("objects", "inline", "lambda", "requests"),
        (
            *(Step("upload", 0, 3), Step("reprocess"), Step("turn again")),
            *(Step("overwrite"), Step("stop"), Step("redrive")),
        ),
    ),
    "the message of a redrive is lost": Script(
        ("objects", "inline", "lambda", "requests"),
        (Step("upload", 0, 3), Step("turn again"), Step("redrive"), Step("lose event"), Step("stop")),
    ),
    "a key without versions is removed twice": Script(
        ("objects", "remote", "lambda", "deletes", "unversioned"),
        (
            *(Step("overwrite"), Step("remove"), Step("turn"), Step("overwrite")),
            *(Step("turn again"), Step("remove"), Step("lose event")),
        ),
    ),
    "a person ends a set": Script(
        ("sets", "machine", "lambda", "end"),
        (Step("part"), Step("manifest"), Step("other part", 0, 11), Step("turn again"), Step("end work")),
    ),
    "a late worker has a content that is not committed": Script(
        ("messages", "inline", "lambda"),
        (Step("send", 0, 3), Step("time", 2), Step("turn again", 0, 0, Fault("sleep", 4)), Step("send")),
    ),
}
"""Worlds that failed once."""
FOUND_DEFECTS = 83
"""The defects of `defects.txt` that the worlds find, of 91. The others need what worlds do not have, such as a manifest
that S3 refuses for ever, or starts that must be in order."""
FAULTY = Script(
    ("objects", "inline", "lambda", "deletes", "skew", "tags"),
    (
        Step("upload", 0, 0, Fault("die", 9)),
        Step("remove", 1),
        Step("turn", 0, 0, Fault("pause", 3, (Step("time", 3), Step("turn")))),
        Step("upload", 2, 3),
        Step("audit"),
    ),
)


# A seed repeats: conflicts at random would come on top of the faults of a world.
pytestmark = pytest.mark.quiet_tables


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.failure_mode("F735", "F736", "F786", "F787", "F795")
@pytest.mark.parametrize("name", FOUND)
def test_a_world_that_failed_once_holds(name: str) -> None:
    assert not play(FOUND[name])


@pytest.mark.parametrize("name", STORIES)
def test_a_world_that_finds_a_defect_holds_without_it(name: str) -> None:
    assert not play(STORIES[name])


@pytest.mark.wide
def test_worlds_hold() -> None:
    """`python -m tests.pairs.search` plays other ones each day."""
    _, found = search(PAIR_SEEDS, math.inf)
    for seed, script, said in found:
        small, told = shrink(script, said)
        pytest.fail(f"seed {seed}: {told}\n{small!r}")


def test_a_seed_repeats_its_world() -> None:
    assert draw(7) == draw(7) != draw(8)


@pytest.mark.parametrize(
    "wanted",
    [
        ("machine", "durable"),
        ("sets", "deletes"),
        ("FIFO messages", "machine"),
        ("every version", "deletes", "exclude"),
        ("calls", "stop_overtaken"),
    ],
)
def test_features_that_never_meet_are_refused(wanted: tuple[str, ...]) -> None:
    """By a feature, by the kit, or by both."""
    with pytest.raises(ValueError, match=" ".join(("no world has the features", ", ".join(wanted)))):
        draw(7, wanted)


def test_what_a_feature_needs_is_a_kind_or_a_runner() -> None:
    """`may_meet` relies on that."""
    assert {FEATURES[name].role for one in FEATURES.values() for name in one.beside} == {"kind", "runner"}


def test_a_drawn_world_is_the_one_of_its_script() -> None:
    """`play` takes the world that `draw` has made."""
    script = draw(10_023)
    assert [play(script) for _ in range(2)] == [""] * 2


def test_a_failing_world_shrinks_to_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a file without its tag fails."""
    monkeypatch.setattr(FEATURES["tags"], "judge", lambda _: iter(["a file is bad"]))
    small, said = shrink(FAULTY, play(FAULTY))
    assert (small.features, small.steps) == (("objects", "inline", "lambda", "tags"), ())
    assert said == "before the audit: a file is bad"
    assert eval(repr(small), {"Script": Script, "Step": Step, "Fault": Fault}) == small, "it is a test to copy"


def test_the_worker_that_stands_still_first_may_go_on_first() -> None:
    world = make_world(("objects", "inline", "lambda"))
    for number, key in enumerate((0, 7)):
        world.step(Step("upload", key))
        world.step(Step("turn", number, 1, Fault("sleep", 0)))
    assert not world.done
    world.step(Step("wake", 0))
    assert [one.key for one in world.done] == ["a/manifest.json"]
    world.step(Step("wake", 0, 0, Fault("refuse", 1)))
    assert [one.key for one in world.done] == ["a/manifest.json", "a/b/manifest.json"]
    assert [one.state for one in world.commits] == ["version-1"], "its commit is refused"
    assert not world.sleepers


def test_no_worker_of_a_failed_world_stands_still_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    said = lambda world: iter(["two stand still"] if len(world.sleepers) > 1 else [])  # noqa: E731
    monkeypatch.setattr(FEATURES["tags"], "watch", said)
    steps = [Step("upload"), Step("upload", 7), *(Step("turn", one, 1, Fault("sleep", 0)) for one in range(2))]
    before = threading.active_count()
    assert play(Script(("objects", "inline", "lambda", "tags"), tuple(steps))) == "two stand still"
    assert threading.active_count() == before


def test_a_busy_table_is_a_fault_of_the_script() -> None:
    sent = []
    for fault in (None, Fault("busy", 2), Fault("busy", 2)):
        world = make_world(("objects", "inline", "lambda"))
        world.step(Step("upload"))
        world.step(Step("turn", 0, 1, fault))
        sent.append(world.local.requests)
    assert sent[1] == sent[2]
    assert [one.count("update_item") for one in sent[:2]] == [1, 3], "two of them meet a transaction"


def test_each_feature_has_a_world() -> None:
    """A feature that meets no other one is never searched."""
    met = {name for seed in range(400) for name in draw(seed).features}
    assert met == set(FEATURES) - {ALWAYS.name}


def test_each_defect_of_pairs_names_a_defect_and_features_that_meet() -> None:
    assert set(STORIES) <= set(defects()) <= {one.name for one in MUTANTS}
    for pair in defects().values():
        assert set(pair.features) <= set(FEATURES)
        assert fits(draw(1, pair.features).features)


def test_most_defects_of_pairs_are_found() -> None:
    """`python -m tests.pairs.measure` measures it. The number only grows."""
    assert sum(one.found for one in defects().values()) >= FOUND_DEFECTS
