"""Counts the requests of a deployed consumer to the local AWS for an object, and measures the CPU time of each request
in the local AWS.

    python -m benchmarks.throughput_requests HANDLER EMULATOR < EVENTS

`benchmarks.throughput` runs it. The consumer's handler runs in a separate process with the variables of its deployed
function, one batch after another, while nothing else runs. All CPU time of the local AWS during a request therefore
belongs to that request. The first batch creates clients and connections, and is not counted.
"""

import argparse
import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.cpu import silence
from botocore.client import BaseClient

from intake_ledger_testing.context import LambdaContext

SECONDS = 900
"""The remaining time of the invocation."""


def cpu_ms(process: int) -> float:
    """Return the CPU milliseconds of all threads of a process, with a precision of microseconds."""
    paths = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in paths) / 1e6


def profile(handler: str, emulator: int, events: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Return the requests for each message and the local AWS's CPU milliseconds for each request, by operation."""
    module, _, name = handler.rpartition(".")
    handle = getattr(importlib.import_module(module), name)
    number: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    real = BaseClient._make_api_call  # type: ignore[attr-defined]  # noqa: SLF001

    def watched(self: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        before = cpu_ms(emulator)
        try:
            return real(self, operation, arguments)
        finally:
            number[operation] += 1
            spent[operation] += cpu_ms(emulator) - before  # type: ignore[assignment]

    first, *rest = events
    with silence():
        handle(first, LambdaContext(SECONDS))
        with mock.patch.object(BaseClient, "_make_api_call", watched):
            for event in rest:
                answer = handle(event, LambdaContext(SECONDS))
                assert not (answer or {}).get("batchItemFailures"), answer
    messages = sum(len(event["Records"]) for event in rest)
    return {
        operation: {"requests": count / messages, "CPU ms of each": spent[operation] / count}
        for operation, count in number.most_common()
    }


def asked(
    handler: str, emulator: int, variables: Mapping[str, str], events: Sequence[Any]
) -> dict[str, dict[str, float]]:
    """Run it in a separate process with the function's variables."""
    command = [sys.executable, "-m", "benchmarks.throughput_requests", handler, str(emulator)]
    run = subprocess.run(
        command, env=dict(variables), input=json.dumps(events), check=True, capture_output=True, text=True
    )
    found: dict[str, dict[str, float]] = json.loads(run.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("handler")
    parser.add_argument("emulator", type=int, help="the number of its process")
    arguments = parser.parse_args()
    print(json.dumps(profile(arguments.handler, arguments.emulator, json.load(sys.stdin))))


if __name__ == "__main__":
    main()
