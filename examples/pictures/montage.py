"""The montage: for each round the expected picture and the outputs of the consumers, one below the other.

Rounds of the same story are side by side. Wrong outputs have a red frame and a cross.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING

from examples.pictures.judge import columns_of, wrong_by_story, wrong_rounds
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from examples.pictures.columns import Column
    from examples.pictures.judge import Judged

CELL, GAP, MARGIN = 40, 4, 24
LABELS = 260
"""Width of the texts at the left of each row."""
PER_LINE = 28
"""The most rounds side by side."""
BACKGROUND, INK, SOFT, LINE = (255, 255, 255), (30, 34, 40), (110, 116, 125), (222, 226, 231)
WRONG, RIGHT, EMPTY = (208, 20, 38), (20, 130, 70), (247, 248, 250)
TITLE_HEIGHT, STORY_HEIGHT, BLOCK_GAP = 186, 26, 18
ROW = CELL + GAP


@dataclass(frozen=True, slots=True)
class _Block:
    """Rounds of one story that are side by side."""

    title: str
    rounds: Sequence[Judged]
    wrong: Mapping[Column, int]
    """The wrong rounds of the whole story."""
    total: int


def draw(rounds: Sequence[Judged], *, faults: str = "") -> Image.Image:
    """Draw the montage.

    Args:
        rounds: in the order of the stories.
        faults: a sentence about the faults of the run; none when omitted.

    Returns:
        the image, with a palette of greys and the colours of the marks.

    """
    blocks, rows = _blocks(rounds), 1 + len(columns_of(rounds))
    width = 2 * MARGIN + LABELS + max(10, *(len(block.rounds) for block in blocks)) * ROW
    height = TITLE_HEIGHT + len(blocks) * (STORY_HEIGHT + rows * ROW + BLOCK_GAP) + MARGIN
    image = Image.new("RGB", (max(width, 1100), height), BACKGROUND)
    pen = ImageDraw.Draw(image)
    _draw_title(pen, rounds, faults)
    top = TITLE_HEIGHT
    for block in blocks:
        _draw_block(image, pen, block, top)
        top += STORY_HEIGHT + rows * ROW + BLOCK_GAP
    return image.quantize(palette=_palette(), dither=Image.Dither.NONE)


def _palette() -> Image.Image:
    """Return the colours of the montage: greys, and the other colours with their mixtures with white."""
    colours = [(grey, grey, grey) for grey in range(0, 256, 5)]
    for colour in (INK, SOFT, LINE, WRONG, RIGHT, EMPTY):
        colours += [_mixed(colour, part / 8) for part in range(8)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in colours for part in colour])
    return palette


def _mixed(colour: tuple[int, int, int], white: float) -> tuple[int, int, int]:
    red, green, blue = (round(part + (255 - part) * white) for part in colour)
    return red, green, blue


def _blocks(rounds: Sequence[Judged]) -> list[_Block]:
    wrong = wrong_by_story(rounds)
    blocks: list[_Block] = []
    for story, group in groupby(rounds, key=lambda one: one.story):
        members = list(group)
        for start in range(0, len(members), PER_LINE):
            title = story if start == 0 else f"{story} (continued)"
            blocks.append(_Block(title, members[start : start + PER_LINE], wrong[story], len(members)))
    return blocks


def _draw_title(pen: ImageDraw.ImageDraw, rounds: Sequence[Judged], faults: str) -> None:
    total, wrong = len(rounds), wrong_rounds(rounds)
    _text(pen, (MARGIN, 20), f"Grey copies of {total} pictures after duplicates, losses, killed and late workers", 24)
    x = MARGIN
    for column in columns_of(rounds):
        colour = WRONG if wrong[column] else RIGHT
        result = f"{wrong[column]} of {total} wrong" if wrong[column] else f"{total} of {total} right"
        x += _text(pen, (x, 58), f"{column.label}: ", 17)
        x += _text(pen, (x, 58), result, 17, colour) + 34
    _text(
        pen,
        (MARGIN, 90),
        "Each stack is one key. 1, 2 and 3 are its uploads, one after another. "
        "The top picture is the grey copy of what S3 holds in the end.",
        14,
        SOFT,
    )
    _text(pen, (MARGIN, 112), faults, 14, SOFT)
    y, x = 138, MARGIN
    _empty(pen, x, y, 24)
    x += 34 + _text(pen, (x + 34, y + 3), "no picture (deleted)", 14, SOFT) + 24
    _mark(pen, x, y, 24)
    _text(pen, (x + 34, y + 3), "wrong: another picture, none, or one that was deleted", 14, SOFT)


def _draw_block(image: Image.Image, pen: ImageDraw.ImageDraw, block: _Block, top: int) -> None:
    pen.line((MARGIN, top - BLOCK_GAP // 2, image.width - MARGIN, top - BLOCK_GAP // 2), fill=LINE)
    _text(pen, (MARGIN, top), block.title, 16)
    rows: list[Column | None] = [None, *columns_of(block.rounds)]
    for number, column in enumerate(rows):
        y = top + STORY_HEIGHT + number * ROW
        if column is None:
            _text(pen, (MARGIN, y + 11), "expected", 15, SOFT)
        else:
            wrong = block.wrong[column]
            used = _text(pen, (MARGIN, y + 11), column.label, 15)
            result = f"{wrong} wrong" if wrong else "right"
            _text(pen, (MARGIN + used + 10, y + 11), result, 15, WRONG if wrong else RIGHT)
        for place, one in enumerate(block.rounds):
            x = MARGIN + LABELS + place * ROW
            content = one.expected if column is None else one.outputs[column]
            _draw_picture(image, pen, content, x, y)
            if column is not None and not one.finding(column).right:
                _mark(pen, x, y, CELL)


def _draw_picture(image: Image.Image, pen: ImageDraw.ImageDraw, content: bytes | None, x: int, y: int) -> None:
    if content is None:
        _empty(pen, x, y, CELL)
        return
    try:
        with Image.open(BytesIO(content)) as picture:
            image.paste(picture.convert("RGB").resize((CELL, CELL), Image.Resampling.LANCZOS), (x, y))
    except UnidentifiedImageError:
        _empty(pen, x, y, CELL)
        _text(pen, (x + CELL // 2 - 4, y + 10), "?", 16, WRONG)


def _empty(pen: ImageDraw.ImageDraw, x: int, y: int, size: int) -> None:
    """Draw the place of an absent picture."""
    pen.rectangle((x, y, x + size - 1, y + size - 1), outline=LINE, fill=EMPTY)
    pen.line((x + 1, y + size - 2, x + size - 2, y + 1), fill=LINE)


def _mark(pen: ImageDraw.ImageDraw, x: int, y: int, size: int) -> None:
    """Draw a red frame and a cross in its corner."""
    pen.rectangle((x - 1, y - 1, x + size, y + size), outline=WRONG, width=3)
    box = max(9, size // 3)
    left, top = x + size - box, y
    pen.rectangle((left, top, left + box, top + box), fill=WRONG)
    pen.line((left + 3, top + 3, left + box - 3, top + box - 3), fill="white", width=2)
    pen.line((left + 3, top + box - 3, left + box - 3, top + 3), fill="white", width=2)


def _text(
    pen: ImageDraw.ImageDraw, place: tuple[int, int], text: str, size: int, colour: tuple[int, int, int] = INK
) -> int:
    """Write a text and return its width in pixels."""
    font = ImageFont.load_default(size)
    pen.text(place, text, fill=colour, font=font)
    return round(pen.textlength(text, font=font))
