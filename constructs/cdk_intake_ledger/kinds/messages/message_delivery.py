"""How messages reach the queue of an intake: a rule of EventBridge, subscriptions of SNS, and no other consumer."""

from collections.abc import Iterator

import jsii
from aws_cdk import Resource, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from cdk_intake_ledger.audit.deployed_settings import stack_selector
from cdk_intake_ledger.checks.final_template import FinalTemplates, at_synthesis
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.message_rules import MESSAGE_SNS_ENVELOPE
from cdk_intake_ledger.delivery.queue_access import allow_rule
from cdk_intake_ledger.functions.consumer_base import ConsumerFunction
from cdk_intake_ledger.kinds.messages.message_source import MessageSource
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.cloudformation import properties_of
from cdk_intake_ledger.resources.event_sources import other_consumer_problems
from intake_ledger.messages.settings import MessageSettings
from intake_ledger.protocol.settings import variable_of

DEPLOYED = variable_of(MessageSettings, "deployed")


def deliver_events(scope: Construct, source: MessageSource, queue: IntakeQueue) -> events.Rule:
    """Add the rule that sends events to the queue."""
    rule = events.Rule(
        scope,
        "Rule",
        description=f"Intake ledger, messages for {scope.node.path}",
        event_pattern=source.event_pattern,
        event_bus=source.event_bus,
        targets=[_QueueTarget(queue)],
    )
    allow_rule(scope, queue, rule.rule_arn)
    return rule


def check_delivery(
    consumer: ConsumerFunction,
    source: MessageSource,
    queue: IntakeQueue,
    rule: events.Rule | None,
) -> None:
    """Let the function check its sources, their mappings and its rule at each tick."""
    stack = Stack.of(consumer)
    ours = stack_selector(stack)
    owners: dict[str, IConstruct | None] = {"queue": queue.queue, "stream": source.stream or source.table}
    stacks = {
        name: theirs for name, owner in owners.items() if owner is not None and (theirs := _stack_of(owner)) != ours
    }
    arns = {"queue": queue.queue.queue_arn} | ({"stream": source.stream_arn} if source.is_stream else {})
    settings = {"stack": ours, "stacks": stacks, "sources": arns, "rule": rule.rule_arn if rule else ""}
    known = {name: value for name, value in settings.items() if value}
    consumer.function.add_environment(DEPLOYED, stack.to_json_string(known))
    consumer.role.add_to_policy(
        # Lambda knows no resource for it.
        iam.PolicyStatement(sid="MappingsHaveNoResources", actions=["lambda:ListEventSourceMappings"], resources=["*"])
    )
    if rule is not None:
        consumer.role.add_to_policy(iam.PolicyStatement(actions=["events:DescribeRule"], resources=[rule.rule_arn]))


def _stack_of(owner: IConstruct) -> str:
    """The stack that makes a resource; empty for an imported one."""
    return stack_selector(Stack.of(owner)) if Resource.is_owned_resource(owner) else ""


@jsii.implements(events.IRuleTarget)
class _QueueTarget:
    """The queue as a target, without CDK's policies: with a key, they have no condition."""

    def __init__(self, queue: IntakeQueue) -> None:
        self._queue = queue

    def bind(self, rule: object, id: str | None = None) -> events.RuleTargetConfig:  # noqa: ARG002
        dead_letters = events.CfnRule.DeadLetterConfigProperty(arn=self._queue.dead_letter_queue.queue_arn)
        return events.RuleTargetConfig(arn=self._queue.queue.queue_arn, dead_letter_config=dead_letters)


def check_app(
    intake: Construct, queue: sqs.IQueue, own: lambda_.EventSourceMapping, *, warns_of_envelopes: bool
) -> None:
    """Check, when the app is complete, that no other function takes messages of the queue.

    Args:
        intake: the intake.
        queue: its queue.
        own: the mapping of its consumer.
        warns_of_envelopes: whether to warn of subscriptions that send messages in an envelope of SNS.

    """

    def check(templates: FinalTemplates) -> Iterator[Problem]:
        if warns_of_envelopes:
            _warn_of_envelopes(intake, queue, templates)
        yield from other_consumer_problems(templates, queue, own)

    at_synthesis(intake, check)


def _warn_of_envelopes(intake: Construct, queue: sqs.IQueue, templates: FinalTemplates) -> None:
    for construct in templates.constructs(sns.CfnSubscription):
        if construct.endpoint == queue.queue_arn and properties_of(construct).get("rawMessageDelivery") is not True:
            warn(intake, MESSAGE_SNS_ENVELOPE, subscription=construct.node.path, path=queue.node.path)
