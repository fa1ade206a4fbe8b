"""The fan-out: one bucket, and two pipelines that read its events by EventBridge. They share a ledger's table."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import (
    AuditOptions,
    ConcurrencyOptions,
    Delivery,
    IntakeLedger,
    IntakePipeline,
    Ordering,
    Processor,
    RetryOptions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from constructs import Construct

SETTLE_SECONDS = 2
"""The settle time of the audits in seconds."""
WORKERS = 2
"""The largest number of workers of each consumer. It limits the connections to the database, too."""
DESTROY = cdk.RemovalPolicy.DESTROY


def uploads_bucket(scope: Construct) -> s3.Bucket:
    """The bucket belongs to the stack and not to a pipeline, so that each pipeline can be removed alone."""
    return s3.Bucket(scope, "Uploads", versioned=True, enforce_ssl=True, removal_policy=DESTROY)


class FanOut:
    """Two pipelines on one bucket. Each has its own rule, queue, function and audit."""

    def __init__(
        self,
        scope: Construct,
        *,
        bucket: s3.IBucket,
        functions: Path,
        environment: Mapping[str, str],
    ) -> None:
        ledger = IntakeLedger(scope, "Ledger", removal_policy=DESTROY)
        options: dict[str, Any] = {
            "bucket": bucket,
            "delivery": Delivery.EVENTBRIDGE,
            "deletes": True,
            "ledger": ledger,
            "removal_policy": DESTROY,
            **_short_times(),
        }
        self.archive = IntakePipeline(
            scope,
            "Archive",
            ordering=Ordering.EVERY_VERSION,
            processor=processor(functions, "doomed:process", {**environment, "MODULE": "archive"}),
            **options,
        )
        self.search = IntakePipeline(
            scope,
            "Search",
            ordering=Ordering.LATEST,
            processor=processor(functions, "doomed:process", {**environment, "MODULE": "search"}),
            **options,
        )

    @property
    def pipelines(self) -> dict[str, IntakePipeline]:
        """The pipelines by name."""
        return {"Archive": self.archive, "Search": self.search}


def processor(functions: Path, entrypoint: str, environment: Mapping[str, str]) -> Processor:
    """Take the folder of functions, with wheels for this machine, because functions of the local AWS run on it."""
    machine = lambda_.Architecture.ARM_64 if platform.machine() in ("arm64", "aarch64") else lambda_.Architecture.X86_64
    return Processor.from_asset(
        functions,
        entrypoint=entrypoint,
        environment=environment,
        runtime=getattr(lambda_.Runtime, f"PYTHON_3_{sys.version_info.minor}"),
        architecture=machine,
    )


def _short_times() -> dict[str, Any]:
    """Options for a demonstration. Production uses the defaults."""
    return {
        "processing_timeout": cdk.Duration.seconds(4),
        "concurrency": ConcurrencyOptions(clock_skew=cdk.Duration.seconds(2), max_concurrency=WORKERS),
        "retry": RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(5)),
        "audit": AuditOptions(settle_time=cdk.Duration.seconds(SETTLE_SECONDS)),
    }
