"""Sets of files for the fault runs, in the stack of the others."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from constructs import Construct

from cdk_intake_ledger import (
    ConcurrencyOptions,
    FileSets,
    IntakePipeline,
    MonitoringOptions,
    Processor,
    RetryOptions,
    SetForm,
)
from tests.local.faults.copies import wait_as_copies

QUIET_SECONDS = 4
FORMS = {
    "Sets": SetForm.manifest("sets/**/manifest.json"),
    "Marked": SetForm.marker("marked/*/*/_SUCCESS"),
    "Quiet": SetForm.quiet_prefix("quiet/*/*/", quiet_for=cdk.Duration.seconds(QUIET_SECONDS)),
}
PROCESSORS = Path(__file__).resolve().parents[1] / "processors"


def add_sets(scope: Construct, *, downstream: str, proxy: str, lines: Collection[str]) -> None:
    """Add a pipeline and sets of these forms of its objects, whose requests to DynamoDB and S3 go through the proxy."""
    environment = {"DOWNSTREAM_URL": downstream, "AWS_ENDPOINT_URL_DYNAMODB": proxy, "AWS_ENDPOINT_URL_S3": proxy}
    times: dict[str, Any] = {
        "processing_timeout": cdk.Duration.seconds(5),
        "concurrency": ConcurrencyOptions(max_concurrency=2, clock_skew=cdk.Duration.seconds(1)),
        "retry": RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(4)),
        "removal_policy": cdk.RemovalPolicy.DESTROY,
        "monitoring": MonitoringOptions(alarms=[]),
    }

    def processor(name: str) -> Processor:
        return Processor.from_asset(PROCESSORS, entrypoint=f"delivering:{name}", environment=environment)

    pipeline = IntakePipeline(scope, "SetParts", processor=processor("process"), **times)
    shared = {"Bucket": pipeline.bucket.bucket_name, "Table": pipeline.table.table_name}
    outputs = {
        "SetParts": {
            "QueueUrl": pipeline.queue.queue_url,
            "DeadLetterQueueUrl": pipeline.dead_letter_queue.queue_url,
            "Function": pipeline.function.function_name,
        }
    }
    for name, form in FORMS.items():
        if name not in lines:
            continue
        made = FileSets(scope, name, pipeline=pipeline, form=form, processor=processor("process_set"), **times)
        wait_as_copies(name, made.function)
        outputs[name] = {
            "QueueUrl": made.queue.queue_url,
            "DeadLetterQueueUrl": made.dead_letter_queue.queue_url,
            "Function": made.function.function_name,
            "Name": made.name,
        }
    for name, values in outputs.items():
        for what, value in (shared | values).items():
            cdk.CfnOutput(scope, f"{name}{what}", value=value)
