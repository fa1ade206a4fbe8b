"""Upload files that wait before files that are ready, and see how many ready ones end while the others wait."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdk_intake_ledger.testing import LocalAws
from intake_ledger.protocol.settings import ConsumerSettings, environment_of
from tests.local.faults.proxy import Proxy
from tests.local.worker_run.scenario import Workers, effects_of, worker_environment

TIMEOUT = 6_000.0
EMPTY_RECEIVES = 20
"""Receives in a row without a message, after which nothing moves before the first wait ends."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a run. `limit` is the number of messages that may be in flight."""

    waiting: int
    ready: int
    limit: int
    retry_seconds: int
    """The wait of a file. All files have begun to wait before: the local AWS delivers its oldest messages first."""
    interval: float
    """Seconds between two looks at the effects. A look reads all of them."""


FULL = Plan(waiting=20_000, ready=2_000, limit=1_200, retry_seconds=900, interval=10)
SHORT = Plan(waiting=60, ready=30, limit=24, retry_seconds=60, interval=0.1)


@dataclass(kw_only=True)
class Outcome:
    """The results of a run."""

    plan: Plan
    ready: int
    """Ready files with their effect before the first file waited twice, or before nothing moved."""
    seconds: float
    """Until then, from the start of the workers."""
    blocked: bool
    """True if nothing moved, although ready files were in the queue."""
    ended: int = 0
    """Files that waited, and took effect after the gate was opened."""
    double: int = 0

    def problems(self) -> list[str]:
        """One line for each broken promise."""
        found = []
        if self.blocked or self.ready < self.plan.ready:
            found.append(f"{self.plan.ready - self.ready} ready files did not end beside {self.plan.waiting} that wait")
        elif self.ended < self.plan.waiting:
            found.append(f"{self.plan.waiting - self.ended} files that waited are lost")
        if self.double:
            found.append(f"{self.double} double effects")
        return found


def run(aws: LocalAws, outputs: Mapping[str, str], code: Path, plan: Plan, *, copies: bool = True) -> Outcome:
    """Run the plan on a deployed stack, and return the results. Without `copies`, all waits hide their messages."""
    proxy = Proxy(lambda: aws.endpoint_url)
    proxy.corrections.in_flight_limit = plan.limit
    with proxy.server() as served:
        environment = worker_environment(aws, outputs["Function"], code) | {"AWS_ENDPOINT_URL_SQS": served.url}
        environment |= {"RETRY_SECONDS": str(plan.retry_seconds)}
        seen = plan.limit if copies else 1_000_000
        environment |= environment_of(ConsumerSettings, in_flight_limit=seen)
        _put(aws, outputs["Bucket"], [f"waits/{number}" for number in range(plan.waiting)])
        _put(aws, outputs["Bucket"], [f"ready/{number}" for number in range(plan.ready)])
        with _workers(environment, aws.directory / "waiting.log"):
            return _watch(aws, outputs, plan, proxy)


def _watch(aws: LocalAws, outputs: Mapping[str, str], plan: Plan, proxy: Proxy) -> Outcome:
    started = time.monotonic()

    def ended(prefix: str) -> int:
        return sum(key.startswith(prefix) for key, _ in effects_of(aws, outputs))

    def moved() -> bool:
        return proxy.corrections.refused_receives >= EMPTY_RECEIVES or ended("ready/") == plan.ready

    aws.wait_until(moved, "ready files end, or nothing moves", timeout=TIMEOUT, interval=plan.interval)
    outcome = Outcome(
        plan=plan,
        ready=ended("ready/"),
        seconds=time.monotonic() - started,
        blocked=proxy.corrections.refused_receives >= EMPTY_RECEIVES,
    )
    if not outcome.blocked:
        gate = {"place": {"S": "gate"}, "id": {"S": "none"}}
        aws.client("dynamodb").put_item(TableName=outputs["EffectsTable"], Item=gate)
        aws.wait_until(
            lambda: ended("waits/") == plan.waiting,
            "files that waited end",
            timeout=TIMEOUT,
            interval=plan.interval,
        )
        outcome.ended = ended("waits/")
    outcome.double = sum(int(item["effects"]) > 1 for item in effects_of(aws, outputs).values())
    return outcome


def _put(aws: LocalAws, bucket: str, keys: list[str]) -> None:
    s3 = aws.client("s3")
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=key.encode()), keys):
            pass


@contextmanager
def _workers(environment: Mapping[str, str], log: Path) -> Iterator[None]:
    workers = Workers(environment, log)
    try:
        yield
    finally:
        workers.end()
