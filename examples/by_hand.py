"""The usual way without a ledger, for the examples that compare: a queue, a dead-letter queue and a function."""

from collections.abc import Mapping
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct


class ByHand(Construct):
    """A consumer written by hand. Its numbers follow AWS's recommendations.

    A batch has one message, so a failure repeats no other message.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        code: Path,
        handler: str,
        environment: Mapping[str, str],
        timeout: cdk.Duration,
        max_receive_count: int = 5,
    ) -> None:
        super().__init__(scope, id)
        self.dead_letter_queue = sqs.Queue(self, "DeadLetters")
        self.queue = sqs.Queue(
            self,
            "Queue",
            visibility_timeout=cdk.Duration.seconds(6 * timeout.to_seconds()),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letter_queue, max_receive_count=max_receive_count),
        )
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler=handler,
            code=lambda_.Code.from_asset(str(code)),
            timeout=timeout,
            environment=environment,
        )
        self.function.add_event_source(sources.SqsEventSource(self.queue, batch_size=1))
