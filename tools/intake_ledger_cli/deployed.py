"""Finds a deployed pipeline by the name of its stack, from what its functions were told."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger_cli.errors import CliError, denied_action

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_lambda import LambdaClient

    from intake_ledger_cli.aws import Aws

_FUNCTION, _ALARM, _STACK = "AWS::Lambda::Function", "AWS::CloudWatch::Alarm", "AWS::CloudFormation::Stack"
_MACHINE = "AWS::StepFunctions::StateMachine"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedPipeline:
    """One pipeline as it is deployed. Only what is needed here is read, so that older deployments are understood."""

    name: str
    bucket: str
    bucket_owner: str | None
    table: str
    queue_url: str
    dead_letter_url: str
    ordering: Ordering
    deletes: bool
    retention_seconds: int
    clock_skew_seconds: int = 0
    """By how much this machine's clock may differ from AWS's."""
    keeps_rows: bool = False
    skips_existing: bool = False
    """As in `intake_ledger.protocol.settings.Settings`."""
    consumer_function: str
    audit_function: str | None
    """None where the audit was taken out."""
    filters: tuple[KeyFilter, ...]
    alarms: tuple[str, ...]
    """All alarms of the stack."""
    machines: tuple[str, ...]
    """All state machines of the stack, by ARN: one of them may run the audit in parts."""
    reports: str | None
    """Where the audit's reports go: `s3://`, bucket, prefix and the pipeline's name; None where none are wanted."""
    others: tuple[str, ...] = ()
    """The names of the stack's other pipelines."""

    def wants(self, key: str) -> bool:
        """Whether the key passes the pipeline's filters."""
        return not self.filters or any(one.matches(key) for one in self.filters)


def find_pipeline(aws: "Aws", stack: str, pipeline: str | None = None) -> DeployedPipeline:
    """The stack's pipeline. Where there are several, `pipeline` is its name or the end of it, the construct's id.

    Raises:
        CliError: There is no such stack or pipeline, or it is not clear which is meant.

    """
    resources = list(_resources(aws.cloudformation, stack, aws.region))
    names = [name for type_, name in resources if type_ == _FUNCTION]
    environments, denied = _environments(aws.functions, names)
    consumers = {
        told["INTAKE_PIPELINE_NAME"]: (function, told)
        for function, told in environments.items()
        if "INTAKE_PIPELINE_NAME" in told and "INTAKE_DLQ_URL" in told
    }
    if not consumers:
        if denied:
            raise denied[0]
        raise CliError(f"the stack {stack} has no intake pipeline among its {len(names)} functions: name another")
    name = _choose(stack, sorted(consumers), pipeline)
    audits = {
        told["INTAKE_PIPELINE_NAME"]: (function, told)
        for function, told in environments.items()
        if "INTAKE_PIPELINE_NAME" in told and "INTAKE_SETTLE_SECONDS" in told
    }
    function, told = consumers[name]
    audit_function, audit_told = audits.get(name, (None, {}))
    return DeployedPipeline(
        name=name,
        bucket=told["INTAKE_BUCKET_NAME"],
        bucket_owner=told.get("INTAKE_BUCKET_OWNER"),
        table=told["INTAKE_TABLE_NAME"],
        queue_url=told["INTAKE_QUEUE_URL"],
        dead_letter_url=told["INTAKE_DLQ_URL"],
        ordering=Ordering(told["INTAKE_ORDERING"]),
        deletes=told["INTAKE_DELETES"] == "true",
        retention_seconds=int(told["INTAKE_RETENTION_SECONDS"]),
        clock_skew_seconds=int(told.get("INTAKE_CLOCK_SKEW_SECONDS", "0")),
        keeps_rows=told.get("INTAKE_KEEP_ROWS") == "true",
        skips_existing=told.get("INTAKE_SKIP_EXISTING") == "true",
        consumer_function=function,
        audit_function=audit_function,
        filters=tuple(KeyFilter(**one) for one in json.loads(told.get("INTAKE_KEY_FILTERS", "[]"))),
        alarms=tuple(name for type_, name in resources if type_ == _ALARM),
        machines=tuple(name for type_, name in resources if type_ == _MACHINE),
        reports=f"s3://{audit_told['INTAKE_REPORT_BUCKET']}/{audit_told.get('INTAKE_REPORT_PREFIX', '')}{name}/"
        if audit_told.get("INTAKE_REPORT_BUCKET")
        else None,
        others=tuple(sorted(consumers.keys() - {name})),
    )


def _choose(stack: str, names: list[str], wanted: str | None) -> str:
    """The pipeline that is meant."""
    listed = ", ".join(names)
    if wanted is None:
        if len(names) > 1:
            raise CliError(f"the stack {stack} has several pipelines, name one with --pipeline: {listed}")
        return names[0]
    # A name is the construct's path and a hash of it.
    end = re.compile(rf"(.*-)?{re.escape(wanted)}(-[0-9A-F]{{8}})?")
    found = [name for name in names if name == wanted] or [name for name in names if end.fullmatch(name)]
    if not found:
        raise CliError(f"the stack {stack} has no pipeline {wanted!r}, it has: {listed}")
    if len(found) > 1:
        raise CliError(f"--pipeline {wanted} may be each of {', '.join(found)}: write the whole name")
    return found[0]


def _resources(client: "CloudFormationClient", stack: str, region: str) -> Iterator[tuple[str, str]]:
    """Type and physical id of all that is in the stack, and in those nested in it."""
    try:
        # DescribeStackResources leaves out what comes after the first hundred.
        for page in client.get_paginator("list_stack_resources").paginate(StackName=stack):
            for one in page["StackResourceSummaries"]:
                name = one.get("PhysicalResourceId")
                if not name or one["ResourceStatus"] == "DELETE_COMPLETE":
                    continue
                if one["ResourceType"] == _STACK:
                    yield from _resources(client, name, region)
                else:
                    yield one["ResourceType"], name
    except ClientError as error:
        said = error.response["Error"]
        if said.get("Code") == "ValidationError" and "does not exist" in said.get("Message", ""):
            where = "--region, --profile, and the name"
            raise CliError(f"there is no stack {stack} in {region} with these credentials: see to {where}") from None
        raise


def _environments(client: "LambdaClient", names: list[str]) -> tuple[dict[str, Mapping[str, str]], list[Exception]]:
    """What each function was told, and the refusals: a person need not be allowed to see all functions of the stack."""
    told: dict[str, Mapping[str, str]] = {}
    denied: list[Exception] = []
    for name in names:
        try:
            told[name] = (
                client.get_function_configuration(FunctionName=name).get("Environment", {}).get("Variables", {})
            )
        except ClientError as error:
            if denied_action(error) is None:
                raise
            denied.append(error)
    return told, denied
