"""Test a second pipeline in the same stack, and pipelines on existing buckets."""

from collections.abc import Callable

import pytest

from tests.local.support import Pipeline

PLACES = [
    pytest.param("Local", "Second", id="a second pipeline in the same stack"),
    pytest.param("Local", "OnExisting", id="a bucket of the same stack"),
    pytest.param("Guest", "OnSibling", id="a bucket of a sibling stack, by EventBridge"),
    pytest.param("Guest", "OnImported", id="a bucket imported by its name"),
]


@pytest.mark.parametrize(("stack", "id"), PLACES)
def test_uploads_are_processed_wherever_the_bucket_is(
    pipeline: Callable[[str, str], Pipeline], stack: str, id: str
) -> None:
    """An upload, and an overwrite after it, have one effect each, with exactly the bytes of their version."""
    place = pipeline(stack, id)
    key = "some where/ä+b.bin"
    for content in (b"first", b"second"):
        effect = place.effect(key, place.put(key, content))
        assert (effect["content"], effect["kind"], effect["attempt"]) == (content.decode(), "created", 1)
    assert len(place.effects(key)) == 2


def test_one_upload_concerns_one_pipeline(pipeline: Callable[[str, str], Pipeline]) -> None:
    """Pipelines of one stack do not hear of each other's objects."""
    first, other = pipeline("Local", "Second"), pipeline("Local", "OnExisting")
    key = "only-here.bin"

    first.effect(key, first.put(key, b"x"))

    assert other.effects(key) == []
