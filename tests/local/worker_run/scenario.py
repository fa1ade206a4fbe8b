"""Upload objects while workers are killed and stopped, and count lost and double effects."""

import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boto3.dynamodb.types import TypeDeserializer

from cdk_intake_ledger.testing import LocalAws

ROOT = Path(__file__).resolve().parents[3]
WORKERS = 3
TIMEOUT = 240.0
# `faulthandler` ends a process with 1. It prints the stacks before, without the interpreter's lock. A thread that runs
# may make it crash meanwhile (https://github.com/python/cpython/issues/116008). Either way, the process ends at once.
TIMER_EXITS = (1, -signal.SIGSEGV)
_read = TypeDeserializer().deserialize


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a run."""

    objects: int
    kills: int
    stops: int


FULL = Plan(objects=400, kills=24, stops=15)
SHORT = Plan(objects=60, kills=4, stops=2)


@dataclass(kw_only=True)
class Outcome:
    """The results of a run."""

    plan: Plan
    repeated_runs: int = 0
    """Runs of the processor beyond the first, for one version. Workers died after them."""
    double: list[str] = field(default_factory=list)
    """Versions whose transactional effect happened more than once."""
    lost: list[str] = field(default_factory=list)
    """Keys whose newest version has no effect."""
    slow_runs: int = 0
    """Runs of the processor on work that takes longer than a lease, while all workers live."""
    paused_runs: int = 0
    """Runs on such work whose first worker is paused (SIGSTOP) for longer than its lease."""
    paused_effects: int = 0
    exits: list[int] = field(default_factory=list)
    """The exit codes of the workers that were stopped by SIGTERM."""

    def problems(self) -> list[str]:
        """One line for each broken promise."""
        found = []
        if self.lost:
            found.append(f"{len(self.lost)} lost: {self.lost[:5]}")
        if self.double:
            found.append(f"{len(self.double)} double: {self.double[:5]}")
        if self.slow_runs != 1:
            found.append(f"work that is longer than a lease ran {self.slow_runs} times: no heartbeat kept it")
        if (self.paused_runs, self.paused_effects) != (2, 1):
            found.append(
                f"a paused worker: {self.paused_runs} runs and {self.paused_effects} effects, expected 2 and 1"
            )
        # A worker that got SIGTERM before it had begun to listen ends with -15. One that was paused in its work may be
        # ended by its timer, once.
        by_timer = [code for code in self.exits if code in TIMER_EXITS]
        if len(by_timer) > 1 or 0 not in self.exits or not set(self.exits) <= {0, *TIMER_EXITS, -signal.SIGTERM}:
            found.append(f"workers that were stopped ended with {self.exits}")
        return found


class Workers:
    """Processes of `python -m intake_ledger.worker`."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._environment = environment
        self._log = log.open("ab")
        self._processes = [self._start() for _ in range(WORKERS)]

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "intake_ledger.worker"]
        return subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=self._log)

    def send(self, number: int, sent: signal.Signals) -> int:
        """Send a signal to a worker, await its end, and start another one. Returns the exit code."""
        process = self._processes[number]
        process.send_signal(sent)
        code = process.wait(60)
        self._processes[number] = self._start()
        return code

    def has(self, number: int, pid: int) -> bool:
        """True if the worker is this process."""
        return self._processes[number].pid == pid

    def pause(self, number: int) -> None:
        """Pause a worker."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Continue a paused worker."""
        self._processes[number].send_signal(signal.SIGCONT)

    def end(self) -> list[int]:
        """Stop all workers. Returns their exit codes."""
        for process in self._processes:
            process.terminate()
        codes = [process.wait(60) for process in self._processes]
        self._log.close()
        return codes


def run(aws: LocalAws, outputs: Mapping[str, str], code: Path, plan: Plan, *, seed: int = 1) -> Outcome:
    """Run the plan on a deployed stack, and return the results."""
    chance, outcome = random.Random(seed), Outcome(plan=plan)
    environment = worker_environment(aws, outputs["Function"], code)
    newest = {f"{number}.bin": _put(aws, outputs["Bucket"], f"{number}.bin") for number in range(plan.objects)}
    workers = Workers(environment, aws.directory / "workers.log")
    signals = [signal.SIGKILL] * plan.kills + [signal.SIGTERM] * plan.stops
    chance.shuffle(signals)
    step = plan.objects // (len(signals) + 1)
    for count, sent in enumerate(signals, 1):
        _await_effects(aws, outputs, count * step)
        key = chance.choice(list(newest))
        newest[key] = _put(aws, outputs["Bucket"], key)
        ended = workers.send(chance.randrange(WORKERS), sent)
        if sent is signal.SIGTERM:
            outcome.exits.append(ended)

    def settled() -> bool:
        return all((key, version) in effects_of(aws, outputs) for key, version in newest.items())

    try:
        aws.wait_until(settled, "every object has its effect", timeout=TIMEOUT)
        outcome.slow_runs = _slow(aws, outputs)
        outcome.paused_runs, outcome.paused_effects = _paused(aws, outputs, workers, outcome)
    finally:
        outcome.exits += workers.end()
    effects = effects_of(aws, outputs)
    outcome.lost = [key for key, version in newest.items() if (key, version) not in effects]
    outcome.double = [key for (key, _), item in effects.items() if item["effects"] > 1]
    outcome.repeated_runs = sum(int(item["runs"]) - 1 for item in effects.values())
    return outcome


def _await_effects(aws: LocalAws, outputs: Mapping[str, str], least: int) -> None:
    aws.wait_until(lambda: len(effects_of(aws, outputs)) >= least, f"{least} effects", timeout=TIMEOUT)


def _slow(aws: LocalAws, outputs: Mapping[str, str]) -> int:
    """Upload an object whose work takes longer than a lease. Returns the number of runs."""
    place = "slow.bin", _put(aws, outputs["Bucket"], "slow.bin")
    item = aws.wait_until(lambda: effects_of(aws, outputs).get(place, {}), "slow work is done", timeout=TIMEOUT)
    return int(item["runs"])


def _paused(aws: LocalAws, outputs: Mapping[str, str], workers: Workers, outcome: Outcome) -> tuple[int, int]:
    """Pause the worker that does slow work until another one has done it. Returns the numbers of runs and effects."""
    place = "slow and paused.bin", _put(aws, outputs["Bucket"], "slow and paused.bin")

    def item() -> dict[str, Any]:
        return _items(aws, outputs).get(place, {})

    aws.wait_until(lambda: item().get("runs") == 1, "slow work has begun", timeout=TIMEOUT)
    busy = next(number for number in range(WORKERS) if workers.has(number, int(item()["worker"])))
    workers.pause(busy)
    aws.wait_until(lambda: "effects" in item(), "another worker has taken over", timeout=TIMEOUT)
    workers.resume(busy)
    # It finishes its work, is refused, and stops.
    outcome.exits.append(workers.send(busy, signal.SIGTERM))
    return int(item()["runs"]), int(item()["effects"])


def worker_environment(aws: LocalAws, function: str, code: Path) -> dict[str, str]:
    """The environment of a worker: the function's variables. The function itself gets no more messages."""
    client = aws.client("lambda")
    for mapping in client.list_event_source_mappings(FunctionName=function)["EventSourceMappings"]:
        client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    variables: dict[str, str] = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    times = {"INTAKE_WORKER_HOLD_SECONDS": "4", "INTAKE_WORKER_POLL_SECONDS": "1"}
    path = f"{ROOT / 'lambda_src'}:{code}"
    return {**aws.environment, **variables, **times, "PYTHONPATH": path}


def _put(aws: LocalAws, bucket: str, key: str) -> str:
    version: str = aws.client("s3").put_object(Bucket=bucket, Key=key, Body=random.randbytes(20))["VersionId"]
    return version


def effects_of(aws: LocalAws, outputs: Mapping[str, str]) -> dict[tuple[str, str], dict[str, Any]]:
    """The versions that have their transactional effect, with the numbers of effects and runs."""
    return {place: item for place, item in _items(aws, outputs).items() if "effects" in item}


def _items(aws: LocalAws, outputs: Mapping[str, str]) -> dict[tuple[str, str], dict[str, Any]]:
    """The versions whose processor has begun."""
    pages = aws.client("dynamodb").get_paginator("scan").paginate(TableName=outputs["EffectsTable"])
    items = ({name: _read(value) for name, value in item.items()} for page in pages for item in page["Items"])
    return {(item["place"], item["id"]): item for item in items}
