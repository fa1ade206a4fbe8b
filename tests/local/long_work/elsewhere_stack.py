"""Messages, sets of files and overtaken objects with a state machine as the processor."""

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_intake_ledger import (
    ConcurrencyOptions,
    FileSets,
    IntakePipeline,
    MessageIntake,
    MessageSource,
    Processor,
    RetryOptions,
    SetForm,
)

STACK = "Elsewhere"
TASK = """
import json
import time

import boto3

s3 = boto3.client("s3")


def handler(request, context):
    if "parts" in request:
        listed = json.load(s3.get_object(Bucket=request["parts"]["bucket"], Key=request["parts"]["key"])["Body"])
        sizes = [
            s3.get_object(Bucket=request["bucket"], Key=one["key"], VersionId=one["versionId"])["ContentLength"]
            for one in listed
        ]
        return {"commit": f"{len(sizes)} parts, {sum(sizes)} bytes"}
    if request["body"]["do"] == "reject":
        return {"unprocessable": "the order is empty"}
    time.sleep(1)
    return {"commit": f"{request['key']} {request['identity']} {request['fenceText']}"}
"""


class ElsewhereStack(cdk.Stack):
    """One machine for both kinds."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        task = lambda_.Function(
            self,
            "Task",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline(TASK),
            timeout=cdk.Duration.seconds(30),
        )
        work = tasks.LambdaInvoke(self, "Work", lambda_function=task, payload_response_only=True)
        limit = cdk.Duration.minutes(2)
        body = sfn.DefinitionBody.from_chainable(work)
        machine = sfn.StateMachine(self, "Machine", definition_body=body, timeout=limit)
        elsewhere = Processor.from_state_machine(machine, timeout=limit, longest_task=cdk.Duration.seconds(2))
        here = Processor.from_asset(Path(__file__).parents[1] / "processors", entrypoint="collecting:take_part")
        skew = cdk.Duration.seconds(1)
        times: dict[str, Any] = {
            "processing_timeout": cdk.Duration.seconds(4),
            "retry": RetryOptions(
                max_attempts=3, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)
            ),
            "removal_policy": cdk.RemovalPolicy.DESTROY,
        }
        intake = MessageIntake(
            self,
            "Orders",
            source=MessageSource.sqs(),
            key="order_id",
            identity="event_id",
            processor=elsewhere,
            clock_skew=skew,
            **times,
        )
        times["concurrency"] = ConcurrencyOptions(clock_skew=skew)
        parts = IntakePipeline(self, "Parts", processor=here, **times)
        form = SetForm.manifest("loads/*/manifest.json")
        loads = FileSets(self, "Loads", pipeline=parts, form=form, processor=elsewhere, name="Loads", **times)
        loads.grant_read(task)
        # An execution waits a second for each byte of its object.
        pause = sfn.Wait(self, "Pause", time=sfn.WaitTime.seconds_path("$.size"))
        paused = sfn.StateMachine(
            self, "Paused", definition_body=sfn.DefinitionBody.from_chainable(pause), timeout=limit
        )
        stopped = Processor.from_state_machine(
            paused, timeout=limit, longest_task=cdk.Duration.seconds(2), stop_overtaken=True
        )
        texts = IntakePipeline(self, "Texts", processor=stopped, **times)
        for name, value in {
            "Queue": intake.queue.queue_url,
            "DeadLetters": intake.dead_letter_queue.queue_url,
            "OrdersTable": intake.table.table_name,
            "Bucket": parts.bucket.bucket_name,
            "PartsTable": parts.table.table_name,
            "MachineArn": machine.state_machine_arn,
            "TextsBucket": texts.bucket.bucket_name,
            "TextsTable": texts.table.table_name,
            "PausedArn": paused.state_machine_arn,
        }.items():
            cdk.CfnOutput(self, f"Out{name}", value=value)
