"""Deploy the daily load to a local AWS, upload two days, and print the loads. Exit with 0 if they are right, else 1."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from examples.daily_load.stack import STACK
from examples.lost_event import audit_finds_it, events_are_lost

from cdk_intake_ledger.testing import LocalAws

ROOT = Path(__file__).resolve().parents[2]
FIRST, SECOND, WRONG = "order,amount\n1,10\n2,20\n", "order,amount\n3,5\n", "number\n3\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.daily_load", description=__doc__)
    parser.add_argument("--without-ledger", action="store_true", help="a hand-written loader in the sets' place")
    without = parser.parse_args().without_ledger
    with LocalAws() as aws:
        context = {"withoutLedger": "yes"} if without else {}
        outputs = aws.deploy(f"{sys.executable} -m examples.daily_load.stack", STACK, context=context, cwd=ROOT)[STACK]

        def put(key: str, body: str) -> None:
            aws.client("s3").put_object(Bucket=outputs["BucketName"], Key=key, Body=body.encode())

        def totals(key: str) -> tuple[int, int] | None:
            answer: Any = aws.client("dynamodb").get_item(
                TableName=outputs["LoadsTableName"], Key={"load": {"S": key}}, ConsistentRead=True
            )
            item = answer.get("Item")
            return (int(item["orders"]["N"]), int(item["amount"]["N"])) if item else None

        def wait(key: str, expected: tuple[int, int]) -> None:
            aws.wait_until(lambda: totals(key) == expected, f"{key} has the totals {expected}")
            print(f"{key}: {expected[0]} orders, amount {expected[1]}")

        monday, tuesday = "days/monday/manifest.json", "days/tuesday/manifest.json"
        manifest = json.dumps(["a.csv", "b.csv"])
        put("days/monday/a.csv", FIRST)
        put(monday, manifest)
        put("days/tuesday/b.csv", SECOND)
        put("days/tuesday/a.csv", WRONG)
        put(tuesday, manifest)
        put("days/monday/b.csv", SECOND)
        wait(monday, (3, 35))
        if totals(tuesday) is not None:
            print("a load has a file that was rejected", file=sys.stderr)
            return 1
        put("days/tuesday/a.csv", FIRST)
        wait(tuesday, (3, 35))
        with events_are_lost(aws.client("s3"), outputs["BucketName"]):
            put("days/monday/b.csv", FIRST)
        if without:
            # No later event is on its way, and nothing else looks at the bucket.
            print(f"{monday}: {totals(monday)} is loaded, (4, 60) is in the files", file=sys.stderr)
            return 1
        audit_finds_it(aws, outputs["AuditName"])
        wait(monday, (4, 60))
    return 0


if __name__ == "__main__":
    sys.exit(main())
