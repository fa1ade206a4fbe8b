"""The processor of examples/pictures, and the script, the judge and the montage of its comparison."""

from io import BytesIO

import pytest
from examples.pictures.columns import Column, chosen
from examples.pictures.judge import Finding, Judged, compare, demonstrated
from examples.pictures.montage import WRONG, draw
from examples.pictures.processor.pictures import greyscale, process
from examples.pictures.script import STORIES, Action, Event, Worker, picture, write
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


@pytest.mark.failure_mode("F666")
@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_picture_is_decided_at_its_first_attempt(pipeline: LocalPipeline, form: str, share: float) -> None:
    """Another attempt would read the same."""
    file = BytesIO()
    Image.effect_noise((100, 80), 50).convert("RGB").save(file, form)
    pipeline.put("a", file.getvalue()[: int(len(file.getvalue()) * share)])
    pipeline.run()
    assert len(pipeline.calls) == 1
    assert pipeline.outcomes["Failed"] == 0


@pytest.mark.failure_mode("F666")
def test_the_copy_of_a_phones_photo_is_upright() -> None:
    """A JPEG says how viewers have to turn it. A PNG does not."""
    file, orientation = BytesIO(), Image.Exif()
    orientation[0x0112] = 6
    Image.new("RGB", (40, 20)).save(file, "JPEG", exif=orientation)
    assert Image.open(BytesIO(greyscale(file.getvalue()))).size == (20, 40)


# -- the script ------------------------------------------------------------------------------------------------------


def test_two_hundred_rounds_have_all_stories_with_their_weights() -> None:
    rounds = write(200, seed=1)

    assert {story.title: sum(one.story is story for one in rounds) for story in STORIES} == {
        story.title: story.weight for story in STORIES
    }
    assert len({one.key for one in rounds}) == 200


def test_the_stories_have_each_fault() -> None:
    steps = [step for story in STORIES for step in story.steps]

    assert {step.event for step in steps} == set(Event)
    assert {step.worker for step in steps} == set(Worker)


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


@pytest.mark.parametrize(
    ("wrong", "shown"), [((9, 5, 0), True), ((9, 5, 1), False), ((0, 5, 0), False), ((9, 0, 0), False)]
)
def test_the_comparison_needs_one_right_column_and_two_wrong_ones(wrong: tuple[int, ...], shown: bool) -> None:
    assert demonstrated(dict(zip(chosen(locks=False), wrong, strict=True))) is shown


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
