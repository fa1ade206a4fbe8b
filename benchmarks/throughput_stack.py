"""The stack of `benchmarks.throughput`: the demo's stack with the pipeline's default times, and a second pipeline that
commits together.
"""

from pathlib import Path
from typing import Any, override

import aws_cdk as cdk
from examples.demo.stack import DemoStack, stage_code

from cdk_intake_ledger import ConcurrencyOptions, IntakePipeline

STACK = "Throughput"
NAIVE_TIMEOUT = 30
"""Timeout of the naive consumer in seconds. The demo has a shorter timeout, so that retries come early."""


class ThroughputStack(DemoStack):
    """Three consumers with a queue each."""

    def __init__(self, scope: cdk.App, id: str, *, code: Path) -> None:
        super().__init__(scope, id, code=code, kill_keys="-", naive_timeout=NAIVE_TIMEOUT)
        together = IntakePipeline(
            self,
            "Together",
            processor=self.watched(),
            deletes=True,
            concurrency=ConcurrencyOptions(commit_together=True),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self.catalogue.grant(
            together, "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"
        )
        self._effects.grant(together, "dynamodb:PutItem")
        cdk.CfnOutput(self, "TogetherBucketName", value=together.bucket.bucket_name)
        cdk.CfnOutput(self, "TogetherQueueUrl", value=together.queue.queue_url)

    @override
    def times(self) -> dict[str, Any]:
        """Return the default options. The size of a group claim depends on the remaining time."""
        return {}


def main() -> None:
    app = cdk.App()
    ThroughputStack(app, STACK, code=stage_code(Path(app.node.try_get_context("code"))))
    app.synth()


if __name__ == "__main__":
    main()
