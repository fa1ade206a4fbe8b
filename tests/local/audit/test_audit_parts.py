"""The audit as a Distributed Map over shards, deployed. It finds exactly the lost changes, and then nothing."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.support import TIMEOUT, Pipeline

OLD = 1_100
"""More than a page of the listing, so that there is something to divide."""


@dataclass(frozen=True)
class Parts(Pipeline):
    """The pipeline on a bucket that was full before."""

    machine: str
    files: str

    def audit(self) -> dict[str, Any]:
        """One execution of the state machine, awaited; its output is the report."""
        sfn = self.aws.client("stepfunctions")
        execution = sfn.start_execution(stateMachineArn=self.machine, input="{}")["executionArn"]

        def over() -> dict[str, Any] | None:
            found: dict[str, Any] = sfn.describe_execution(executionArn=execution)
            return None if found["status"] == "RUNNING" else found

        ended = self.aws.wait_until(over, "the audit's execution is over", timeout=TIMEOUT)
        assert ended is not None
        assert ended["status"] == "SUCCEEDED", ended
        report: dict[str, Any] = json.loads(ended["output"])
        return report

    def shards(self) -> int:
        """Count the slices of the listing in all runs so far."""
        found = self.aws.client("s3").list_objects_v2(Bucket=self.files)["Contents"]
        return len([one for one in found if "/listed-" in one["Key"]])

    def notifications(self) -> dict[str, Any]:
        found = self.aws.client("s3").get_bucket_notification_configuration(Bucket=self.bucket)
        return {name: value for name, value in found.items() if name != "ResponseMetadata"}

    def notify(self, configuration: dict[str, Any]) -> None:
        self.aws.client("s3").put_bucket_notification_configuration(
            Bucket=self.bucket, NotificationConfiguration=configuration
        )

    def wait_for_next_second(self) -> None:
        """Wait until all objects are older than the settle time of one second. S3's dates have whole seconds."""
        begun = int(time.time())
        self.aws.wait_until(lambda: time.time() >= begun + 3, "what was written is settled")


@pytest.mark.failure_mode("F39")
def test_a_map_over_shards_finds_exactly_what_was_lost(aws: LocalAws, outputs: dict[str, dict[str, str]]) -> None:
    """Uploads, an overwrite, removals of both kinds while the notification is cut; then it finds nothing."""
    found = outputs["Parts"]
    names = ("Bucket", "Function", "EffectsTable", "Machine", "Files")
    parts = Parts(aws, *(found[name] for name in names))
    wired = parts.notifications()
    parts.notify({})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: parts.put(f"old/{n:05d}", b"x"), range(OLD)))
    baseline = parts.audit()
    assert (baseline["listed"], baseline["unjudged"], sum(baseline["counts"].values())) == (OLD, OLD, 0)
    assert parts.shards() > 1

    parts.wait_for_next_second()
    parts.notify(wired)
    versions = {key: parts.put(key, b"y") for key in ("new/a", "new/b", "new/c", "old/00500")}
    for key, version in versions.items():
        parts.effect(key, version)
    parts.notify({})
    lost = {
        "new/lost": parts.put("new/lost", b"z"),
        "old/00700-lost": parts.put("old/00700-lost", b"z"),
        "old/00500": parts.put("old/00500", b"overwritten"),
    }
    parts.delete("new/a")
    parts.delete("new/b", versions["new/b"])
    parts.notify(wired)
    parts.wait_for_next_second()

    report = parts.audit()
    assert sorted(one["key"] for one in report["findings"]) == ["new/a", "new/b", *sorted(lost)]
    assert report["counts"] == {"missing": 2, "overtaken": 1, "unsettled": 0, "untagged": 0, "removed": 2}
    assert (report["complete"], report["resubmitted"], report["delivery"]) == (True, 5, [])
    for key, version in lost.items():
        parts.effect(key, version)

    def nothing() -> bool:
        return not any(parts.audit()["counts"].values())

    aws.wait_until(nothing, "what was resubmitted is done, and nothing is found any more", timeout=TIMEOUT)
