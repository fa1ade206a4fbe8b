"""Events of EventBridge for the outcomes of intakes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.additions.outcome_loops import HasOutcomes, Outcomes, check_loops
from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.final_check import check_final_template
from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.nag_suppressions import (
    ALARM_ACTION,
    OUTCOME_DEAD_LETTERS,
    OUTCOME_DESTINATION,
    OUTCOME_STREAMS,
    suppress,
)
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.checks.rules.ledger_rules import (
    OUTCOME_LATE_AFTER,
    OUTCOME_NO_INTAKE,
    OUTCOME_SEVERAL_LEDGERS,
)
from cdk_intake_ledger.checks.spans import span
from cdk_intake_ledger.functions.consumer_base import MAPPING
from cdk_intake_ledger.functions.lambda_function import FunctionCode, intake_function
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME, runtime_layer
from cdk_intake_ledger.kinds.intake import Intake
from cdk_intake_ledger.kinds.messages.message_intake import MessageIntake
from cdk_intake_ledger.kinds.objects.pipeline_plan import unknown_times
from intake_ledger.contract import ALARMS, MESSAGES, OBJECTS, OUTCOME_BUS, OUTCOME_INTAKES, Source

# The code is in the layer. Lambda requires some inline code too.
CODE = "from intake_ledger.outcome_events import handler\n"
LATE_SECONDS = (300, 12 * 3_600)


@check_arguments
class OutcomeEvents(Construct, HasOutcomes):
    """Sends an event to EventBridge for each commit and each rejection of intakes that share a ledger.

    A small function reads the stream of the ledger's table, so the consumers do not change. Each outcome becomes at
    least one event while the function is at most 24 hours behind: the stream keeps no more. `intake-ledger export
    --event-bus` sends later ones again.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        intakes: Sequence[Intake],
        event_bus: events.IEventBus | None = None,
        late_after: Duration | None = None,
    ) -> None:
        """Turn on the table's stream, and create the function with its role, log group and alarm.

        Args:
            scope: the stack, or a construct in it.
            id: the construct's ID.
            intakes: pipelines, intakes of messages and sets that share a ledger. All that are in one construct.
            event_bus: gets the events; the account's default bus when omitted.
            late_after: the age of a waiting change after which the alarm reports it, 5 minutes to 12 hours; an hour
                when omitted.

        Raises:
            IntakeConfigurationError: There is no intake, they have different ledgers, another construct sends the
                outcomes of the ledger, its stream has other images, or `late_after` is out of its range. Synthesis
                also ends if an intake of messages takes the events of its own outcomes.

        """
        super().__init__(scope, id)
        late = late_after or Duration.hours(1)
        refuse(self.node.path, [*unknown_times(late_after=late)])
        least, most = LATE_SECONDS
        problems = [] if intakes else [OUTCOME_NO_INTAKE.problem()]
        if not least <= late.to_seconds() <= most:
            problems.append(OUTCOME_LATE_AFTER.problem(value=span(late.to_seconds())))
        refuse(self.node.path, problems)
        first = intakes[0]
        ledger = first._ledger  # noqa: SLF001 - a part of the intake
        others = [one for one in intakes if one.table.node.path != first.table.node.path]
        refuse(
            self.node.path,
            [OUTCOME_SEVERAL_LEDGERS.problem(first=first.node.path, other=one.node.path) for one in others],
        )
        stream, problems = ledger.open_stream(self)
        refuse(self.node.path, problems)
        assert stream is not None
        bus = event_bus or events.EventBus.from_event_bus_name(self, "Bus", "default")
        self._outcomes = Outcomes(intakes, bus)
        check_loops(self, intakes)
        kinds = {one.name: MESSAGES if isinstance(one, MessageIntake) else OBJECTS for one in intakes}
        self._function, role = intake_function(
            self,
            FunctionCode(
                code=lambda_.Code.from_inline(CODE),
                handler="index.handler",
                runtime=TESTED_RUNTIME,
                architecture=lambda_.Architecture.ARM_64,
                memory_size=256,
            ),
            networking=replace(
                first._consumer.networking,  # noqa: SLF001 - a part of the intake
                layer=runtime_layer(Stack.of(self)),
            ),
            description=f"Intake ledger, outcomes of {first.name}"[:256],
            timeout=Duration.minutes(1),
            environment={OUTCOME_INTAKES: json.dumps(kinds), OUTCOME_BUS: bus.event_bus_name},
            suppressions=(OUTCOME_DEAD_LETTERS,),
        )
        ledger.grant_stream(role, stream)
        role.add_to_policy(iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus.event_bus_arn]))
        listing = iam.PolicyStatement(
            sid="StreamsHaveNoNameBeforehand", actions=["dynamodb:ListStreams"], resources=["*"]
        )
        # A separate policy, so that the suppression of this asterisk covers no other one.
        policy = iam.Policy(role, "Streams", statements=[listing], roles=[role])
        suppress(policy, OUTCOME_STREAMS, of="[Resource::*]")
        source = lambda_.EventSourceMapping(
            self,
            "Source",
            target=self._function,
            event_source_arn=stream,
            # The mapping sees the outcomes of the time before it was there, too.
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            batch_size=100,
            report_batch_item_failures=True,
            filters=[
                lambda_.FilterCriteria.filter(
                    {"dynamodb": {"NewImage": {"status": {"S": lambda_.FilterRule.or_("PROCESSED", "REJECTED")}}}}
                )
            ],
        )
        suppress(source, OUTCOME_DESTINATION)
        wanted = {name: MAPPING[name] for name in ("FunctionResponseTypes", "Enabled")}
        expect(self, "mapping", source, wanted)
        check_final_template(self)
        [row] = [one for one in ALARMS if one.source is Source.OUTCOMES]
        assert row.period is not None, "it does not follow an interval"
        metric = self._function.metric(row.metric, statistic=row.statistic, period=Duration.seconds(row.period))
        alarm = cloudwatch.Alarm(
            self,
            "Late",
            metric=metric,
            threshold=late.to_milliseconds(),
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=row.description(first.name, "", Stack.of(self).stack_name),
        )
        suppress(alarm, ALARM_ACTION)
        self._alarms = {row.name: alarm}

    @property
    def function(self) -> lambda_.IFunction:
        """The function that sends the events."""
        return self._function

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """The alarm `OutcomeEventsLate`: the function does not keep up, or EventBridge refuses its events."""
        return self._alarms
