"""The demo's stack: the catalogue example without changes, consumers by hand, and a queue that receives S3's messages.

`python -m examples.demo.stack` synthesises it. The demo passes the keys of killed workers and the
timeouts as CDK context.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from examples.catalogue.app import CatalogueStack
from examples.demo.world import LOCKS
from examples.harness.stand import add_tap, new_app, queue_by_hand, stage_code
from examples.harness.world import SETTLE_SECONDS

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, Processor, RetryOptions

STACK = "Demo"
NO_KEYS = "-"
"""No worker is killed."""
CODE = (
    "examples/catalogue/processor/catalogue.py",
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
        add_tap(self)
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
        """Add a consumer with a queue and a table."""
        name, locked = side.capitalize(), side in LOCKS
        table = dynamodb.Table(
            self,
            f"{name}Catalogue",
            partition_key=dynamodb.Attribute(name="service", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        queue = queue_by_hand(self, name, timeout, receives=5 if locked else 3)
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


def main() -> None:
    app = new_app()
    context = app.node.try_get_context
    DemoStack(
        app,
        STACK,
        code=stage_code(Path(context("code")), *CODE),
        kill_keys=context("killKeys") or NO_KEYS,
        naive_timeout=int(context("naiveTimeout") or 5),
        locks=bool(context("locks")),
    )
    app.synth()


if __name__ == "__main__":
    main()
