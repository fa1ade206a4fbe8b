"""The processor of examples/content: the WebP of an image and the row of its page agree under each fault."""

from io import BytesIO
from typing import override

import pytest
from examples.content import stack
from examples.content.processor import content
from examples.content.processor.content import process
from PIL import Image

from cdk_intake_ledger.testing import Fault, LocalPipeline, MemoryTables

KEY = "images/home"
PAGE = {"page": {"S": "home"}}
RED, BLUE = (200, 20, 20), (20, 20, 200)


def image(colour: tuple[int, int, int], *, side: int = 128) -> bytes:
    output = BytesIO()
    Image.new("RGB", (side, side // 2), colour).save(output, "PNG")
    return output.getvalue()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> MemoryTables:
    monkeypatch.setenv("OUTPUT_BUCKET", "web")
    monkeypatch.setenv("CONTENT_TABLE", "pages")
    monkeypatch.setattr(content, "LARGEST", (64, 64))
    tables = MemoryTables({"pages": {"page": "S"}})
    tables.put_item(TableName="pages", Item=PAGE | {"title": {"S": "Welcome"}})
    return tables


def shown(pipeline: LocalPipeline, pages: MemoryTables) -> str | None:
    """The colour of the image that the page shows. None: none."""
    row = pages.get_item(TableName="pages", Key=PAGE)["Item"]
    assert row["title"] == {"S": "Welcome"}
    if "image" not in row:
        return None
    found = pipeline.output("web", row["image"]["S"])
    assert found is not None, "the row names an object that exists"
    with Image.open(BytesIO(found)) as picture:
        assert (picture.format, picture.size) == ("WEBP", (64, 32))
        assert (row["width"]["N"], row["height"]["N"]) == (str(picture.width), str(picture.height))
        red, _, blue = picture.convert("RGB").getpixel((9, 9))  # type: ignore[misc]
    return "red" if red > blue else "blue"


def test_both_files_use_the_same_prefixes() -> None:
    assert (content.UPLOADS, content.PREFIX) == (stack.UPLOADS, stack.PREFIX)


@pytest.mark.parametrize("fault", Fault)
def test_the_page_shows_the_newest_image_whoever_dies_or_is_late(pages: MemoryTables, fault: Fault) -> None:
    """The first image has the fault, and the events come twice, the older ones last."""
    pipeline = LocalPipeline(process, deletes=True, dynamodb=pages)
    pipeline.put(KEY, image(RED))
    pipeline.put(KEY, image(BLUE))
    pipeline.duplicate()
    pipeline.reverse()
    pipeline.next(fault)
    pipeline.run()
    assert shown(pipeline, pages) == "blue"


class _Late(LocalPipeline):
    """Another image is uploaded while a late worker has the first one."""

    late = False

    @override
    def _stand_still(self) -> None:
        if not self.late:
            self.late = True
            self.put(KEY, image(BLUE))
        super()._stand_still()


@pytest.mark.parametrize("fault", [Fault.OVERTAKEN, Fault.OVERTAKEN_AND_KILLED])
def test_a_late_worker_changes_no_page(pages: MemoryTables, fault: Fault) -> None:
    """A row that is written outside of the commit shows the older image again, if the late worker dies afterwards."""
    pipeline = _Late(process, deletes=True, dynamodb=pages)
    pipeline.put(KEY, image(RED))
    pipeline.next(fault)
    pipeline.run()
    assert pipeline.late
    assert shown(pipeline, pages) == "blue"


def test_a_removed_image_is_shown_no_more(pages: MemoryTables) -> None:
    """The row and its title stay. A file that is no image becomes a dead letter."""
    pipeline = LocalPipeline(process, deletes=True, dynamodb=pages)
    pipeline.put(KEY, image(RED))
    pipeline.run()
    assert shown(pipeline, pages) == "red"
    pipeline.delete(KEY)
    pipeline.run()
    assert shown(pipeline, pages) is None
    pipeline.put(KEY, b"no image")
    pipeline.run()
    assert len(pipeline.dead_letters) == 1


@pytest.mark.failure_mode("F666")
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_image_is_rejected_at_its_first_attempt(pages: MemoryTables, share: float) -> None:
    whole = image(RED)
    pipeline = LocalPipeline(process, deletes=True, dynamodb=pages)
    pipeline.put(KEY, whole[: int(len(whole) * share)])
    pipeline.run()
    assert len(pipeline.calls) == 1
    assert pipeline.outcomes["Failed"] == 0


@pytest.mark.failure_mode("F666")
def test_the_image_of_a_phone_is_upright() -> None:
    file, orientation = BytesIO(), Image.Exif()
    orientation[0x0112] = 6
    Image.new("RGB", (40, 20)).save(file, "JPEG", exif=orientation)
    assert content.scaled(file.getvalue()).size == (20, 40)
