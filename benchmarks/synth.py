"""Measures the synthesis of a default pipeline, and compares it with the same resources written by hand with the CDK's
L2 constructs.

    python -m benchmarks.synth [--rounds N]

The figure is the CPU time of Python and of the CDK's Node.js process for an app in a separate process, as the CDK CLI
runs `python app.py`: of the whole process, and from `App()` to the end of `synth()`, when the CDK is loaded. Both sides
alternate and stage the same code. By hand, a layer is a folder, which the CDK hashes and copies. The construct packs
the installed packages. The last parts exclude both: the layer is a file that was packed before. They also measure
another app in the same process, in which everything is loaded, as in a team's tests. The types of the resources are
compared.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock
from zipfile import ZipFile

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from aws_cdk import aws_sqs as sqs
from benchmarks.measure import compared, family_seconds, table
from jsii._kernel.providers.process import _NodeProcess

from intake_ledger.contract import ALARMS as ALL_ALARMS
from intake_ledger.contract import OBJECTS

FLOOR, CONSTRUCT = "the same by hand", "the construct"
ALARMS = sum(OBJECTS in row.kinds and row.need is None for row in ALL_ALARMS)
"""The number of alarms of a default pipeline."""
MORE = 5
"""The number of apps after the first. The kernel counts hundredths of a second."""
PROCESSOR = "def process(change): return change.key\n"
VARIABLES = 18
"""The approximate number of each function's environment variables."""


class ByTheConstruct(cdk.Stack):
    """A stack with a default pipeline."""

    def __init__(self, scope: cdk.App, *, code: Path, layer: Path) -> None:  # noqa: ARG002 - it stages its own
        # Imported here, so that the stack by hand does not pay for it.
        from cdk_intake_ledger import IntakePipeline, Processor  # noqa: PLC0415

        super().__init__(scope, "Stack")
        IntakePipeline(self, "Pipeline", processor=Processor.from_asset(code, entrypoint="processor:process"))


class ByHand(cdk.Stack):
    """The same resources, written by hand with care."""

    def __init__(self, scope: cdk.App, *, code: Path, layer: Path, alarms: int) -> None:
        super().__init__(scope, "Stack")
        self._bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED,
            lifecycle_rules=[
                s3.LifecycleRule(
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(7),
                    noncurrent_version_expiration=cdk.Duration.days(30),
                )
            ],
        )
        self._dead_letters = sqs.Queue(self, "DeadLetters", retention_period=cdk.Duration.days(14), enforce_ssl=True)
        self._queue = sqs.Queue(
            self,
            "Queue",
            visibility_timeout=cdk.Duration.seconds(900),
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self._dead_letters, max_receive_count=5),
        )
        self._notify()
        self._table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute="expires_at",
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=True,
        )
        self._table.add_global_secondary_index(
            index_name="needs_review",
            partition_key=dynamodb.Attribute(name="needs_review", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="updated_at", type=dynamodb.AttributeType.NUMBER),
        )
        runtime = lambda_.LayerVersion(self, "Runtime", code=lambda_.Code.from_asset(str(layer)))
        consumer = self._function("Consumer", lambda_.Code.from_asset(str(code)), runtime)
        mapping = consumer.add_event_source_mapping(
            "Source", event_source_arn=self._queue.queue_arn, report_batch_item_failures=True
        )
        self._queue.grant_consume_messages(consumer)
        self._dead_letters.grant_send_messages(consumer)
        audit = self._function("Audit", lambda_.Code.from_asset(str(code)), runtime, retry_attempts=0)
        self._queue.grant_send_messages(audit)
        self._watch(audit, consumer, mapping)
        scheduler.Schedule(
            self,
            "Schedule",
            schedule=scheduler.ScheduleExpression.rate(cdk.Duration.hours(1)),
            target=targets.LambdaInvoke(audit, retry_attempts=0),
        )
        for number in range(alarms):
            self._queue.metric_approximate_age_of_oldest_message().create_alarm(
                self, f"Alarm{number}", threshold=number, evaluation_periods=1, alarm_description="what to do then"
            )

    def _watch(self, audit: lambda_.Function, consumer: lambda_.Function, mapping: lambda_.EventSourceMapping) -> None:
        """Configure the audit's function, and grant its permissions."""
        settings = {
            "function": consumer.function_name,
            "mapping": mapping.event_source_mapping_id,
            "dead": self._dead_letters.queue_url,
        }
        audit.add_environment("DEPLOYED", self.to_json_string(settings))
        looking = ["lambda:GetFunctionConfiguration", "sqs:GetQueueAttributes"]
        resources = [consumer.function_arn, self._dead_letters.queue_arn]
        audit.add_to_role_policy(iam.PolicyStatement(actions=looking, resources=resources))
        audit.add_to_role_policy(iam.PolicyStatement(actions=["lambda:ListEventSourceMappings"], resources=["*"]))

    def _notify(self) -> None:
        self._queue.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                resources=[self._queue.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        resource: Any = self._bucket.node.default_child
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            queue_configurations=[
                s3.CfnBucket.QueueConfigurationProperty(event=event, queue=self._queue.queue_arn)
                for event in ("s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*")
            ]
        )
        resource.node.add_dependency(self._queue.node.find_child("Policy"))

    def _function(
        self, name: str, code: lambda_.Code, runtime: lambda_.LayerVersion, **options: Any
    ) -> lambda_.Function:
        made = lambda_.Function(
            self,
            name,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler="processor.process",
            code=code,
            layers=[runtime],
            memory_size=512,
            timeout=cdk.Duration.seconds(130),
            role=iam.Role(self, f"{name}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")),
            log_group=logs.LogGroup(self, f"{name}Logs", retention=logs.RetentionDays.TWO_MONTHS),
            environment={f"VARIABLE_{number}": self._table.table_name for number in range(VARIABLES)},
            **options,
        )
        self._table.grant_read_write_data(made)
        self._bucket.grant_read(made)
        return made


def synthesised(stack: Any, **options: Any) -> Counter[str]:
    """Return the number of resources of one app by type."""
    app = cdk.App()
    stack(app, **options)
    template = app.synth().get_stack_by_name("Stack").template
    return Counter(one["Type"] for one in template["Resources"].values())


def an_app(side: str, folder: Path, *, packed: bool) -> None:
    """Synthesize one app, then some more, and print the CPU seconds of the first app, of its part after `App()`, and of
    each other app.
    """
    stack, options = sides(folder)[side]
    if side == CONSTRUCT:
        # Imported here, so that the stack by hand does not pay for it.
        from cdk_intake_ledger import IntakePipeline  # noqa: PLC0415, F401
        from cdk_intake_ledger.functions.layer import archive  # noqa: PLC0415

        if packed:
            archive()
    elif packed:
        options["layer"] = folder / "layer.zip"
    before = family_seconds()
    synthesised(stack, **options)
    whole = family_seconds()
    for _ in range(MORE):
        synthesised(stack, **options)
    print(json.dumps([whole, whole - before, (family_seconds() - whole) / MORE]))


def apps(folder: Path, *, packed: bool, rounds: int) -> list[dict[str, dict[str, dict[str, float]]]]:
    """Return the output of `an_app` for each side in each round."""
    taken: list[dict[str, list[float]]] = [{FLOOR: [], CONSTRUCT: []} for _ in range(3)]
    for number in range(rounds + 1):
        # Alternate the direction, as in `side_by_side`. The first run fills the file cache for the others.
        for side in (FLOOR, CONSTRUCT)[:: 1 if number % 2 else -1]:
            printed = said(side, folder, packed=packed)
            if number:
                for part, seconds in zip(taken, printed, strict=True):
                    part[side].append(seconds)
    return [compared(part, floor=FLOOR) for part in taken]


def said(side: str, folder: Path, *, packed: bool) -> list[float]:
    """Return the output of `an_app` in a separate process."""
    command = [sys.executable, "-m", "benchmarks.synth", "--app", side, "--folder", str(folder)]
    printed = subprocess.run([*command, *["--packed"] * packed], check=True, capture_output=True, text=True).stdout
    seconds: list[float] = json.loads(printed)
    return seconds


def calls(stack: Any, options: dict[str, Any]) -> int:
    """Return the number of an app's requests to the CDK's process. Each takes about 0.2 ms on either side."""
    send, sent = _NodeProcess.send, []

    def counted(process: _NodeProcess, request: Any, answer: Any) -> Any:
        sent.append(request)
        return send(process, request, answer)

    with mock.patch.object(_NodeProcess, "send", counted):
        synthesised(stack, **options)
    return len(sent)


def sides(folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return both stacks with their options."""
    options: dict[str, Any] = {"code": folder / "code", "layer": folder / "layer"}
    return {FLOOR: (ByHand, {**options, "alarms": ALARMS}), CONSTRUCT: (ByTheConstruct, options)}


def measure(*, rounds: int = 5) -> dict[str, Any]:
    """Return CPU seconds, ratios, and the number of resources of one pipeline by type."""
    from cdk_intake_ledger.functions.layer import archive  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "code").mkdir()
        (folder / "code" / "processor.py").write_text(PROCESSOR)
        (folder / "layer.zip").write_bytes(archive())
        ZipFile(folder / "layer.zip").extractall(folder / "layer")
        made, twin = (synthesised(stack, **options) for stack, options in reversed(sides(folder).values()))
        assert made == twin, json.dumps([made - twin, twin - made])
        whole, alone, _ = apps(folder, packed=False, rounds=rounds)
        _, packed, more = apps(folder, packed=True, rounds=rounds)
        return {
            "whole app": whole,
            "App() to synth()": alone,
            "App() to synth(), the layer packed before": packed,
            "another app in the same process, the layer packed before": more,
            "calls": {side: calls(*one) for side, one in sides(folder).items()},
            "resources": dict(made.most_common()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--app", choices=(FLOOR, CONSTRUCT), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--packed", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.app:
        an_app(arguments.app, arguments.folder, packed=arguments.packed)
        return
    found = measure(rounds=arguments.rounds)
    for part, rows in found.items():
        print(table(f"Synth: {part}", {"": rows} if part in ("calls", "resources") else rows))


if __name__ == "__main__":
    main()
