"""The processors of both pipelines, with reports of their attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.pictures.functions import plain_put
from examples.pictures.functions.attempts import reported
from examples.pictures.processor import pictures

if TYPE_CHECKING:
    from intake_ledger import ObjectChange


def fenced(change: ObjectChange) -> None:
    with reported(change.key):
        pictures.process(change)


def plain(change: ObjectChange) -> None:
    with reported(change.key):
        plain_put.process(change)
