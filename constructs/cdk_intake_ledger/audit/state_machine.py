"""The state machine that runs the audit in parts: plan, list and scan, join, look at what may have been lost, sum up.

The function of the audit does each step but the join. What the steps hand on is in files, so that what goes through the
machine stays small however many parts there are, and a part that failed goes on where it was.
"""

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_intake_ledger.options import AuditScale
from cdk_intake_ledger.validation.nag_suppressions import (
    MACHINE_EXECUTIONS,
    MACHINE_LOGS,
    MACHINE_TRACING,
    suppress,
    suppress_wildcards,
)

RUN_LIMIT = Duration.days(1)
"""How long a run may take, and how long it keeps others away. An execution that somebody aborts does so too."""

JOIN_WAIT = Duration.seconds(20)
"""Between two looks at Athena's queries, which may take half an hour (Athena user guide, "Service Quotas")."""

# A function that is throttled, or dies, or meets an AWS that does not answer, is called again four times.
RETRY = [
    {"ErrorEquals": ["States.ALL"], "IntervalSeconds": 5, "BackoffRate": 2, "MaxAttempts": 4, "MaxDelaySeconds": 300}
]


class AuditMachine(Construct):
    """The state machine, around the audit's function."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        description: str,
        function: lambda_.IFunction,
        join: lambda_.IFunction,
        waits_for_join: bool,
        plan: dict[str, Any],
        scale: AuditScale,
        looks: int,
    ) -> None:
        super().__init__(scope, id)
        self._function = function
        sum_up = self._step("Sum up", {"step": "finish", "run.$": "$.run"})
        read = self._map("Read", "write", {"slice": 0, "after": ""}, scale.concurrency)
        joined = self._step("Join", {"run.$": "$.run"}, join)
        look = self._map("Look", "look", {}, looks)
        asked = self._step("Joined?", {"run.$": "$.run", "asked.$": "$.asked"}, join) if waits_for_join else None
        # Whatever happens, the run is summed up and given back, and says what is missing.
        for state in (read, joined, look, asked):
            if state is not None:
                state.add_catch(sum_up, errors=["States.ALL"], result_path=sfn.JsonPath.DISCARD)
        read.next(joined)
        if asked is None:
            joined.next(look)
        else:
            wait = sfn.Wait(self, "Wait for the join", time=sfn.WaitTime.duration(JOIN_WAIT)).next(asked)
            done = sfn.Choice(self, "Join: done?").when(sfn.Condition.boolean_equals("$.done", value=True), look)
            done.otherwise(wait)
            joined.next(done)
            asked.next(done)
        look.next(sum_up)
        work = (
            sfn.Choice(self, "Anything to do?")
            .when(sfn.Condition.is_present("$.skipped"), sfn.Succeed(self, "Nothing to do"))
            .otherwise(read)
        )
        # The execution's own name makes a planner that is called again the same run.
        given = {"run.$": "$$.Execution.Name", "input.$": "$", "leaseSeconds": RUN_LIMIT.to_seconds()}
        begin = self._step("Plan", {"step": "plan", **given, **plan, "looks": looks})
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(begin.next(work)),
            timeout=RUN_LIMIT,
        )
        role = self.machine.role.node.default_child
        if isinstance(role, iam.CfnRole):
            role.description = description
        suppress(self.machine, MACHINE_LOGS, MACHINE_TRACING)
        children = self.machine.node.find_child("DistributedMapPolicy")
        assert isinstance(children, iam.Policy)
        suppress_wildcards(children, MACHINE_EXECUTIONS)
        self.machine.add_to_role_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.function_arn, join.function_arn])
        )

    def _map(self, id: str, step: str, begin: dict[str, Any], concurrency: float) -> sfn.DistributedMap:
        """The function is called for each part, with its own last answer, until it says that the part is done."""
        done = sfn.Succeed(self, f"{id}: done", output_path=sfn.JsonPath.DISCARD)
        told = {"step.$": "$.step", "run.$": "$.run", "part.$": "$.part"}
        work = self._step(f"{id}: work", told | {f"{name}.$": f"$.{name}" for name in begin})
        again = sfn.Choice(self, f"{id}: done?").when(sfn.Condition.boolean_equals("$.done", value=True), done)
        every = sfn.DistributedMap(
            self,
            id,
            label=id,
            items_path="$.parts",
            item_selector={
                "step": step,
                "run": sfn.JsonPath.string_at("$.run"),
                "part": sfn.JsonPath.object_at("$$.Map.Item.Value"),
                **begin,
            },
            max_concurrency=concurrency,
            # What could not be done is missing in the files, and the others are worth having.
            tolerated_failure_percentage=100,
            result_path=sfn.JsonPath.DISCARD,
        )
        every.item_processor(work.next(again.otherwise(work)))
        return every

    def _step(self, id: str, arguments: dict[str, Any], function: lambda_.IFunction | None = None) -> sfn.CustomState:
        # CDK's own task for Lambda would be allowed to call every version of the function.
        return sfn.CustomState(
            self,
            id,
            state_json={
                "Type": "Task",
                "Resource": (function or self._function).function_arn,
                "Parameters": arguments,
                "Retry": RETRY,
            },
        )
