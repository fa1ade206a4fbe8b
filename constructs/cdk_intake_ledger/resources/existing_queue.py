"""Reads the settings of existing queues, and finds reasons why a pipeline cannot use them."""

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration, Resource, Token
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger.checks.plan import IMPORTED_RECEIVES, MAX_RECEIVES
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.queue_rules import OPTION_OF_EXISTING_QUEUE
from cdk_intake_ledger.resources.cloudformation import properties_of


@dataclass(frozen=True, kw_only=True)
class QueueTimes:
    """Times of a queue and its dead-letter queue. None is unknown."""

    visibility_timeout: Duration | None
    retention: Duration | None
    dead_letter_retention: Duration | None


def dead_letter_queue_of(queue: sqs.IQueue | None) -> sqs.IQueue | None:
    """The dead-letter queue that a queue of this app was created with."""
    policy = queue.dead_letter_queue if isinstance(queue, sqs.Queue) else None
    return policy.queue if policy is not None else None


class ExistingQueue:
    """A queue and a dead-letter queue that were created elsewhere.

    Args:
        queue: the queue.
        dead_letter_queue: its dead-letter queue.
        times: the options. For imported queues, they state the settings.
        encryption_key: the option.

    """

    def __init__(
        self, queue: sqs.IQueue, dead_letter_queue: sqs.IQueue, times: QueueTimes, encryption_key: kms.IKey | None
    ) -> None:
        self._queue, self._dead_letter_queue = queue, dead_letter_queue
        self._options, self._encryption_key = times, encryption_key
        self._resource, self._dead_letter_resource = _resource_of(queue), _resource_of(dead_letter_queue)

    def times(self) -> QueueTimes:
        """The times of the queues: read from queues of this app, stated by the options for imported queues."""
        options = self._options
        return QueueTimes(
            visibility_timeout=_read(
                self._resource, "visibilityTimeout", Duration.seconds(30), options.visibility_timeout
            ),
            retention=_read(self._resource, "messageRetentionPeriod", Duration.days(4), options.retention),
            dead_letter_retention=_read(
                self._dead_letter_resource, "messageRetentionPeriod", Duration.days(4), options.dead_letter_retention
            ),
        )

    def option_problems(self) -> Iterator[Problem]:
        """Find options that belong to a queue of this app."""
        options = {
            "visibility_timeout": (self._resource, self._options.visibility_timeout),
            "retention": (self._resource, self._options.retention),
            "dead_letter_retention": (self._dead_letter_resource, self._options.dead_letter_retention),
            "encryption_key": (self._resource, self._encryption_key),
        }
        for name, (resource, value) in options.items():
            if resource is not None and value is not None:
                yield OPTION_OF_EXISTING_QUEUE.problem(name=name)

    def add_redrive_policy(self) -> None:
        """Let SQS give up messages of a queue of this app that has no redrive policy, as those of a new queue."""
        # The properties can change after the queue was given to `IntakeQueue`.
        if self._resource is not None and properties_of(self._resource).get("redrivePolicy") is None:
            arn = self._dead_letter_queue.queue_arn
            self._resource.redrive_policy = {"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVES}

    def max_receives(self) -> int:
        """MaxReceiveCount of the queue: SQS's maximum without a redrive policy, 300 for an imported queue."""
        if self._resource is None:
            return IMPORTED_RECEIVES
        redrive = properties_of(self._resource).get("redrivePolicy")
        receives = redrive.get("maxReceiveCount") if isinstance(redrive, dict) else MAX_RECEIVES
        return int(receives) if isinstance(receives, int | float) else IMPORTED_RECEIVES


def _resource_of(queue: sqs.IQueue) -> sqs.CfnQueue | None:
    """The resource of a queue of this app, or None for an imported queue."""
    resource = queue.node.default_child
    return resource if isinstance(resource, sqs.CfnQueue) and Resource.is_owned_resource(queue) else None


def _read(resource: sqs.CfnQueue | None, name: str, default: Duration, stated: Duration | None) -> Duration | None:
    """A time of a queue of this app, SQS's default if the template has none. For an imported queue, the stated time."""
    if resource is None:
        return stated
    seconds = properties_of(resource).get(name)
    if seconds is None:
        return default
    return Duration.seconds(seconds if isinstance(seconds, int | float) else Token.as_number(seconds))
