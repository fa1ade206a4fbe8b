"""The buffer between S3 and the consumer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aws_cdk import Duration, RemovalPolicy, Resource, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.resources.cloudformation import arn_identity, properties_of
from cdk_intake_ledger.validation.nag_suppressions import DEAD_LETTERS, suppress
from cdk_intake_ledger.validation.plan import (
    DEAD_LETTER_RETENTION_DAYS,
    IMPORTED_RECEIVES,
    MAX_RECEIVES,
    QUEUE_RETENTION_DAYS,
    span,
)
from cdk_intake_ledger.validation.queue_rules import (
    DEAD_LETTER_QUEUE_IN_USE,
    DEAD_LETTER_QUEUE_IS_QUEUE,
    FIFO_QUEUE,
    OPTION_OF_EXISTING_QUEUE,
    QUEUE_AWS_MANAGED_KEY,
    QUEUE_IN_USE,
    QUEUE_MAX_RECEIVES,
    QUEUE_MESSAGE_SIZE,
    QUEUE_PAIR,
    QUEUE_VISIBILITY_UNKNOWN,
)
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.reporting import WARNING_PREFIX, warn

LEAST_MESSAGE_BYTES = 64 * 1_024
"""An S3 event with the longest key, form-encoded, has some ten KB; SQS's own limit is far above."""

QUEUE_OWNERS = f"{WARNING_PREFIX}:served"
"""Metadata of the app: the path of a pipeline, and the ARNs of its queue and its dead-letter queue."""

KEY_OF_SQS = "alias/aws/sqs"
"""The account's AWS managed key for SQS. Its policy cannot be changed, so services cannot send (SQS developer guide,
"Configure KMS permissions for AWS services")."""


class Missing(NamedTuple):
    """A statement that some imported policy lacks, and that CDK cannot add."""

    policy_of: str
    kind: str
    """`queue` or `key`."""
    statement: iam.PolicyStatement


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What can be seen of a queue that the team brings; None is not known."""

    visibility_timeout: Duration | None
    retention: Duration | None
    dead_letter_retention: Duration | None


class IntakeQueue(Construct):
    """A standard queue and its dead-letter queue, encrypted, for TLS only; or two that the team brings.

    Each belongs to one pipeline: two consumers of one queue would take each other's messages, and a redrive from one
    dead-letter queue would send each the other's. Both are kept when their stack is deleted or a new id replaces them,
    since nobody else has their messages; `intake-ledger adopt` moves these.
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
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make both queues, or take those that are there.

        Of queues of this app the numbers are read, and the other options belong to them. Of imported ones, the options
        say what they have, so that it can be checked; nothing is changed there.

        Args:
            scope: the stack, or a construct in it, that it belongs to.
            id: its name there.
            queue: one of the team's, which nobody else reads. When omitted, one is made.
            dead_letter_queue: the team's too, if `queue` is, and this pipeline's alone; one is made with the queue when
                omitted.
            visibility_timeout: for how long a received message is hidden from others, up to 12 hours. When omitted, the
                pipeline sets half a minute more than its lease lasts, so that the message of a dead worker is handled
                again soon.
            retention: for how long an unprocessed message is kept, 1 minute to 14 days; 4 days when omitted.
            dead_letter_retention: the same for the dead-letter queue, where SQS goes on counting from when a message
                was first sent; 14 days, SQS's most, when omitted.
            encryption_key: encrypts both queues; SQS's own key when omitted.
            removal_policy: of both queues that are made, and of their policies; they are kept when omitted.

        """
        super().__init__(scope, id)
        self._found: list[Problem] = []
        self._made = queue is None and dead_letter_queue is None
        self._encryption_key = encryption_key
        self._policy: Resource | None = None
        given = _Known(
            visibility_timeout=visibility_timeout, retention=retention, dead_letter_retention=dead_letter_retention
        )
        if queue is not None and dead_letter_queue is not None:
            self._queue, self._dead_letter_queue = queue, dead_letter_queue
            self._known = self._seen(given)
            self._encryption_key = queue.encryption_master_key
            return
        if not self._made:
            self._found.append(QUEUE_PAIR.problem(path=self.node.path))
        self._known = _Known(
            visibility_timeout=visibility_timeout,
            retention=retention or Duration.days(QUEUE_RETENTION_DAYS),
            dead_letter_retention=dead_letter_retention or Duration.days(DEAD_LETTER_RETENTION_DAYS),
        )
        encryption = sqs.QueueEncryption.KMS if encryption_key else sqs.QueueEncryption.SQS_MANAGED
        self._dead_letter_queue = sqs.Queue(
            self,
            "DeadLetters",
            retention_period=self._known.dead_letter_retention,
            encryption=encryption,
            encryption_master_key=encryption_key,
            enforce_ssl=True,
            removal_policy=removal_policy,
        )
        suppress(self._dead_letter_queue, DEAD_LETTERS)
        self._queue = sqs.Queue(
            self,
            "Messages",
            visibility_timeout=visibility_timeout,
            retention_period=self._known.retention,
            encryption=encryption,
            encryption_master_key=encryption_key,
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self._dead_letter_queue, max_receive_count=MAX_RECEIVES),
            removal_policy=removal_policy,
        )
        self._policy = _keep_policy(self._queue, removal_policy)
        _keep_policy(self._dead_letter_queue, removal_policy)

    def _seen(self, given: _Known) -> _Known:
        """What the team's queues say of themselves, or what the team says of them."""
        ours, theirs = _resource_of(self._queue), _resource_of(self._dead_letter_queue)
        options = {
            "visibility_timeout": (ours, given.visibility_timeout),
            "retention": (ours, given.retention),
            "dead_letter_retention": (theirs, given.dead_letter_retention),
            "encryption_key": (ours, self._encryption_key),
        }
        for name, (resource, value) in options.items():
            if resource is not None and value is not None:
                self._found.append(OPTION_OF_EXISTING_QUEUE.problem(name=name))
        return _Known(
            visibility_timeout=_read(ours, "visibilityTimeout", Duration.seconds(30), given.visibility_timeout),
            retention=_read(ours, "messageRetentionPeriod", Duration.days(4), given.retention),
            dead_letter_retention=_read(
                theirs, "messageRetentionPeriod", Duration.days(4), given.dead_letter_retention
            ),
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
    def is_existing(self) -> bool:
        """Whether the queues are the team's own."""
        return not self._made

    @property
    def encryption_key(self) -> kms.IKey | None:
        """The key of both queues, if they have one of the team's."""
        return self._encryption_key

    @property
    def visibility_timeout(self) -> Duration | None:
        """As it was given or found; `None` leaves it to the pipeline, or is not known."""
        return self._known.visibility_timeout

    @property
    def retention(self) -> Duration | None:
        """For how long the queue keeps a message; `None` when nobody said so of an imported one."""
        return self._known.retention

    @property
    def dead_letter_retention(self) -> Duration | None:
        """For how long the dead-letter queue keeps a message; `None` when nobody said so of an imported one."""
        return self._known.dead_letter_retention

    @property
    def max_receives(self) -> int:
        """How often the queue delivers a message before it gives it up by itself: SQS's most where it never does, and
        300 where that cannot be seen.
        """
        if self._made:
            return MAX_RECEIVES
        resource = _resource_of(self._queue)
        if resource is None:
            return IMPORTED_RECEIVES
        redrive = properties_of(resource).get("redrivePolicy")
        receives = redrive.get("maxReceiveCount") if isinstance(redrive, dict) else MAX_RECEIVES
        return int(receives) if isinstance(receives, int | float) else IMPORTED_RECEIVES

    @property
    def cfn_policy(self) -> sqs.CfnQueuePolicy | None:
        """The queue's policy, which has to be there before S3 is told to send; an imported queue's is not here."""
        holder = self._policy or self._queue.node.try_find_child("Policy")
        policy = holder.node.default_child if holder else None
        return policy if isinstance(policy, sqs.CfnQueuePolicy) else None

    def problems(self, max_attempts: float) -> list[Problem]:
        """Why a pipeline cannot take this queue; it reports that with everything else.

        Args:
            max_attempts: the pipeline's, since each of them takes a receive at least.

        """
        found = list(self._found)
        if (consumer := self._owner_of(self._queue)) is not None:
            path = (self if self._made else self._queue).node.path
            found.append(QUEUE_IN_USE.problem(path=path, owner=consumer))
        if not self._made:
            found += self._problems_of_theirs(max_attempts)
        return found

    def _problems_of_theirs(self, max_attempts: float) -> Iterator[Problem]:
        dead_letters = self._dead_letter_queue.node.path
        if self._queue.queue_arn == self._dead_letter_queue.queue_arn:
            yield DEAD_LETTER_QUEUE_IS_QUEUE.problem(path=dead_letters)
        elif (consumer := self._owner_of(self._dead_letter_queue)) is not None:
            yield DEAD_LETTER_QUEUE_IN_USE.problem(path=dead_letters, owner=consumer)
        for queue in (self._queue, self._dead_letter_queue):
            if queue.fifo:
                yield FIFO_QUEUE.problem(path=queue.node.path)
        resource = _resource_of(self._queue)
        properties = properties_of(resource) if resource is not None else {}
        size = properties.get("maximumMessageSize")
        if isinstance(size, int) and size < LEAST_MESSAGE_BYTES:
            yield QUEUE_MESSAGE_SIZE.problem(path=self._queue.node.path, size=size, least=LEAST_MESSAGE_BYTES)
        if properties.get("kmsMasterKeyId") == KEY_OF_SQS:
            yield QUEUE_AWS_MANAGED_KEY.problem(path=self._queue.node.path, key=KEY_OF_SQS)
        redrive = properties.get("redrivePolicy")
        receives = redrive.get("maxReceiveCount") if isinstance(redrive, dict) else None
        if isinstance(receives, int) and receives < 2 * max_attempts:
            yield QUEUE_MAX_RECEIVES.problem(
                path=self._queue.node.path, receives=receives, attempts=max_attempts, least=2 * max_attempts
            )

    def attach_to(self, pipeline: Construct, visibility: int) -> None:
        """Belong to a pipeline, which calls this itself.

        Args:
            pipeline: the one and only.
            visibility: seconds for which a received message is hidden, unless the team said how long.

        Raises:
            TypeError: The queue's construct has no queue in it, because somebody took it out.

        """
        queues = [self._identity(queue) for queue in (self._queue, self._dead_letter_queue)]
        node = pipeline.node
        node.root.node.add_metadata(QUEUE_OWNERS, [node.path, *queues])
        if self._known.visibility_timeout is not None:
            return
        if not self._made:
            warn(self, QUEUE_VISIBILITY_UNKNOWN, path=self._queue.node.path, least=span(visibility))
            return
        resource = self._queue.node.default_child
        if not isinstance(resource, sqs.CfnQueue):
            raise TypeError(f"{self._queue.node.path} has no CloudFormation resource of a queue")
        resource.visibility_timeout = visibility

    def _owner_of(self, queue: sqs.IQueue) -> str | None:
        """The pipeline of the app that has this very queue, whichever `IntakeQueue` it came in, or was imported by."""
        wanted = self._identity(queue)
        entries = (entry.data for entry in self.node.root.node.metadata if entry.type == QUEUE_OWNERS)
        return next((str(pipeline) for pipeline, *queues in entries if wanted in queues), None)

    def _identity(self, queue: sqs.IQueue) -> str:
        return arn_identity(self, queue.queue_arn, owned=self._made)

    def allow_service(
        self,
        service: str,
        conditions: dict[str, dict[str, str]],
        *,
        key_conditions: dict[str, dict[str, str]],
        dead_letters: bool = False,
    ) -> list[Missing]:
        """Let an AWS service send here, and use the key where there is one; the pipeline calls this itself.

        Returns the statements that policies lack which were imported, so that CDK cannot add them.

        Args:
            service: its principal, such as `s3.amazonaws.com`.
            conditions: of the queue's statement, as IAM writes them.
            key_conditions: of the key's.
            dead_letters: whether it sends to the dead-letter queue as well; it does not when omitted.

        """
        principal = iam.ServicePrincipal(service)
        missing = []
        for queue in (self._queue, self._dead_letter_queue) if dead_letters else (self._queue,):
            statement = iam.PolicyStatement(
                actions=["sqs:SendMessage"], principals=[principal], resources=[queue.queue_arn], conditions=conditions
            )
            if not queue.add_to_resource_policy(statement).statement_added:
                missing.append(Missing(queue.node.path, "queue", statement))
        if self._encryption_key is not None:
            statement = iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                principals=[principal],
                resources=["*"],
                conditions=key_conditions,
            )
            if not self._encryption_key.add_to_resource_policy(statement).statement_added:
                missing.append(Missing(self._encryption_key.node.path, "key", statement))
        return missing


def _keep_policy(queue: sqs.Queue, removal_policy: RemovalPolicy) -> Resource:
    """A queue's policy, with the queue's removal policy: without it a kept queue takes no event of a kept bucket."""
    policy = queue.node.find_child("Policy")
    if not isinstance(policy, Resource):
        raise TypeError(f"{queue.node.path} has no policy: it was made with enforce_ssl")
    policy.apply_removal_policy(removal_policy)
    return policy


def _resource_of(queue: sqs.IQueue) -> sqs.CfnQueue | None:
    """The resource behind a queue of this app; `None` for an imported one."""
    resource = queue.node.default_child
    return resource if isinstance(resource, sqs.CfnQueue) and Resource.is_owned_resource(queue) else None


def _read(resource: sqs.CfnQueue | None, name: str, default: Duration, said: Duration | None) -> Duration | None:
    """A time of a queue of this app, which SQS sets when the template does not; of an imported one, what was said."""
    if resource is None:
        return said
    seconds = properties_of(resource).get(name)
    if seconds is None:
        return default
    return Duration.seconds(seconds if isinstance(seconds, int | float) else Token.as_number(seconds))
