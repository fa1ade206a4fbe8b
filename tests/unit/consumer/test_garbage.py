"""The pause of Python's garbage collector in a cold start."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest

from intake_ledger.aws.clients import make_client
from intake_ledger.garbage import no_garbage_collection


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector as it was before the test."""
    was_enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    yield
    (gc.enable if was_enabled else gc.disable)()
    if not frozen:
        gc.unfreeze()


def test_the_collector_runs_again_after_the_block() -> None:
    gc.enable()
    with no_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_runs_again_after_a_failure() -> None:
    """A client that cannot be made is made again by the next invocation."""
    gc.enable()
    with pytest.raises(KeyError), no_garbage_collection():
        dict[str, str]()["missing"]
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    """A processor's own module may have turned it off, and frozen nothing."""
    gc.disable()
    frozen = gc.get_freeze_count()
    with no_garbage_collection(freeze=True):
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_the_modules_of_the_consumer_are_not_looked_at_again() -> None:
    """Lambda imports them before the first event."""
    code = "import gc, intake_ledger.consumer; print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["True", "True"]


def test_no_collection_runs_while_a_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.enable()
    seen = []

    def create(*_: Any, **__: Any) -> None:
        seen.append(gc.isenabled())

    monkeypatch.setattr(botocore.session.Session, "create_client", create)
    make_client("s3")
    assert seen == [False]
    assert gc.isenabled()
