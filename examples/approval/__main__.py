"""Deploy the example to a local AWS, and play the people: `python -m examples.approval`.

Exit with 0 if the corrected invoice was paid once, and nothing else, else 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from examples.approval.approve import answer, requests

from cdk_intake_ledger.testing import LocalAws
from intake_ledger import ObjectChange, Overtaken

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
STACK = "Approval"
INVOICE, DOUBTFUL = "in/4711.txt", "in/4712.txt"
WRONG, CORRECTED = "pay 1200 to Ada", "pay 120 to Ada"


def main() -> int:
    """Run the story."""
    with LocalAws() as aws:
        print("deploying to a local AWS")
        outputs = aws.deploy(f"{sys.executable} -m examples.approval.stack", STACK, cwd=ROOT)[STACK]
        story = Story(aws, {name.removeprefix("Out"): value for name, value in outputs.items()})
        wrong, doubtful = story.upload(INVOICE, WRONG), story.upload(DOUBTFUL, "pay 9999 to Eve")
        story.wait_for_request(INVOICE, wrong)
        story.wait_for_request(DOUBTFUL, doubtful)
        story.command("list", "--status", "running")
        corrected = story.upload(INVOICE, CORRECTED)
        print("\nThe correction is there. The person approves the first version, which the request shows.\n")
        answer(story.table, aws.client("lambda"), INVOICE, wrong)
        answer(story.table, aws.client("lambda"), DOUBTFUL, doubtful, refuse="who is Eve?")
        story.wait_for_request(INVOICE, corrected)
        paid_early = story.payments()
        answer(story.table, aws.client("lambda"), INVOICE, corrected)
        story.command("wait", "--prefix", INVOICE, "--expect", "1")
        late = story.late_step(wrong)
        story.command("list")
        paid = story.payments()
        print(f"after the late approval:          {paid_early}")
        print(f"a late step of the first version: {late}")
        print(f"all payments ever written:        {paid}")
    if (paid_early, late, paid) == ([], "refused", [CORRECTED]):
        return 0
    print("WRONG: expected one payment, that of the corrected invoice", file=sys.stderr)
    return 1


class Story:
    """The deployed example, and what happens to it."""

    def __init__(self, aws: LocalAws, outputs: Mapping[str, str]) -> None:
        self._aws = aws
        self._outputs = outputs
        session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=aws.region)
        self.table: Any = session.resource("dynamodb", endpoint_url=aws.endpoint_url).Table(outputs["Requests"])

    def upload(self, key: str, text: str) -> str:
        """Upload an invoice, and return its version."""
        made = self._aws.client("s3").put_object(Bucket=self._outputs["Bucket"], Key=key, Body=text.encode())
        return str(made["VersionId"])

    def wait_for_request(self, key: str, version: str) -> None:
        """Wait until the person is asked about this version."""
        self._aws.wait_until(
            lambda: any(one["version"] == version for one in requests(self.table, key)),
            f"a person is asked about version {version} of {key}",
            timeout=180,
        )

    def command(self, *arguments: str) -> None:
        """Run `intake-ledger`, and show what it prints."""
        name, *others = arguments
        print(f"$ intake-ledger {' '.join(arguments)}", flush=True)
        command = ["intake-ledger", name, "--stack", STACK, *others]
        subprocess.run(command, env=os.environ | self._aws.environment, check=False)

    def payments(self) -> list[str]:
        """The invoice of each version that was ever written to the bucket of payments."""
        s3, bucket = self._aws.client("s3"), self._outputs["Payments"]
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket)
        versions = [(one["Key"], one["VersionId"]) for page in pages for one in page.get("Versions", ())]
        return [
            json.load(s3.get_object(Bucket=bucket, Key=key, VersionId=version)["Body"])["invoice"]
            for key, version in versions
        ]

    def late_step(self, version: str) -> str:
        """Write the payment of a version again, as an invocation of its execution that had hung for days."""
        os.environ["PAYMENTS_BUCKET"] = self._outputs["Payments"]
        from examples.approval.functions.invoice import write_payment  # noqa: PLC0415 - after the variable

        client = self._aws.client("lambda")
        found = client.list_durable_executions_by_function(FunctionName=self._outputs["Version"])["DurableExecutions"]
        inputs = (
            json.loads(client.get_durable_execution(DurableExecutionArn=one["DurableExecutionArn"])["InputPayload"])
            for one in found
        )
        event = next(one for one in inputs if one["versionId"] == version)
        try:
            write_payment(ObjectChange.of_execution(event, make_client=lambda: self._aws.client("s3")))
        except Overtaken:
            return "refused"
        return "written"


if __name__ == "__main__":
    sys.exit(main())
