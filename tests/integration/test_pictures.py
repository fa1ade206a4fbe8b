"""The processor of examples/pictures, and the script, the judge and the montage of its comparison."""

from io import BytesIO

import pytest
from examples.pictures.client import mixed
from examples.pictures.columns import Column
from examples.pictures.judge import Finding, Judged, compare, demonstrated, wrong_by_story, wrong_rounds
from examples.pictures.montage import WRONG, draw
from examples.pictures.processor.pictures import greyscale, process
from examples.pictures.script import STORIES, Action, Event, Worker, picture, shares, write
from PIL import Image, PngImagePlugin

from cdk_intake_ledger.testing import Fault, LocalPipeline

FIRST, SECOND = (greyscale(picture(7, action) or b"") for action in (Action.PUT_FIRST, Action.PUT_SECOND))


def judged(usual: bytes | None, plain: bytes | None, fenced: bytes | None, *, expected: bytes | None = FIRST) -> Judged:
    outputs = {Column.USUAL: usual, Column.PLAIN: plain, Column.FENCED: fenced}
    return Judged(0, "in/000.png", "a story", expected, outputs)


ALL_RIGHT = judged(FIRST, FIRST, FIRST)


# -- the processor ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> LocalPipeline:
    monkeypatch.setenv("OUTPUT_BUCKET", "copies")
    return LocalPipeline(process, deletes=True)


def test_the_output_is_the_grey_copy_of_the_newest_picture(pipeline: LocalPipeline) -> None:
    for action in (Action.PUT_FIRST, Action.PUT_SECOND):
        pipeline.put("a.png", picture(7, action) or b"")
    pipeline.duplicate()
    pipeline.reverse()
    pipeline.next(Fault.OVERTAKEN, Fault.KILLED_AFTER_EFFECT)
    pipeline.run()

    copy = pipeline.output("copies", "grey/a.png")

    assert copy is not None
    assert compare(SECOND, copy) is Finding.RIGHT
    assert Image.open(BytesIO(copy)).mode == "L"


def test_the_copy_of_a_deleted_picture_is_removed(pipeline: LocalPipeline) -> None:
    pipeline.put("a.png", picture(7, Action.PUT_FIRST) or b"")
    pipeline.run()
    assert pipeline.output("copies", "grey/a.png") is not None
    pipeline.delete("a.png")
    pipeline.run()

    assert pipeline.output("copies", "grey/a.png") is None


def test_a_file_that_is_no_picture_becomes_a_dead_letter(pipeline: LocalPipeline) -> None:
    pipeline.put("a.png", b"not a picture at all")
    pipeline.run()

    assert len(pipeline.dead_letters) == 1
    assert pipeline.output("copies", "grey/a.png") is None


# -- the script ------------------------------------------------------------------------------------------------------


def test_two_hundred_rounds_have_all_stories_with_their_weights() -> None:
    rounds = write(200, seed=1)

    assert {story.title: sum(one.story is story for one in rounds) for story in STORIES} == {
        story.title: story.weight for story in STORIES
    }
    assert len({one.key for one in rounds}) == 200


def test_the_same_seed_gives_the_same_script() -> None:
    assert write(30, seed=1) == write(30, seed=1) != write(30, seed=2)


def test_the_short_form_has_every_story_without_kills() -> None:
    titles = {one.story.title for one in write(10, seed=1, kills=False)}

    assert titles == {story.title for story in STORIES if not story.kills}


def test_the_stories_have_each_fault() -> None:
    steps = [step for story in STORIES for step in story.steps]

    assert {step.event for step in steps} == set(Event)
    assert {step.worker for step in steps} == set(Worker)


def test_the_stories_are_played_side_by_side() -> None:
    """Late workers of one story in a row would look like a downstream that is out."""
    rounds = write(200, seed=1)
    played = mixed(rounds)

    assert sorted(played, key=lambda one: one.number) == rounds
    assert {one.story for one in played[:20]} == set(STORIES)


def test_few_rounds_are_shared_too() -> None:
    assert shares(2, [5, 5, 5]) == [1, 1, 0]
    assert shares(6, [3, 2, 1]) == [3, 2, 1]


def test_each_upload_of_a_round_has_another_picture() -> None:
    assert len({picture(7, action) for action in Action}) == len(Action)
    assert picture(7, Action.DELETE) is None


# -- the judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "output", "finding"),
    [
        (FIRST, FIRST, Finding.RIGHT),
        (None, None, Finding.RIGHT),
        (FIRST, SECOND, Finding.STALE),
        (FIRST, b"no picture", Finding.STALE),
        (FIRST, None, Finding.MISSING),
        (None, FIRST, Finding.LEFTOVER),
    ],
)
def test_an_output_is_right_if_it_shows_the_expected_picture(
    expected: bytes | None, output: bytes | None, finding: Finding
) -> None:
    assert compare(expected, output) is finding


def test_the_fence_inside_a_picture_does_not_make_it_wrong() -> None:
    note = PngImagePlugin.PngInfo()
    note.add_text("intake-fence", "7")
    sealed = BytesIO()
    Image.open(BytesIO(FIRST)).save(sealed, "PNG", pnginfo=note)

    assert sealed.getvalue() != FIRST
    assert compare(FIRST, sealed.getvalue()) is Finding.RIGHT


def test_the_colours_of_a_picture_make_it_wrong() -> None:
    """A consumer that copies without turning grey is not right."""
    assert compare(FIRST, picture(7, Action.PUT_FIRST)) is Finding.STALE


def test_wrong_rounds_are_counted_by_column_and_story() -> None:
    rounds = [ALL_RIGHT, judged(SECOND, None, FIRST), judged(None, FIRST, FIRST)]
    counts = {Column.USUAL: 2, Column.PLAIN: 1, Column.FENCED: 0}

    assert wrong_rounds(rounds) == counts
    assert wrong_by_story(rounds) == {"a story": counts}


@pytest.mark.parametrize(
    ("wrong", "shown"), [((9, 5, 0), True), ((9, 5, 1), False), ((0, 5, 0), False), ((9, 0, 0), False)]
)
def test_the_comparison_needs_one_right_column_and_two_wrong_ones(wrong: tuple[int, ...], shown: bool) -> None:
    assert demonstrated(dict(zip(Column, wrong, strict=True))) is shown


@pytest.mark.parametrize("column", [Column.USUAL, Column.PLAIN])
def test_the_comparison_fails_without_the_ledger_and_without_the_fence(column: Column) -> None:
    assert not demonstrated({Column.USUAL: 9, Column.PLAIN: 5, Column.FENCED: 0}, column)


# -- the montage -----------------------------------------------------------------------------------------------------


def red(image: Image.Image) -> int:
    return sum(
        count for count, colour in image.convert("RGB").getcolors(image.width * image.height) or () if colour == WRONG
    )


def test_wrong_outputs_are_marked_and_counted_in_red() -> None:
    right, one, two = (
        red(draw([ALL_RIGHT, other]))
        for other in (ALL_RIGHT, judged(SECOND, FIRST, FIRST), judged(SECOND, None, FIRST))
    )

    assert right < one < two


@pytest.mark.parametrize("rounds", [1, 28, 29, 60])
def test_the_montage_grows_with_the_rounds(rounds: int) -> None:
    image, smaller = draw([ALL_RIGHT] * rounds), draw([ALL_RIGHT])

    assert image.height - smaller.height == (-(-rounds // 28) - 1) * (smaller.height - draw_height_without_blocks())
    assert image.width >= smaller.width


def draw_height_without_blocks() -> int:
    one, two = (draw([ALL_RIGHT] * rounds).height for rounds in (1, 29))
    return 2 * one - two


@pytest.mark.parametrize("content", [None, b"no picture"])
def test_the_montage_shows_outputs_that_are_no_pictures(content: bytes | None) -> None:
    assert draw([judged(content, content, content)]).width > 0
