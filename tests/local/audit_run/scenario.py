"""Upload, overwrite and delete objects without notifications, and check the audit's findings."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from examples.lost_event import events_are_lost

from cdk_intake_ledger.testing import LocalAws

ROOT = Path(__file__).resolve().parents[3]
Report = dict[str, Any]


@dataclass(frozen=True)
class Lost:
    """Keys by their change while the bucket sends no notifications."""

    uploaded: list[str]
    overwritten: list[str]
    marked: list[str]
    """Keys that get a delete marker."""
    erased: list[str]
    """Keys whose versions are all deleted permanently."""
    rolled_back: list[str]
    """Keys whose newest version is deleted permanently, so that the version before is current again."""

    @classmethod
    def of(cls, objects: int) -> Self:
        """Choose keys of a bucket with this number of objects. Nine in ten exist before."""
        share = objects // 50
        keys = iter([key(n) for n in range(0, objects, 7)])
        return cls(
            [key(objects + n) for n in range(objects // 10)], *([next(keys) for _ in range(share)] for _ in range(4))
        )

    @property
    def findings(self) -> dict[str, str]:
        """Exactly the findings that the audit must report."""
        return (
            dict.fromkeys(self.uploaded, "missing")
            | dict.fromkeys([*self.overwritten, *self.rolled_back], "overtaken")
            | dict.fromkeys([*self.marked, *self.erased], "removed")
        )


def key(number: int) -> str:
    """Return a key. Some keys need escaping."""
    return f"in/{number % 10}/document {number:06}+ä.txt"


@dataclass(frozen=True)
class World:
    """The deployed pipeline."""

    aws: LocalAws
    outputs: Mapping[str, str]
    timeout: float

    # -- acting --

    def each(self, act: Callable[[str], object], keys: Iterable[str]) -> None:
        """Act on several keys at the same time."""
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(act, keys):
                pass

    def put(self, key: str) -> None:
        body = f"{key} {time.monotonic_ns()}".encode()
        self._s3.put_object(Bucket=self.outputs["Bucket"], Key=key, Body=body)

    def mark(self, key: str) -> None:
        self._s3.delete_object(Bucket=self.outputs["Bucket"], Key=key)

    def erase(self, key: str) -> None:
        for version in self._versions(key):
            self._s3.delete_object(Bucket=self.outputs["Bucket"], Key=key, VersionId=version)

    def roll_back(self, key: str) -> None:
        newest, *_ = self._versions(key)
        self._s3.delete_object(Bucket=self.outputs["Bucket"], Key=key, VersionId=newest)

    def stop_the_schedule(self) -> None:
        """Disable the audit's schedule, because its runs would find the changes first."""
        scheduler = self.aws.client("scheduler")
        for one in scheduler.list_schedules()["Schedules"]:
            found = scheduler.get_schedule(Name=one["Name"], GroupName=one["GroupName"])
            if found["Target"]["Arn"].endswith(f":{self.outputs['AuditFunction']}"):
                kept = ("Name", "GroupName", "ScheduleExpression", "FlexibleTimeWindow", "Target")
                scheduler.update_schedule(**{name: found[name] for name in kept}, State="DISABLED")
                return
        raise AssertionError("the audit has no schedule")

    def cut_off(self, act: Callable[[], None]) -> None:
        """Act while the bucket sends no notifications."""
        with events_are_lost(self._s3, self.outputs["Bucket"]):
            act()

    def audit(self, **event: Any) -> Report:
        """Invoke the deployed audit function."""
        payload = json.dumps(event).encode()
        answer = self.aws.client("lambda").invoke(FunctionName=self.outputs["AuditFunction"], Payload=payload)
        report: Report = json.load(answer["Payload"])
        assert "FunctionError" not in answer, report
        return report

    def audit_once_free(self) -> Report:
        """Audit until a run is neither skipped nor held back by messages of the killed run."""

        def ran() -> Report:
            report = self.audit()
            return {} if "skipped" in report else _unless_held(report)

        return self.aws.wait_until(ran, "the lease of the dead run is over", timeout=max(120, self.timeout), interval=1)

    def kill_an_audit(self, batches: int) -> None:
        """Kill an audit when it is about to send batch number `batches`."""
        name = self.outputs["AuditFunction"]
        settings = self.aws.client("lambda").get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        command = [sys.executable, "-m", "tests.local.audit_run.killed", str(batches)]
        environment = self.aws.environment | settings
        ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stdout + ended.stderr

    # -- asking --

    def settled(self) -> None:
        """Wait until the queue is empty and no message is in flight."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]

        def empty() -> bool:
            answer = self.aws.client("sqs").get_queue_attributes(
                QueueUrl=self.outputs["QueueUrl"], AttributeNames=names
            )
            return not any(int(answer["Attributes"][name]) for name in names)

        self.aws.wait_until(empty, "the queue is empty", timeout=self.timeout, interval=0.5)

    def rows(self) -> dict[str, dict[str, str]]:
        """The ledger's rows by key."""
        pages = self.aws.client("dynamodb").get_paginator("scan").paginate(TableName=self.outputs["Table"])
        items = [
            {name: next(iter(value.values())) for name, value in item.items()} for p in pages for item in p["Items"]
        ]
        return {item["pk"].partition("/")[2]: item for item in items if "status" in item}

    def audited_effects(self) -> Counter[str]:
        """Count the processor's effects that the audit caused, by key."""
        pages = self.aws.client("dynamodb").get_paginator("scan").paginate(TableName=self.outputs["EffectsTable"])
        return Counter(
            item["place"]["S"].partition("/")[2]
            for page in pages
            for item in page["Items"]
            if item["event"]["S"] == "IntakeLedger:Audit"
        )

    def reports(self) -> dict[str, Report]:
        """Return the reports in the bucket, by run ID."""
        found = self._s3.list_objects_v2(Bucket=self.outputs["Bucket"], Prefix="audit/").get("Contents", ())
        bodies = [self._s3.get_object(Bucket=self.outputs["Bucket"], Key=one["Key"])["Body"].read() for one in found]
        return {report["runId"]: report for report in map(json.loads, bodies)}

    @property
    def _s3(self) -> Any:
        return self.aws.client("s3")

    def _versions(self, key: str) -> list[str]:
        """Newest first."""
        found = self._s3.list_object_versions(Bucket=self.outputs["Bucket"], Prefix=key)
        return [one["VersionId"] for one in found["Versions"]]


@dataclass(frozen=True)
class Outcome:
    """Reports and results of the runs."""

    lost: Lost
    while_cut_off: Report
    looked: Report
    skipped: Report
    finished: Report
    second: Report
    effects: Counter[str]
    rows: dict[str, dict[str, str]]
    reports: dict[str, Report]

    def problems(self) -> list[str]:
        """Return all differences from the requirements."""
        wanted = self.lost.findings
        counts = Counter(wanted.values())
        checks = {
            "the delivery, when it was broken": any("does not notify" in one for one in self.while_cut_off["delivery"]),
            "the delivery, when it was not": self.looked["delivery"] == [],
            "what the first run found": +Counter(self.looked["counts"]) == counts,
            "the keys it named": {(one["key"], one["why"]) for one in self.looked["findings"]} <= {*wanted.items()},
            "that it named as many as it may": len(self.looked["findings"]) == min(len(wanted), 100),
            "a run beside one that may live": "skipped" in self.skipped,
            "the next run's end": self.finished["complete"] and self.finished["delivery"] == [],
            "what was processed for the audit": set(self.effects) == set(wanted),
            "how often": set(self.effects.values()) == {1},
            "what a second run found": not +Counter(self.second["counts"]) and self.second["complete"],
            "the ledger": {row["status"] for row in self.rows.values()} == {"PROCESSED"},
            "the report": self.reports[self.finished["runId"]]["counts"] == self.finished["counts"],
            "the reports": set(self.reports) >= {self.finished["runId"], self.second["runId"]},
        }
        return [f"{what} is not right" for what, right in checks.items() if not right]


def run(aws: LocalAws, outputs: Mapping[str, str], objects: int, *, timeout: float = 240) -> Outcome:
    """Lose notifications for a part of `objects` objects, and let the audit find the changes."""
    world, lost = World(aws, outputs, timeout), Lost.of(objects)
    world.stop_the_schedule()
    world.each(world.put, map(key, range(objects * 9 // 10)))
    # A key that is rolled back later needs an older version.
    world.each(world.put, lost.rolled_back)
    world.settled()
    broken: list[Report] = []

    def unheard() -> None:
        world.each(world.put, [*lost.uploaded, *lost.overwritten])
        world.each(world.mark, lost.marked)
        world.each(world.erase, lost.erased)
        world.each(world.roll_back, lost.rolled_back)
        broken.append(world.audit(dryRun=True))

    world.cut_off(unheard)
    world.each(world.put, map(key, range(objects * 9 // 10, objects)))
    world.settled()

    def settled() -> Report:
        report = _unless_held(world.audit(dryRun=True))
        return report if report and sum(report["counts"].values()) >= len(lost.findings) else {}

    looked = aws.wait_until(settled, "so many are found, once the settle time is over", timeout=timeout)
    # Send half of the findings, or as many as a run sends in its half-minute.
    world.kill_an_audit(batches=max(min(len(lost.findings) // 20, 20), 2))
    skipped = world.audit()
    finished = world.audit_once_free()
    world.settled()
    second = aws.wait_until(lambda: _unless_held(world.audit()), "nothing waits", timeout=timeout)
    return Outcome(
        lost, broken[0], looked, skipped, finished, second, world.audited_effects(), world.rows(), world.reports()
    )


def _unless_held(report: Report) -> Report:
    return {} if report["held"] else report
