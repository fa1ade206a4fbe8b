"""Pipelines on existing resources: one key, queues, a shared table, a network, logs, a topic, a nested stack."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.local.conftest import Outputs
from tests.local.pipelines.brought_stack import PIPELINES
from tests.local.support import TIMEOUT, Entry, Pipeline


@pytest.mark.parametrize("name", PIPELINES)
def test_uploads_are_processed_with_what_was_brought(pipeline: Callable[[str, str], Pipeline], name: str) -> None:
    """An upload and an overwrite have one effect each."""
    place, key = pipeline("Brought", name), "in/ä+b.bin"
    for count, content in enumerate((b"first", b"second"), start=1):
        place.aws.client("s3").put_object(Bucket=place.bucket, Key=key, Body=content)
        effects = place.aws.wait_until(partial(_so_many, place, key, count), f"{key} has its effect", timeout=TIMEOUT)
        assert content.decode() in {effect["content"] for effect in effects}


def test_two_share_the_table_that_was_brought(pipeline: Callable[[str, str], Pipeline], outputs: Outputs) -> None:
    """Each has its row there. The third pipeline has a separate ledger."""
    key = "in/shared.bin"
    buckets = {}
    for name in PIPELINES:
        place = pipeline("Brought", name)
        place.aws.client("s3").put_object(Bucket=place.bucket, Key=key, Body=b"x")
        place.aws.wait_until(partial(place.effects, key), f"{key} of {name} has its effect", timeout=TIMEOUT)
        buckets[name] = place.bucket
    rows = place.aws.client("dynamodb").scan(TableName=outputs["Brought"]["LedgerTable"])["Items"]
    found = {row["pk"]["S"] for row in rows}
    assert {f"{buckets[name]}/{key}" for name in ("Everything", "Sharing")} <= found
    assert f"{buckets['Nested']}/{key}" not in found


def _so_many(place: Pipeline, key: str, count: int) -> list[Entry]:
    effects = place.effects(key)
    return effects if len(effects) == count else []
