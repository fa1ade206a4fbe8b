"""A pipeline with sets of each form."""

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import ConcurrencyOptions, FileSets, IntakePipeline, Processor, RetryOptions, SetForm
from tests.local.recorded import effects_table
from tests.unchecked import unchecked

STACK = "Sets"
QUIET_SECONDS = 3
DEADLINE_SECONDS = 3
FORMS = {
    "Loads": SetForm.manifest("loads/*/manifest.json"),
    "Exports": SetForm.marker("exports/*/_SUCCESS"),
    "Drops": SetForm.quiet_prefix("drops/*/", quiet_for=cdk.Duration.seconds(QUIET_SECONDS)),
    "Hasty": SetForm.manifest("hasty/*/manifest.json"),
}


class SetsStack(cdk.Stack):
    """`Hasty` has a deadline that is shorter than synthesis allows."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        effects = effects_table(self)
        times: dict[str, Any] = {
            "processing_timeout": cdk.Duration.seconds(4),
            "concurrency": ConcurrencyOptions(clock_skew=cdk.Duration.seconds(2)),
            "retry": RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(5)),
            "removal_policy": cdk.RemovalPolicy.DESTROY,
        }

        def processor(entrypoint: str) -> Processor:
            return Processor.from_asset(
                Path(__file__).parents[1] / "processors",
                entrypoint=entrypoint,
                environment={"EFFECTS_TABLE": effects.table_name},
            )

        pipeline = IntakePipeline(self, "Parts", processor=processor("collecting:process_part"), **times)
        effects.grant(pipeline, "dynamodb:UpdateItem")
        rejects = s3.Bucket(self, "RejectedRows", removal_policy=cdk.RemovalPolicy.DESTROY)
        pipeline.keep_rejects(rejects, "parts/")
        values = {
            "Bucket": pipeline.bucket.bucket_name,
            "Table": pipeline.table.table_name,
            "EffectsTable": effects.table_name,
            "PartsFunction": pipeline.function.function_name,
            "PartsQueueUrl": pipeline.queue.queue_url,
            "RejectsBucket": rejects.bucket_name,
        }
        for name, form in FORMS.items():
            sets = FileSets(
                self,
                name,
                pipeline=pipeline,
                form=form,
                processor=processor("collecting:process_set"),
                name=f"{name}OfTests",
                **times,
            )
            effects.grant(sets, "dynamodb:UpdateItem")
            if name == "Loads":
                sets.keep_rejects(rejects, "loads/")
            values |= {
                f"{name}Function": sets.function.function_name,
                f"{name}QueueUrl": sets.queue.queue_url,
                f"{name}DeadLetterQueueUrl": sets.dead_letter_queue.queue_url,
            }
            if name == "Hasty":
                function = sets.function.node.default_child
                assert isinstance(function, lambda_.CfnFunction)
                unchecked(sets)
                function.add_property_override("Environment.Variables.INTAKE_MAX_WAIT_SECONDS", str(DEADLINE_SECONDS))
        for name, value in values.items():
            cdk.CfnOutput(self, name, value=value)
