"""The queue between S3 and the consumer, and its dead-letter queue."""

import math
from collections.abc import Iterator
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Resource
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.limits import AWS_MANAGED_KEY, MIN_MESSAGE_BYTES
from cdk_intake_ledger.checks.nag_suppressions import DEAD_LETTERS, suppress
from cdk_intake_ledger.checks.plan import DEAD_LETTER_RETENTION_DAYS, MAX_RECEIVES, QUEUE_RETENTION_DAYS, Plan
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import WARNING_PREFIX, refuse, warn
from cdk_intake_ledger.checks.rules.final_rules import KEPT, NONE
from cdk_intake_ledger.checks.rules.number_rules import DURATION_UNIT
from cdk_intake_ledger.checks.rules.queue_rules import (
    DEAD_LETTER_QUEUE_IN_USE,
    DEAD_LETTER_QUEUE_IS_QUEUE,
    FIFO_QUEUE,
    QUEUE_IN_USE,
    QUEUE_PAIR,
    QUEUE_VISIBILITY_UNKNOWN,
)
from cdk_intake_ledger.checks.rules.time_rules import DEAD_LETTER_RETENTION_RANGE, QUEUE_RETENTION_RANGE
from cdk_intake_ledger.checks.spans import DAY, MINUTE, span
from cdk_intake_ledger.resources.cloudformation import arn_identity
from cdk_intake_ledger.resources.existing_queue import ExistingQueue, QueueTimes, dead_letter_queue_of

QUEUE_OWNERS = f"{WARNING_PREFIX}:served"
"""Metadata of the app: the path of a pipeline, and the ARNs of its queue and its dead-letter queue."""


@check_arguments
class IntakeQueue(Construct):
    """A queue and its dead-letter queue: new ones, encrypted and for TLS only, or existing ones.

    Each queue belongs to one pipeline. Two consumers of one queue would take each other's messages. A redrive from a
    common dead-letter queue would send messages of one pipeline to the other. By default, CloudFormation keeps both
    queues when their stack is deleted or a new ID replaces them. Pass them as `queue` to go on with their messages.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        queue: sqs.IQueue | None = None,
        dead_letter_queue: sqs.IQueue | None = None,
        visibility_timeout: Duration | None = None,
        retention: Duration | None = None,
        dead_letter_retention: Duration | None = None,
        encryption_key: kms.IKey | kms.Key | None = None,
        fifo: bool = False,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Create both queues, or use existing ones.

        For existing queues of this app, the settings are read and the other options must be omitted. For imported
        queues, the options state the settings, so that they can be checked. They change nothing.

        Args:
            scope: the stack, or a construct in it.
            id: the construct's ID.
            queue: an existing queue without another consumer. A queue is created when omitted.
            dead_letter_queue: an existing dead-letter queue for this pipeline only. Pass it together with `queue`. When
                omitted, it is that of the redrive policy of a queue of this app, or it is created with the queue. A
                queue of this app without a redrive policy gets one.
            visibility_timeout: the time for which SQS hides a received message, up to 12 hours. When omitted, the
                pipeline sets half a minute more than its lease, so that SQS soon delivers the message of a dead worker
                again.
            retention: the time for which SQS keeps a message, 1 minute to 14 days; 4 days when omitted.
            dead_letter_retention: the same for the dead-letter queue; 14 days, SQS's maximum, when omitted. SQS counts
                it from the time at which a message was first sent.
            encryption_key: encrypts both queues; SQS's key when omitted.
            fifo: whether new queues are FIFO queues, for `MessageSource.fifo` only; standard queues when omitted. SQS
                then drops a message whose body was sent in the last 5 minutes, unless it has its own deduplication ID.
            removal_policy: of both new queues and of their policies; `RETAIN` when omitted.

        """
        super().__init__(scope, id)
        self._problems: list[Problem] = []
        self._existing: ExistingQueue | None = None
        self._made = queue is None and dead_letter_queue is None
        self._encryption_key = encryption_key
        self._policy: Resource | None = None
        self._is_fifo, self._is_retained = fifo, self._made and removal_policy == RemovalPolicy.RETAIN
        dead_letter_queue = dead_letter_queue or dead_letter_queue_of(queue)
        if queue is not None and dead_letter_queue is not None:
            self._queue, self._dead_letter_queue = queue, dead_letter_queue
            options = QueueTimes(
                visibility_timeout=visibility_timeout, retention=retention, dead_letter_retention=dead_letter_retention
            )
            self._existing = ExistingQueue(queue, dead_letter_queue, options, encryption_key)
            self._problems += self._existing.option_problems()
            self._times = self._existing.times()
            self._encryption_key = queue.encryption_master_key
            return
        if not self._made:
            self._problems.append(QUEUE_PAIR.problem(path=self.node.path))
        self._times = QueueTimes(
            visibility_timeout=visibility_timeout,
            retention=retention or Duration.days(QUEUE_RETENTION_DAYS),
            dead_letter_retention=dead_letter_retention or Duration.days(DEAD_LETTER_RETENTION_DAYS),
        )
        try:
            self._dead_letter_queue, self._queue = self._make(encryption_key, removal_policy)
        except RuntimeError:
            # The CDK checks the times when it makes a queue. Each question before would be a call of its process.
            refuse(self.node.path, [*_time_problems(self._times)])
            raise
        self._encryption_key = self._queue.encryption_master_key
        suppress(self._dead_letter_queue, DEAD_LETTERS)
        self._policy = _keep_policy(self._queue, removal_policy)
        _keep_policy(self._dead_letter_queue, removal_policy)

    def _make(self, encryption_key: kms.IKey | None, removal_policy: RemovalPolicy) -> tuple[sqs.Queue, sqs.Queue]:
        """The dead-letter queue and the queue."""
        # SQS takes no `false` here.
        order: dict[str, Any] = {"fifo": True, "content_based_deduplication": True} if self._is_fifo else {}
        # Without a key, the encryption is set below: then a property injector may give an organisation's key.
        encryption: dict[str, Any] = (
            {"encryption": sqs.QueueEncryption.KMS, "encryption_master_key": encryption_key} if encryption_key else {}
        )
        dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            retention_period=self._times.dead_letter_retention,
            enforce_ssl=True,
            removal_policy=removal_policy,
            **encryption,
            **order,
        )
        queue = sqs.Queue(
            self,
            "Messages",
            visibility_timeout=self._times.visibility_timeout,
            retention_period=self._times.retention,
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=MAX_RECEIVES),
            removal_policy=removal_policy,
            **encryption,
            **order,
        )
        for made in () if encryption_key else (dead_letters, queue):
            resource = made.node.default_child
            assert isinstance(resource, sqs.CfnQueue), made.node.path
            if resource.kms_master_key_id is None:
                resource.sqs_managed_sse_enabled = True
        return dead_letters, queue

    @property
    def queue(self) -> sqs.IQueue:
        """The queue that receives S3's events."""
        return self._queue

    @property
    def dead_letter_queue(self) -> sqs.IQueue:
        """The queue for messages that need review, each with its reason."""
        return self._dead_letter_queue

    @property
    def is_existing(self) -> bool:
        """True if the queues existed before this construct."""
        return not self._made

    @property
    def encryption_key(self) -> kms.IKey | None:
        """The customer managed key of the queue, or None. New queues have the same one."""
        return self._encryption_key

    @property
    def dead_letter_key(self) -> kms.IKey | None:
        """The customer managed key of the dead-letter queue, or None."""
        return self._encryption_key if self._made else self._dead_letter_queue.encryption_master_key

    @property
    def second_key(self) -> kms.IKey | None:
        """The key of the dead-letter queue if it is not the queue's. Who sends to that queue needs it."""
        key, own = self.dead_letter_key, self._encryption_key
        return None if key is None or (own is not None and own.node.path == key.node.path) else key

    @property
    def visibility_timeout(self) -> Duration | None:
        """The visibility timeout that was set or read. None if the pipeline sets it, or if it is unknown."""
        return self._times.visibility_timeout

    @property
    def retention(self) -> Duration | None:
        """The retention of the queue. None for an imported queue whose retention is not stated."""
        return self._times.retention

    @property
    def dead_letter_retention(self) -> Duration | None:
        """The retention of the dead-letter queue. None for an imported queue whose retention is not stated."""
        return self._times.dead_letter_retention

    @property
    def max_receives(self) -> int:
        """MaxReceiveCount of the queue: SQS's maximum without a redrive policy, 300 for an imported queue."""
        return MAX_RECEIVES if self._existing is None else self._existing.max_receives()

    @property
    def cfn_policy(self) -> sqs.CfnQueuePolicy | None:
        """The policy of the queue, which S3's notifications depend on. None for an imported queue."""
        holder = self._policy or self._queue.node.try_find_child("Policy")
        policy = holder.node.default_child if holder else None
        return policy if isinstance(policy, sqs.CfnQueuePolicy) else None

    def problems(self, *, for_events: bool = True) -> list[Problem]:
        """Find reasons why a pipeline cannot use these queues. The pipeline calls this method.

        Args:
            for_events: whether S3's events have to reach the queue; they have to when omitted.

        Returns:
            The problems, which the pipeline reports with all others.

        """
        found = list(self._problems)
        if (owner := self._owner_of(self._queue)) is not None:
            path = (self if self._made else self._queue).node.path
            found.append(QUEUE_IN_USE.problem(path=path, owner=owner))
        if self._existing is not None:
            found += self._dead_letter_problems()
        if for_events:
            found += self._event_problems()
        return found

    def _event_problems(self) -> Iterator[Problem]:
        """Queues that S3's events could not reach. The check of the final template compares their settings."""
        fifo = [queue for queue in (self._queue, self._dead_letter_queue) if queue.fifo]
        for path in dict.fromkeys((self if self._made else queue).node.path for queue in fifo):
            yield FIFO_QUEUE.problem(path=path)

    def _dead_letter_problems(self) -> Iterator[Problem]:
        path = self._dead_letter_queue.node.path
        if self._queue.queue_arn == self._dead_letter_queue.queue_arn:
            yield DEAD_LETTER_QUEUE_IS_QUEUE.problem(path=path)
        elif (owner := self._owner_of(self._dead_letter_queue)) is not None:
            yield DEAD_LETTER_QUEUE_IN_USE.problem(path=path, owner=owner)

    def attach_to(self, pipeline: Construct, plan: Plan, *, for_events: bool) -> None:
        """Make these queues the pipeline's. The pipeline calls this method.

        Args:
            pipeline: the pipeline. No other pipeline can use these queues.
            plan: its numbers.
            for_events: as for `problems`.

        Raises:
            TypeError: The construct of the queue has no CloudFormation resource.

        """
        queues = [self._identity(queue) for queue in (self._queue, self._dead_letter_queue)]
        node = pipeline.node
        node.root.node.add_metadata(QUEUE_OWNERS, [node.path, *queues])
        if self._existing is not None:
            self._existing.add_redrive_policy()
        self._expect_in(pipeline, plan, for_events=for_events)
        visibility = int(plan.least_visibility)
        if self._times.visibility_timeout is not None:
            return
        if not self._made:
            warn(self, QUEUE_VISIBILITY_UNKNOWN, path=self._queue.node.path, least=span(visibility))
            return
        resource = self._queue.node.default_child
        if not isinstance(resource, sqs.CfnQueue):
            raise TypeError(f"{self._queue.node.path} has no CloudFormation resource of a queue")
        resource.visibility_timeout = visibility

    def _expect_in(self, pipeline: Construct, plan: Plan, *, for_events: bool) -> None:
        """Record what both queues must have in the template."""
        fifo, key, dead_letter_key = self._queue.fifo or NONE, self.encryption_key, self.dead_letter_key
        arn = self._dead_letter_queue.queue_arn
        # A redrive policy of a given queue is known when the app is complete. Each attempt uses at least one receive.
        attempts = 0 if math.isnan(plan.max_attempts) else plan.max_attempts
        receives = max(self.max_receives, int(2 * attempts))
        wanted: dict[str, Any] = {
            "RedrivePolicy": {"deadLetterTargetArn": arn},
            "RedrivePolicy.maxReceiveCount": receives,
            "DelaySeconds": 0,
            "FifoQueue": fifo,
            "MaximumMessageSize": MIN_MESSAGE_BYTES if for_events else 0,
            "KmsMasterKeyId": [key.key_arn if key else NONE],
        }
        # SQS lets principals of the account use its own key. It does not let services.
        managed = [] if self._made else [AWS_MANAGED_KEY]
        if not for_events:
            wanted["KmsMasterKeyId"] += managed
        if not math.isnan(plan.queue_retention):
            wanted["MessageRetentionPeriod"] = int(plan.queue_retention)
        if self._made:
            wanted["VisibilityTimeout"] = int(plan.visibility)
        dead_letters = {
            "RedriveAllowPolicy": self._queue.queue_arn,
            "FifoQueue": fifo,
            "KmsMasterKeyId": [dead_letter_key.key_arn if dead_letter_key else NONE, *managed],
        }
        if self._is_retained:
            wanted["DeletionPolicy"] = dead_letters["DeletionPolicy"] = KEPT
        expect(pipeline, "queue", self._queue, wanted)
        expect(pipeline, "dead", self._dead_letter_queue, dead_letters)

    def _owner_of(self, queue: sqs.IQueue) -> str | None:
        """The pipeline of this app that uses a queue, even through another `IntakeQueue` or another import."""
        wanted = self._identity(queue)
        entries = (entry.data for entry in self.node.root.node.metadata if entry.type == QUEUE_OWNERS)
        return next((str(pipeline) for pipeline, *queues in entries if wanted in queues), None)

    def _identity(self, queue: sqs.IQueue) -> str:
        return arn_identity(self, queue.queue_arn, owned=self._made)


def _time_problems(times: QueueTimes) -> Iterator[Problem]:
    """Find times that the CDK does not take."""
    for name, duration, check in (
        ("visibility_timeout", times.visibility_timeout, None),
        ("retention", times.retention, QUEUE_RETENTION_RANGE),
        ("dead_letter_retention", times.dead_letter_retention, DEAD_LETTER_RETENTION_RANGE),
    ):
        try:
            seconds = duration.to_seconds(integral=False) if duration is not None else 0
        except RuntimeError:
            yield DURATION_UNIT.problem(name=name)
            continue
        if check is not None and not MINUTE <= seconds <= DEAD_LETTER_RETENTION_DAYS * DAY:
            yield check.rule.problem(value=span(seconds))


def _keep_policy(queue: sqs.Queue, removal_policy: RemovalPolicy) -> Resource:
    """Give a queue's policy the queue's removal policy. A queue without its policy receives no events."""
    policy = queue.node.find_child("Policy")
    if not isinstance(policy, Resource):
        raise TypeError(f"{queue.node.path} has no policy: enforce_ssl adds one")
    policy.apply_removal_policy(removal_policy)
    return policy
