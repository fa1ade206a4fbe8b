"""Pipelines for the fault runs: the construct with short times, and the addresses of the proxy and the downstream.

`python -m tests.local.faults.stack` synthesises only these. The CDK context gives the addresses of the proxy and the
downstream.
"""

import atexit
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import (
    ConcurrencyOptions,
    IntakePipeline,
    MonitoringOptions,
    Processor,
    RetryOptions,
)
from tests.local.faults import BURST, HOUR, PER_CALL, PER_SECOND, STACK, WIRED_SECONDS
from tests.local.faults.copies import wait_as_copies
from tests.local.faults.durable_stack import add_durable
from tests.local.faults.execution_stack import add_executions
from tests.local.faults.message_stack import MESSAGES, add_messages
from tests.local.faults.set_stack import FORMS, add_sets
from tests.synth.build import new_app

PROCESSORS = Path(__file__).resolve().parents[1] / "processors"
ROOT = Path(__file__).resolve().parents[3]
OLD_URLLIB3 = ROOT / "build" / "urllib3"
"""An HTTP client that does not check the length of a body: `make build/urllib3/.ready`."""


def seconds(number: int) -> cdk.Duration:
    return cdk.Duration.seconds(number)


def concurrency(threads: int = 1) -> ConcurrencyOptions:
    # Enough for workers to meet; each more would take from the others of this machine.
    return ConcurrencyOptions(threads=threads, max_concurrency=2, clock_skew=seconds(1))


# The default (12 attempts, 15 s to 30 min apart) in fast-forward; the first wait cannot be less than a second.
LIKE_THE_DEFAULT = RetryOptions(min_backoff=seconds(1), max_backoff=seconds(HOUR // 2))
SOON = RetryOptions(min_backoff=seconds(1), max_backoff=seconds(4))
SOON_GIVEN_UP = RetryOptions(max_attempts=4, min_backoff=seconds(1), max_backoff=seconds(3))
# A few seconds for an object: the lease of a dead worker ends soon, and its message comes back. On a busy machine an
# attempt takes longer than usual, and one that overruns its time is repeated.
PIPELINES: dict[str, dict[str, Any]] = {
    "Killed": {"processing_timeout": seconds(5), "retry": SOON_GIVEN_UP},
    "Wired": {"processing_timeout": seconds(WIRED_SECONDS), "retry": SOON},
    "Plain": {"processing_timeout": seconds(10), "retry": SOON_GIVEN_UP, "concurrency": concurrency(threads=4)},
    "Outage": {"processing_timeout": seconds(10), "retry": LIKE_THE_DEFAULT},
    "Grouped": {
        "processing_timeout": seconds(5),
        "retry": SOON_GIVEN_UP,
        "concurrency": ConcurrencyOptions(
            max_concurrency=3,
            clock_skew=seconds(1),
            exclusive_by="grouped/{account}/",
            max_rate=PER_SECOND,
            max_burst=BURST,
        ),
    },
    "Called": {"processing_timeout": seconds(5), "retry": SOON_GIVEN_UP},
}

LINES = (*PIPELINES, "Executions", "Durable", *MESSAGES, *FORMS)


class FaultsStack(cdk.Stack):
    """One pipeline for each kind of fault that would be in another's way."""

    def __init__(
        self, scope: Construct, id: str, *, downstream: str, proxy: str, lines: Collection[str] = LINES
    ) -> None:
        super().__init__(scope, id)
        for name, options in PIPELINES.items():
            if name not in lines:
                continue
            pipeline = IntakePipeline(
                self,
                name,
                processor=_processor_of(name, downstream, proxy),
                removal_policy=cdk.RemovalPolicy.DESTROY,
                monitoring=MonitoringOptions(alarms=[]),
                **({"concurrency": concurrency()} | options),
            )
            wait_as_copies(name, pipeline.function)
            if name == "Called":
                rejects = s3.Bucket(self, f"{name}Rejects", removal_policy=cdk.RemovalPolicy.DESTROY)
                pipeline.keep_rejects(rejects, "rejects/")
                cdk.CfnOutput(self, f"{name}RejectsBucket", value=rejects.bucket_name)
            for what, value in {
                "Bucket": pipeline.bucket.bucket_name,
                "QueueUrl": pipeline.queue.queue_url,
                "DeadLetterQueueUrl": pipeline.dead_letter_queue.queue_url,
                "Table": pipeline.table.table_name,
                "Function": pipeline.function.function_name,
            }.items():
                cdk.CfnOutput(self, f"{name}{what}", value=value)
        if "Executions" in lines:
            add_executions(self, downstream=downstream, proxy=proxy)
        if "Durable" in lines:
            add_durable(self, downstream=downstream, proxy=proxy)
        add_messages(self, downstream=downstream, proxy=proxy, lines=lines)
        add_sets(self, downstream=downstream, proxy=proxy, lines=lines)


def _processor(
    code: Path,
    downstream: str,
    *,
    entrypoint: str = "process",
    max_per_call: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Processor:
    return Processor.from_asset(
        code,
        entrypoint=f"delivering:{entrypoint}",
        environment={"DOWNSTREAM_URL": downstream} | dict(environment or {}),
        max_per_call=max_per_call,
    )


def _processor_of(name: str, downstream: str, proxy: str) -> Processor:
    if name == "Wired":
        return _wired(downstream, proxy)
    if name == "Called":
        return _processor(
            PROCESSORS, downstream, entrypoint="process_batch", max_per_call=PER_CALL, environment=_through(proxy)
        )
    return _processor(PROCESSORS, downstream)


def _wired(downstream: str, proxy: str) -> Processor:
    """Return a processor that uses the proxy and the old HTTP client."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)  # CDK copies it while the app runs
    code = Path(folder.name)
    shutil.copy(PROCESSORS / "delivering.py", code)
    shutil.copytree(OLD_URLLIB3 / "urllib3", code / "urllib3", ignore=shutil.ignore_patterns("__pycache__"))
    return _processor(code, downstream, environment={"URLLIB3": "1.26"} | _through(proxy))


def _through(proxy: str) -> dict[str, str]:
    """The environment in which requests to DynamoDB and S3 go to the proxy."""
    return {f"AWS_ENDPOINT_URL_{service}": proxy for service in ("DYNAMODB", "S3")}


def from_context(app: cdk.App, *, lines: Collection[str] = LINES) -> FaultsStack:
    """Make the stack of these lines, with the addresses that the context has."""
    downstream, proxy = (app.node.get_context(name) for name in ("downstream", "proxy"))
    return FaultsStack(app, STACK, downstream=downstream, proxy=proxy, lines=lines)


def main() -> None:
    app = new_app()
    from_context(app, lines=str(app.node.try_get_context("lines") or "").split() or LINES)
    app.synth()


if __name__ == "__main__":
    main()
