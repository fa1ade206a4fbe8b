"""The demo's stack: the catalogue example without changes, consumers by hand, and a queue that receives S3's messages.

`python -m examples.demo.stack` synthesises it. The demo passes the keys of killed workers and the
timeouts as CDK context.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from app import CatalogueStack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from examples.demo.world import LOCKS, SETTLE_SECONDS

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, Processor, RetryOptions

ROOT = Path(__file__).resolve().parents[2]
STACK = "Demo"
NO_KEYS = "-"
"""No worker is killed."""
CODE = (
    "examples/catalogue/catalogue.py",
    "examples/demo/__init__.py",
    "examples/demo/functions",
    "examples/published_locks.py",
)
LOCK_SECONDS = 6
"""A worker with a lock that times out in a slow first request keeps the lock."""


class DemoStack(CatalogueStack):
    """The catalogue with short times, and hand-written consumers with their own queues and tables."""

    def __init__(
        self, scope: cdk.App, id: str, *, code: Path, kill_keys: str, naive_timeout: int, locks: bool = False
    ) -> None:
        self._code = code
        self._kill_keys = kill_keys
        super().__init__(scope, id, removal_policy=cdk.RemovalPolicy.DESTROY, **self.times())
        self._effects.grant(self.models, "dynamodb:PutItem")
        self._by_hand("naive", "naive.handler", naive_timeout)
        for lock in LOCKS if locks else ():
            self._by_hand(lock, f"locks.{lock}", naive_timeout)
        # S3 sends here in stage 2. The demo forwards the messages to both queues with faults.
        tap = sqs.Queue(self, "Tap")
        tap.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                resources=[tap.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        cdk.CfnOutput(self, "TapQueueUrl", value=tap.queue_url)
        cdk.CfnOutput(self, "EffectsTable", value=self._effects.table_name)

    def times(self) -> dict[str, Any]:
        """Options with short times. A subclass may use the pipeline's defaults."""
        return {
            # An attempt that times out after its effect is repeated. Where workers are killed, their messages are
            # hidden for longer than the lease, so it is short there.
            "processing_timeout": cdk.Duration.seconds(20 if self._kill_keys == NO_KEYS else 4),
            "concurrency": ConcurrencyOptions(clock_skew=cdk.Duration.seconds(3)),
            "retry": RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(5)),
            "audit": AuditOptions(settle_time=cdk.Duration.seconds(SETTLE_SECONDS)),
        }

    def filters(self) -> list[s3.NotificationKeyFilter]:
        return [s3.NotificationKeyFilter(prefix="models/")]

    def processor(self) -> Processor:
        """The catalogue's processor with records of its effects."""
        self._effects = dynamodb.Table(
            self,
            "Effects",
            partition_key=dynamodb.Attribute(name="side", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="at", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        return self.watched()

    def watched(self) -> Processor:
        """The processor, for a pipeline of this stack."""
        return Processor.from_asset(
            self._code,
            entrypoint="examples.demo.functions.watched:process",
            environment=self._watch() | {"CATALOGUE_TABLE": self.catalogue.table_name},
        )

    def _watch(self) -> dict[str, str]:
        return {"EFFECTS_TABLE": self._effects.table_name, "KILL_KEYS": self._kill_keys}

    def _by_hand(self, side: str, handler: str, timeout: int) -> None:
        """Make the usual resources: a queue with six times the function's timeout and a dead-letter queue."""
        name, locked = side.capitalize(), side in LOCKS
        table = dynamodb.Table(
            self,
            f"{name}Catalogue",
            partition_key=dynamodb.Attribute(name="service", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        dead_letters = sqs.Queue(self, f"{name}DeadLetters")
        queue = sqs.Queue(
            self,
            f"{name}Queue",
            visibility_timeout=cdk.Duration.seconds(6 * timeout),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=5 if locked else 3),
        )
        function = lambda_.Function(
            self,
            f"{name}Consumer",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=512,
            timeout=cdk.Duration.seconds(LOCK_SECONDS if locked else timeout),
            handler=f"examples.demo.functions.{handler}",
            code=lambda_.Code.from_asset(str(self._code)),
            # `describe` raises the ledger's Unprocessable. For this consumer it is an ordinary exception.
            layers=[layer for layer in self.models.node.find_all() if isinstance(layer, lambda_.LayerVersion)],
            environment=self._watch() | {"CATALOGUE_TABLE": table.table_name},
        )
        if locked:
            key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
            rows = dynamodb.TableV2(self, f"{name}Locks", partition_key=key, removal_policy=cdk.RemovalPolicy.DESTROY)
            rows.grant_read_write_data(function)
            function.add_environment("LOCK_TABLE", rows.table_name)
        function.add_event_source(
            sources.SqsEventSource(queue, batch_size=1 if locked else 10, report_batch_item_failures=locked)
        )
        table.grant_read_write_data(function)
        self._effects.grant(function, "dynamodb:PutItem")
        self.models.bucket.grant_read(function)
        cdk.CfnOutput(self, f"{name}Table", value=table.table_name)
        cdk.CfnOutput(self, f"{name}QueueUrl", value=queue.queue_url)
        cdk.CfnOutput(self, f"{name}DeadLetterQueueUrl", value=dead_letters.queue_url)


def stage_code(directory: Path) -> Path:
    """Copy the code of the functions, with its package names in the repository."""
    for name in CODE:
        source, target = ROOT / name, directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    return directory


def main() -> None:
    # Omit CDK's validation of the template, which takes seven seconds. Tests do it.
    app = cdk.App(builtin_cloud_formation_validation=False)
    context = app.node.try_get_context
    DemoStack(
        app,
        STACK,
        code=stage_code(Path(context("code"))),
        kill_keys=context("killKeys") or NO_KEYS,
        naive_timeout=int(context("naiveTimeout") or 5),
        locks=bool(context("locks")),
    )
    app.synth()


if __name__ == "__main__":
    main()
