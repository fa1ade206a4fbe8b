"""How messages reach the queue of an intake: a rule of EventBridge, subscriptions of SNS, and no other consumer."""

import jsii
from aws_cdk import IAspect, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct, IValidation

from cdk_intake_ledger.messages.message_source import MessageSource
from cdk_intake_ledger.resources import IntakeQueue, allow_service, other_consumer_problems, properties_of
from cdk_intake_ledger.validation.message_rules import MESSAGE_SNS_ENVELOPE
from cdk_intake_ledger.validation.reporting import warn


def deliver_events(scope: Construct, source: MessageSource, queue: IntakeQueue) -> None:
    """Add the rule that sends events to the queue."""
    rule = events.Rule(
        scope,
        "Rule",
        description=f"Intake ledger, messages for {scope.node.path}",
        event_pattern=source.event_pattern,
        event_bus=source.event_bus,
        targets=[_QueueTarget(queue)],
    )
    account = {"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
    allow_service(
        scope,
        queue,
        "events.amazonaws.com",
        account | {"ArnEquals": {"aws:SourceArn": rule.rule_arn}},
        # With the rule's ARN, key, queue and rule would depend on each other.
        key_conditions=account,
        dead_letters=True,
    )


@jsii.implements(events.IRuleTarget)
class _QueueTarget:
    """The queue as a target, without CDK's policies: with a key, they have no condition."""

    def __init__(self, queue: IntakeQueue) -> None:
        self._queue = queue

    def bind(self, rule: object, id: str | None = None) -> events.RuleTargetConfig:  # noqa: ARG002
        # EventBridge drops an event after a day of failed attempts if the target has no dead-letter queue.
        dead_letters = events.CfnRule.DeadLetterConfigProperty(arn=self._queue.dead_letter_queue.queue_arn)
        return events.RuleTargetConfig(arn=self._queue.queue.queue_arn, dead_letter_config=dead_letters)


@jsii.implements(IAspect)
class SnsEnvelopes:
    """Warns of subscriptions of the app that send the intake messages in an envelope, however late they are added."""

    def __init__(self, intake: Construct, queue: sqs.IQueue) -> None:
        self._intake = intake
        self._queue = queue

    def visit(self, node: IConstruct) -> None:
        """Look at the whole app once, when the aspect comes to the intake."""
        if node.node.path != self._intake.node.path:
            return
        for construct in node.node.root.node.find_all():
            if not isinstance(construct, sns.CfnSubscription) or construct.endpoint != self._queue.queue_arn:
                continue
            if properties_of(construct).get("rawMessageDelivery") is not True:
                subscription, path = construct.node.path, self._queue.node.path
                warn(self._intake, MESSAGE_SNS_ENVELOPE, subscription=subscription, path=path)


@jsii.implements(IValidation)
class OneConsumer:
    """Checks at synthesis that no other function takes messages of the queue."""

    def __init__(self, queue: sqs.IQueue, own: lambda_.EventSourceMapping) -> None:
        self._queue = queue
        self._own = own

    def validate(self) -> list[str]:
        """The messages. The CDK ends the synthesis if there are any."""
        return [str(problem) for problem in other_consumer_problems(self._queue, self._own)]
