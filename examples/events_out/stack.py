"""The stack: a pipeline, its outcomes on a bus, and two consumers of them. `python -m examples.events_out.stack`."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_intake_ledger import IntakePipeline, MessageIntake, MessageSource, OutcomeEvents, Processor

STACK = "EventsOut"
PROCESSOR = Path(__file__).parent / "processor"
DESTROY = cdk.RemovalPolicy.DESTROY


class EventsOutStack(cdk.Stack):
    """Invoices are checked. Each outcome is noted by an intake of messages, and a commit starts a workflow."""

    def __init__(self, scope: Construct, id: str = STACK) -> None:
        super().__init__(scope, id)
        bus = events.EventBus(self, "Outcomes")
        invoices = IntakePipeline(
            self,
            "Invoices",
            processor=Processor.from_asset(PROCESSOR, entrypoint="invoices:check"),
            removal_policy=DESTROY,
        )
        OutcomeEvents(self, "Events", intakes=[invoices], event_bus=bus)
        notes = dynamodb.Table(
            self,
            "Notes",
            partition_key=dynamodb.Attribute(name="invoice", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=DESTROY,
        )
        # An event may come twice. Its ID is the identity, so that each takes effect once.
        noting = MessageIntake(
            self,
            "Noting",
            source=MessageSource.event_bridge(events.EventPattern(source=["intake-ledger"]), event_bus=bus),
            key="detail.key",
            identity="detail.id",
            processor=Processor.from_asset(
                PROCESSOR, entrypoint="invoices:note", environment={"NOTES_TABLE": notes.table_name}
            ),
            removal_policy=DESTROY,
        )
        notes.grant(noting, "dynamodb:PutItem")
        workflow = sfn.StateMachine(
            self, "Workflow", definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(self, "BookIt"))
        )
        events.Rule(
            self,
            "Committed",
            event_bus=bus,
            event_pattern=events.EventPattern(source=["intake-ledger"], detail_type=["Intake Committed"]),
            targets=[targets.SfnStateMachine(workflow)],
        )
        for name, value in {
            "Bucket": invoices.bucket.bucket_name,
            "Pipeline": invoices.name,
            "Notes": notes.table_name,
            "Workflow": workflow.state_machine_arn,
            "Bus": bus.event_bus_name,
            "Noting": noting.function.function_name,
        }.items():
            cdk.CfnOutput(self, f"Out{name}", value=value)


if __name__ == "__main__":
    app = cdk.App()
    EventsOutStack(app)
    app.synth()
