"""The buffer between S3 and the consumer."""

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.rules import MAX_RECEIVES


class IntakeQueue(Construct):
    """A standard queue and its dead-letter queue, encrypted, for TLS only.

    Each belongs to one pipeline: two consumers of one queue would take each other's messages. Both are removed with
    their stack; their messages are wake-up calls, and what they wake up to is in the bucket and in the ledger.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        visibility_timeout: Duration | None = None,
        retention: Duration | None = None,
        dead_letter_retention: Duration | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        """Make both queues.

        Args:
            scope: where it belongs.
            id: its name there.
            visibility_timeout: for how long a received message is hidden from others. When omitted, the pipeline sets
                six function timeouts and a batching window, or the lease if that is longer.
            retention: for how long an unprocessed message is kept; 4 days when omitted.
            dead_letter_retention: the same for the dead-letter queue, counted from when a message was first sent; 14
                days when omitted.
            encryption_key: encrypts both queues; SQS's own key when omitted.

        """
        super().__init__(scope, id)
        self._visibility_timeout = visibility_timeout
        self._retention = retention or Duration.days(4)
        self._dead_letter_retention = dead_letter_retention or Duration.days(14)
        self._encryption_key = encryption_key
        self._consumer: str | None = None
        encryption = sqs.QueueEncryption.KMS if encryption_key else sqs.QueueEncryption.SQS_MANAGED
        self._dead_letter_queue = sqs.Queue(
            self,
            "DeadLetters",
            retention_period=self._dead_letter_retention,
            encryption=encryption,
            encryption_master_key=encryption_key,
            enforce_ssl=True,
        )
        self._queue = sqs.Queue(
            self,
            "Messages",
            visibility_timeout=visibility_timeout,
            retention_period=self._retention,
            encryption=encryption,
            encryption_master_key=encryption_key,
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self._dead_letter_queue, max_receive_count=MAX_RECEIVES),
        )

    @property
    def queue(self) -> sqs.IQueue:
        """The queue that S3 notifies."""
        return self._queue

    @property
    def dead_letter_queue(self) -> sqs.IQueue:
        """Where messages go that a person has to look at, each with its reason."""
        return self._dead_letter_queue

    @property
    def encryption_key(self) -> kms.IKey | None:
        """The key of both queues, if they have one of the team's."""
        return self._encryption_key

    @property
    def visibility_timeout(self) -> Duration | None:
        """As it was given; `None` leaves it to the pipeline."""
        return self._visibility_timeout

    @property
    def retention(self) -> Duration:
        """For how long the queue keeps a message."""
        return self._retention

    @property
    def dead_letter_retention(self) -> Duration:
        """For how long the dead-letter queue keeps a message."""
        return self._dead_letter_retention

    @property
    def cfn_policy(self) -> sqs.CfnQueuePolicy:
        """The queue's policy, which has to be there before S3 is told to send."""
        policy = self._queue.node.find_child("Policy").node.default_child
        if not isinstance(policy, sqs.CfnQueuePolicy):
            raise TypeError(f"{self._queue.node.path} has no queue policy")
        return policy

    def problems(self) -> list[str]:
        """Why no pipeline can take this queue any more."""
        if self._consumer is None:
            return []
        taken = f"the queue {self.node.path} already belongs to {self._consumer}"
        return [f"{taken}: two consumers would take each other's messages, give each its own"]

    def serve(self, pipeline: Construct, visibility: int) -> None:
        """Belong to this pipeline, and hide a message for so many seconds unless the team said how long."""
        self._consumer = pipeline.node.path
        if self._visibility_timeout is None:
            resource = self._queue.node.default_child
            if not isinstance(resource, sqs.CfnQueue):
                raise TypeError(f"{self._queue.node.path} has no CloudFormation resource of a queue")
            resource.visibility_timeout = visibility

    def allow_service(
        self,
        service: str,
        conditions: dict[str, dict[str, str]],
        *,
        key_conditions: dict[str, dict[str, str]],
        dead_letters: bool = False,
    ) -> iam.PolicyStatement | None:
        """Let an AWS service send here, and use the key where there is one.

        Returns the statement that the key's policy lacks, when the key was imported and CDK cannot add it.
        """
        principal = iam.ServicePrincipal(service)
        for queue in (self._queue, self._dead_letter_queue) if dead_letters else (self._queue,):
            queue.add_to_resource_policy(
                iam.PolicyStatement(
                    actions=["sqs:SendMessage"],
                    principals=[principal],
                    resources=[queue.queue_arn],
                    conditions=conditions,
                )
            )
        if self._encryption_key is None:
            return None
        statement = iam.PolicyStatement(
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            principals=[principal],
            resources=["*"],
            conditions=key_conditions,
        )
        return None if self._encryption_key.add_to_resource_policy(statement).statement_added else statement
