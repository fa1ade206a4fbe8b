"""Deploy the example to a local AWS, upload texts, and show their executions: `python -m examples.long_work`.

Exit with 0 if each text has the result of its newest version, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20,22,24"
os.environ["JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"] = "20,22,24"

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {
    "in/short.txt": ["one two three"],
    "in/overwritten.txt": ["the first text", "the second and newer text"],
    "in/fails once.txt": ["broken at first"],
    "in/empty.txt": [" "],
}
"""The versions of each object, in order."""
LOST = ("in/lost.txt", "no event tells of this text")


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(prog="examples.long_work", description=__doc__)
    parser.add_argument("--without-ledger", action="store_true", help="a hand-written consumer in the pipeline's place")
    without = parser.parse_args().without_ledger
    from examples.lost_event import audit_finds_it, events_are_lost  # noqa: PLC0415 - after the variables of jsii

    from cdk_intake_ledger.testing import LocalAws  # noqa: PLC0415 - after the variables of jsii

    with LocalAws() as aws:
        print("deploying ...")
        context = {"withoutLedger": "yes"} if without else {}
        stack = "LongWork"
        found = aws.deploy(f"{sys.executable} -m examples.long_work.stack", stack, context=context, cwd=ROOT)[stack]
        s3, states = aws.client("s3"), aws.client("stepfunctions")
        for key, texts in TEXTS.items():
            for text in texts:
                s3.put_object(Bucket=found["Bucket"], Key=key, Body=text.encode())

        def words() -> dict[str, int]:
            items = aws.client("dynamodb").scan(TableName=found["ResultsTable"])["Items"]
            return {item["key"]["S"]: int(item["words"]["N"]) for item in items}

        expected = {key: len(texts[-1].split()) for key, texts in TEXTS.items() if texts[-1].strip()}
        try:
            aws.wait_until(lambda: words() == expected, "each text has its result", timeout=120)
        except TimeoutError as error:
            print(f"{error}: {words()}, expected {expected}", file=sys.stderr)
            return 1
        key, text = LOST
        with events_are_lost(s3, found["Bucket"]):
            s3.put_object(Bucket=found["Bucket"], Key=key, Body=text.encode())
        if without:
            # No event is on its way, and nothing else looks at the bucket.
            print(f"{key}: no result", file=sys.stderr)
            return 1
        audit_finds_it(aws, found["AuditFunction"])
        expected[key] = len(text.split())
        aws.wait_until(lambda: words() == expected, "the text whose event was lost has its result", timeout=120)
        for execution in states.list_executions(stateMachineArn=found["MachineArn"])["executions"]:
            change = json.loads(states.describe_execution(executionArn=execution["executionArn"])["input"])
            print(f"{change['key']:20} attempt {change['attempt']}  {execution['status']:10} {execution['name']}")
        print(f"right: {words()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
