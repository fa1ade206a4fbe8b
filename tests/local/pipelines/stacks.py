"""Stacks that the tests deploy: the catalogue example with short times, and pipelines on existing buckets.

`python -m tests.local.pipelines.stacks` synthesises them, with the folder for the processors' code as the context value
`code`. The value `without` names stacks to leave out.
The stack of the fault runs (`tests.local.faults.stack`) is in the same app.
"""

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct
from examples.catalogue.app import CatalogueStack
from examples.orders.stack import OrdersStack

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, Processor, RetryOptions, Tag
from tests.local.audit.parts_stack import PartsStack
from tests.local.audit.watched_stack import STACK as WATCHED
from tests.local.audit.watched_stack import WatchedStack
from tests.local.audit_run import STACK as AUDITED
from tests.local.audit_run import stack as audited
from tests.local.faults import IN_TESTS
from tests.local.faults import STACK as FAULTS
from tests.local.faults import stack as faults
from tests.local.long_work.elsewhere_stack import STACK as ELSEWHERE
from tests.local.long_work.elsewhere_stack import ElsewhereStack
from tests.local.long_work.long_stack import STACK as LONG
from tests.local.long_work.long_stack import LongStack
from tests.local.messages.message_stack import STACK as MESSAGES
from tests.local.messages.message_stack import MessageStack
from tests.local.pipelines.brought_stack import BroughtStack
from tests.local.recorded import effects_table, put_code, recording
from tests.local.sets.sets_stack import STACK as SETS
from tests.local.sets.sets_stack import SetsStack
from tests.local.worker_run import STACK as WORKED
from tests.local.worker_run.stack import WorkedStack
from tests.synth.build import new_app

ROOT = Path(__file__).resolve().parents[3]
TIMES: dict[str, Any] = {
    # An attempt that times out after its effect is repeated. A first event also creates the clients, which takes long
    # on a busy machine.
    "processing_timeout": cdk.Duration.seconds(20),
    "concurrency": ConcurrencyOptions(clock_skew=cdk.Duration.seconds(2)),
    "retry": RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(5)),
    "audit": AuditOptions(settle_time=cdk.Duration.seconds(1)),
    "removal_policy": cdk.RemovalPolicy.DESTROY,
}


def pipeline(scope: Construct, id: str, code: Path, effects: dynamodb.Table, **options: Any) -> IntakePipeline:
    made = IntakePipeline(scope, id, processor=recording(code, effects), **(TIMES | options))
    effects.grant(made, "dynamodb:PutItem")
    cdk.CfnOutput(scope, f"{id}Bucket", value=made.bucket.bucket_name)
    cdk.CfnOutput(scope, f"{id}Function", value=made.function.function_name)
    return made


class LocalStack(CatalogueStack):
    """The example, and pipelines without options, on an existing bucket, with threads, and around Node.js."""

    def __init__(self, scope: Construct, id: str, *, code: Path) -> None:
        self._code = code
        super().__init__(scope, id, **TIMES)
        self._effects.grant(self.models, "dynamodb:PutItem")
        # The message of a dead worker is hidden for longer than its lease.
        options: dict[str, Any] = {"deletes": True, "processing_timeout": cdk.Duration.seconds(4)}
        second = pipeline(self, "Second", code, self._effects, after_commit=Tag("intake", "done"), **options)
        cdk.CfnOutput(self, "SecondLedgerTable", value=second.table.table_name)
        cdk.CfnOutput(self, "SecondAuditFunction", value=second.audit_function.function_name)
        existing = s3.Bucket(self, "Existing", versioned=True, removal_policy=cdk.RemovalPolicy.DESTROY)
        pipeline(self, "OnExisting", code, self._effects, bucket=existing)
        self._add_threads()
        self._add_remote()
        cdk.CfnOutput(self, "EffectsTable", value=self._effects.table_name)

    def processor(self) -> Processor:
        self._effects = effects_table(self)
        return recording(self._code, self._effects, CATALOGUE_TABLE=self.catalogue.table_name)

    def _add_threads(self) -> None:
        """Process three records at once, each in at most two attempts."""
        retry = RetryOptions(max_attempts=2, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(1))
        # Other records must start while one hangs, even on a busy machine.
        seconds = cdk.Duration.seconds(5)
        concurrency = ConcurrencyOptions(threads=3, clock_skew=cdk.Duration.seconds(2))
        options = {"concurrency": concurrency, "retry": retry, "processing_timeout": seconds}
        made = pipeline(self, "Threads", self._code, self._effects, **options)
        cdk.CfnOutput(self, "ThreadsQueueUrl", value=made.queue.queue_url)
        cdk.CfnOutput(self, "ThreadsDeadLetterQueueUrl", value=made.dead_letter_queue.queue_url)
        cdk.CfnOutput(self, "ThreadsLedgerTable", value=made.table.table_name)

    def _add_remote(self) -> None:
        """A processor in another language, which was there before."""
        function = lambda_.Function(
            self,
            "Anyone",
            runtime=lambda_.Runtime.NODEJS_22_X,
            handler="index.handler",
            code=lambda_.Code.from_inline((ROOT / "tests" / "local" / "processors" / "anyone.js").read_text()),
            timeout=cdk.Duration.seconds(2),
        )
        options = TIMES | {"processing_timeout": cdk.Duration.seconds(12)}
        remote = IntakePipeline(self, "Remote", processor=Processor.from_function(function), **options)
        for name, value in {
            "RemoteBucket": remote.bucket.bucket_name,
            "RemoteQueueUrl": remote.queue.queue_url,
            "RemoteDeadLetterQueueUrl": remote.dead_letter_queue.queue_url,
            "RemoteLedgerTable": remote.table.table_name,
            "RemoteFunction": remote.function.function_name,
        }.items():
            cdk.CfnOutput(self, name, value=value)


class HostStack(cdk.Stack):
    """Buckets of another team."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self.sibling = s3.Bucket(self, "Sibling", versioned=True, removal_policy=cdk.RemovalPolicy.DESTROY)
        self.by_name = s3.Bucket(self, "ByName", versioned=True, removal_policy=cdk.RemovalPolicy.DESTROY)


class GuestStack(cdk.Stack):
    """Pipelines on another stack's buckets: one by reference, one imported by its name."""

    def __init__(self, scope: Construct, id: str, *, host: HostStack, code: Path) -> None:
        super().__init__(scope, id)
        effects = effects_table(self)
        pipeline(self, "OnSibling", code, effects, bucket=host.sibling)
        imported = s3.Bucket.from_bucket_name(self, "Imported", host.by_name.bucket_name)
        pipeline(self, "OnImported", code, effects, bucket=imported)
        cdk.CfnOutput(self, "EffectsTable", value=effects.table_name)


def main() -> None:
    app = new_app()
    code = Path(app.node.try_get_context("code"))
    put_code(code)
    LocalStack(app, "Local", code=code)
    GuestStack(app, "Guest", host=HostStack(app, "Host"), code=code)
    without = str(app.node.try_get_context("without") or "").split()
    if FAULTS not in without:
        faults.from_context(app, lines=IN_TESTS)
    if AUDITED not in without:
        audited.AuditedStack(app, AUDITED, code=code)
    PartsStack(app, "Parts", code=code)
    BroughtStack(app, "Brought", code=code)
    WatchedStack(app, WATCHED)
    if WORKED not in without:
        WorkedStack(app, WORKED, code=code)
    if SETS not in without:
        SetsStack(app, SETS)
    if MESSAGES not in without:
        MessageStack(app, MESSAGES)
        OrdersStack(app)
    LongStack(app, LONG, code=code)
    if ELSEWHERE not in without:
        ElsewhereStack(app, ELSEWHERE)
    app.synth()


if __name__ == "__main__":
    main()
