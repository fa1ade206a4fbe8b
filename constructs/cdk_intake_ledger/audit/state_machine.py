"""The state machine that runs the audit in parts: plan, list and scan, join, look at candidates, finish.

The audit's function has each step but the join. The steps exchange files, so that the machine's own data stays small
with any number of parts, and a failed part continues where it was.
"""

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_intake_ledger.audit.join import AuditJoin
from cdk_intake_ledger.checks.nag_suppressions import (
    INLINE_POLICIES,
    MACHINE_EXECUTIONS,
    MACHINE_LOGS,
    MACHINE_TRACING,
    suppress,
    suppress_wildcards,
)
from cdk_intake_ledger.options.audit_scale import AuditScale

RUN_LIMIT = Duration.days(1)
"""Time limit and lease of a run. An aborted execution keeps its lease until the end."""

JOIN_WAIT = Duration.seconds(20)
"""Time between two checks of Athena's queries, which may take half an hour (Athena user guide, "Service Quotas")."""

# Four retries after a throttled call, a crash or an AWS service that does not answer.
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
        join: AuditJoin,
        plan: dict[str, Any],
        scale: AuditScale,
        looks: int,
    ) -> None:
        super().__init__(scope, id)
        self._function = function
        sum_up = self._step("Sum up", {"step": "finish", "run.$": "$.run"})
        read = self._map("Read", "write", {"slice": 0, "after": ""}, scale.concurrency)
        joined = self._step("Join", {"run.$": "$.run"}, join.function)
        look = self._map("Look", "look", {}, looks)
        arguments = {"run.$": "$.run", "asked.$": "$.asked"}
        asked = self._step("Joined?", arguments, join.function) if join.athena else None
        # After any failure the last step still runs. It reports the missing parts and gives the run back.
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
        # The execution's name is the run's, so that a repeated call of the planner begins no second run.
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
        suppress(self.machine, MACHINE_LOGS, MACHINE_TRACING, INLINE_POLICIES)
        children = self.machine.node.find_child("DistributedMapPolicy")
        assert isinstance(children, iam.Policy)
        suppress_wildcards(children, MACHINE_EXECUTIONS)
        self.machine.add_to_role_policy(
            iam.PolicyStatement(
                actions=["lambda:InvokeFunction"], resources=[function.function_arn, join.function.function_arn]
            )
        )

    def _map(self, id: str, step: str, begin: dict[str, Any], concurrency: float) -> sfn.DistributedMap:
        """Call the function for each part, with its last answer, until the part is done."""
        done = sfn.Succeed(self, f"{id}: done", output_path=sfn.JsonPath.DISCARD)
        event = {"step.$": "$.step", "run.$": "$.run", "part.$": "$.part"}
        work = self._step(f"{id}: work", event | {f"{name}.$": f"$.{name}" for name in begin})
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
            # The report names the parts that failed. The other parts count.
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
