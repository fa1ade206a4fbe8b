"""Upload invoices on a local AWS, and show what became of them: `python -m examples.events_out`.

Exit with 0 if each outcome was noted once and each commit started the workflow, else 1.
"""

import os
import subprocess
import sys
from pathlib import Path

from examples.events_out.stack import STACK

from cdk_intake_ledger.testing import LocalAws

ROOT = Path(__file__).resolve().parents[2]
INVOICES = {"a.txt": "amount 10", "b.txt": "nothing", "c.txt": "amount 7"}
EXPECTED = {
    "a.txt": ("Intake Committed", "9 characters"),
    "b.txt": ("Intake Rejected", "no amount in it"),
    "c.txt": ("Intake Committed", "8 characters"),
}


def main() -> int:
    with LocalAws() as aws:
        print("deploying to a local AWS")
        outputs = aws.deploy(f"{sys.executable} -m examples.events_out.stack", STACK, cwd=ROOT)[STACK]
        out = {name.removeprefix("Out"): value for name, value in outputs.items()}
        for key, text in INVOICES.items():
            aws.client("s3").put_object(Bucket=out["Bucket"], Key=key, Body=text.encode())

        def notes() -> dict[str, tuple[str, str]]:
            items = aws.client("dynamodb").scan(TableName=out["Notes"], ConsistentRead=True)["Items"]
            return {item["invoice"]["S"]: (item["outcome"]["S"], item["why"]["S"]) for item in items}

        def started() -> int:
            return len(aws.client("stepfunctions").list_executions(stateMachineArn=out["Workflow"])["executions"])

        aws.wait_until(lambda: notes() == EXPECTED, "each outcome is noted", timeout=180)
        aws.wait_until(lambda: started() == 2, "each commit has started the workflow", timeout=60)
        for key, (outcome, why) in sorted(notes().items()):
            print(f"{key}: {outcome}, {why}")
        # As if the events of the last hours were lost: all of them again. Their identities are known.
        send_again = ["intake-ledger", "export", "--event-bus", out["Bus"], "--stack", STACK, "--pipeline", "Invoices"]
        subprocess.run(send_again, env=os.environ | aws.environment, check=True)

        def copies() -> int:
            return int(aws.metrics(out["Noting"])["Duplicates"])

        aws.wait_until(lambda: copies() == len(EXPECTED), "the intake knows each event that was sent again", timeout=60)
        print(f"{copies()} events were sent again, without an effect")
    return 0


if __name__ == "__main__":
    sys.exit(main())
