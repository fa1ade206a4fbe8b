"""The entry point on Lambda Managed Instances, where Lambda does not end a function that takes too long."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from intake_ledger.consumer import composition, managed_instances

SCRIPT = """
import re
from types import SimpleNamespace
from intake_ledger.consumer import managed_instances

class Consumer:
    def handle(self, event, context):
        print("begins", flush=True)
        re.match(r"(a+)+$", "a" * 40 + "b")  # one call into C, which holds the interpreter's lock for hours
        print("ends", flush=True)

managed_instances.composition.make_consumer = Consumer
managed_instances.handler({}, SimpleNamespace(get_remaining_time_in_millis=lambda: 200))
"""


def test_a_processor_that_nothing_interrupts_ends_with_its_invocation() -> None:
    """No signal handler and no thread could run. The log gets a traceback."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stdout) == (1, "begins\n")
    assert "Timeout" in run.stderr
    assert "in handle" in run.stderr


@pytest.mark.parametrize("error", [None, ValueError("broken")])
def test_an_invocation_that_ends_in_time_leaves_no_timer(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    calls: list[str] = []

    class Consumer:
        def handle(self, event: Any, context: Any) -> dict[str, Any]:
            calls.append("handle")
            if error:
                raise error
            return {"batchItemFailures": []}

    timer = SimpleNamespace(
        dump_traceback_later=lambda seconds, **options: calls.append(f"{seconds} {options}"),
        cancel_dump_traceback_later=lambda: calls.append("cancel"),
    )
    monkeypatch.setattr(composition, "make_consumer", Consumer)
    monkeypatch.setattr(managed_instances, "faulthandler", timer)
    context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: 5_000)
    if error:
        with pytest.raises(ValueError, match="broken"):
            managed_instances.handler({}, context)
    else:
        assert managed_instances.handler({}, context) == {"batchItemFailures": []}
    assert calls == ["5.0 {'exit': True, 'file': 2}", "handle", "cancel"]


def test_the_audit_of_sets_is_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule invokes the function of sets with it."""
    monkeypatch.setattr(composition, "handler", lambda event, context: {"checked": event})
    context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: 5_000)
    assert managed_instances.handler({"auditSets": True}, context) == {"checked": {"auditSets": True}}
