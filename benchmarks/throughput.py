"""Objects per second of the deployed pipeline, beside the demo's naive consumer, on one local AWS.

    python -m benchmarks.throughput [--objects N] [--rounds N]

Both are deployed by the CDK in one stack (`examples.demo.stack`), keep the same catalogue, and note each effect. The
objects are there before; both sides are then sent the same notifications in turn, under keys that they have not seen.
Timed from the first message until the last effect, after a few that make each one's function warm. On the local AWS a
request costs far more CPU than the functions do, so that this is rather a bound for the number of requests than for AWS
itself.
"""

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from itertools import batched
from typing import Any

from benchmarks.measure import side_by_side, table
from examples.demo.stack import ROOT, STACK
from examples.demo.world import World
from tests.local.support import model

from cdk_intake_ledger.testing import LocalAws
from cdk_intake_ledger.testing.events import s3_notification

FLOOR, LEDGER, TOGETHER = "naive", "ledger", "ledger, commit_together"
WARM = 20
"""Objects."""
NAIVE_TIMEOUT = 30
"""Seconds. The demo's own is short, so that its retries come soon; here none may be needed."""


class Load:
    """Objects in the bucket, and messages about them that nobody has been sent yet."""

    def __init__(self, world: World, objects: int) -> None:
        self._world = world
        self._objects = objects
        self._uploads = 0
        # From here on only we send.
        world.aws.client("s3").put_bucket_notification_configuration(Bucket=world.bucket, NotificationConfiguration={})

    def rate(self, row: str, piece: int = 0) -> float:  # noqa: ARG002 - one piece is all there is
        """Seconds for each object."""
        side = FLOOR if row == FLOOR else LEDGER
        self._seconds(side, WARM)
        return self._seconds(side, self._objects) / self._objects

    def commit_together(self, on: bool) -> None:
        """What `commit_together` of the construct sets."""
        client = self._world.aws.client("lambda")
        functions = client.list_functions()["Functions"]
        (consumer,) = (one for one in functions if "INTAKE_DLQ_URL" in one.get("Environment", {}).get("Variables", {}))
        variables = consumer["Environment"]["Variables"] | {"INTAKE_COMMIT_TOGETHER": "true" if on else "false"}
        client.update_function_configuration(
            FunctionName=consumer["FunctionName"], Environment={"Variables": variables}
        )
        client.get_waiter("function_updated_v2").wait(FunctionName=consumer["FunctionName"])

    def _seconds(self, side: str, objects: int) -> float:
        bodies = [self._upload() for _ in range(objects)]
        world, sqs = self._world, self._world.aws.client("sqs")
        expected = world.count(world.table(side)) + objects
        started = time.perf_counter()
        for few in batched(bodies, 10):
            entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(few)]
            sqs.send_message_batch(QueueUrl=world.queue(side), Entries=entries)
        world.aws.wait_until(
            lambda: world.count(world.table(side)) >= expected, f"{side} has had its effects", timeout=300, interval=0.1
        )
        elapsed = time.perf_counter() - started
        world.aws.wait_until(lambda: world.depth(world.queue(side)) == (0, 0), f"{side} is at rest", timeout=300)
        return elapsed

    def _upload(self) -> str:
        self._uploads += 1
        key, body = f"models/{self._uploads:06}/service-2.json.gz", model("2026-11-21", self._uploads % 7)
        answer = self._world.aws.client("s3").put_object(Bucket=self._world.bucket, Key=key, Body=body)
        return s3_notification(
            self._world.bucket,
            key,
            version_id=answer["VersionId"],
            etag=answer["ETag"].strip('"'),
            size=len(body),
            sequencer=f"{self._uploads:016X}",
            time=datetime.now(UTC),
        )


def measure(*, objects: int = 100, rounds: int = 5) -> dict[str, Any]:
    """Seconds per object; the pipeline's ratio of throughput is the naive consumer's seconds over its own."""
    with LocalAws() as aws, tempfile.TemporaryDirectory() as code:
        context = {"code": code, "naiveTimeout": str(NAIVE_TIMEOUT)}
        outputs = aws.deploy(f"{sys.executable} -m examples.demo.stack", STACK, context=context, cwd=ROOT)
        load = Load(World(aws, outputs[STACK]), objects)
        found: dict[str, Any] = {}
        # One after the other: to set it begins with new environments, whose first batches are claimed one by one.
        for row in (LEDGER, TOGETHER):
            load.commit_together(row == TOGETHER)
            runs = {one: partial(load.rate, one) for one in (FLOOR, row)}
            found |= side_by_side(runs, floor=FLOOR, rounds=rounds)
    for figures in found.values():
        ratio = figures["ratio"]
        figures["throughput"] = {
            "median": 1 / ratio["median"],
            "least": 1 / ratio["most"],
            "most": 1 / ratio["least"],
        }
    return {f"{name}, seconds per object": figures for name, figures in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(table("Throughput", measure(objects=arguments.objects, rounds=arguments.rounds)))


if __name__ == "__main__":
    main()
