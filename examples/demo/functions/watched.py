"""The catalogue's processor with records for the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.catalogue.processor import catalogue
from examples.demo.functions import notebook

if TYPE_CHECKING:
    from intake_ledger import Commit, ObjectChange


def process(change: ObjectChange) -> Commit:
    """Call the catalogue's `process` and record its effect."""
    notebook.die_once("ledger", change.key)
    with notebook.effect("ledger", change.key, change.kind) as entry:
        commit = catalogue.process(change)
        entry["version"] = change.version_id or ""
    return commit
