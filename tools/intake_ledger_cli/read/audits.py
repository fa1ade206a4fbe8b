"""Starts the audit and reads the report of its last run."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.show.console import many

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_stepfunctions import SFNClient

LOOK_SECONDS = 3.0
"""Seconds between two requests for the state of an execution."""

Report = dict[str, Any]
"""The JSON form of `intake_ledger.audit.report.Report`."""


def run_audit(aws: Aws, deployed: DeployedPipeline, *, dry_run: bool, sleep: Callable[[float], None]) -> Report:
    """Run the audit now and return its report. A report says if the audit did not finish in one call.

    Raises:
        CliError: The pipeline has no audit, another run holds the lease, or this run failed.

    """
    wanted = {"dryRun": True} if dry_run else {}
    if event := deployed.work.audit_event:
        return _invoke(aws.functions, deployed.consumer_function, json.dumps({event: True, **wanted}))
    if deployed.audit_function is None:
        raise CliError(f"{deployed.name} has no audit function: its audit is disabled")
    payload = json.dumps(wanted)
    machine = _machine(aws.machines, deployed)
    if machine is None:
        content = _invoke(aws.functions, deployed.audit_function, payload)
    else:
        content = _execute(aws.machines, machine, payload, sleep)
    if "skipped" in content:
        raise CliError(f"the audit did not start: {content['skipped']}; see `intake-ledger status`")
    return content


def _invoke(client: "LambdaClient", function: str, payload: str) -> Report:
    answer = client.invoke(FunctionName=function, Payload=payload.encode())
    content: Report = json.loads(answer["Payload"].read() or b"{}")
    if "FunctionError" in answer:
        reason = content.get("errorMessage") or answer["FunctionError"]
        raise CliError(f"the audit failed: {reason}; see the log of {function}")
    return content


def _machine(client: "SFNClient", deployed: DeployedPipeline) -> str | None:
    """Return the ARN of the state machine that calls this pipeline's audit function, or None."""
    for arn in deployed.machines:
        if arn == deployed.state_machine:
            continue
        if f':function:{deployed.audit_function}"' in client.describe_state_machine(stateMachineArn=arn)["definition"]:
            return arn
    return None


def _execute(client: "SFNClient", machine: str, payload: str, sleep: Callable[[float], None]) -> Report:
    """Start an execution and wait for its end. The execution continues if this process stops."""
    execution = client.start_execution(stateMachineArn=machine, input=payload)["executionArn"]
    while (state := client.describe_execution(executionArn=execution))["status"] == "RUNNING":
        sleep(LOOK_SECONDS)
    if state["status"] != "SUCCEEDED":
        why = state.get("cause") or state.get("error") or "no cause"
        raise CliError(f"the audit {state['status'].lower()}: {why}; see the execution {execution}")
    content: Report = json.loads(state["output"])
    return content


def report_location(deployed: DeployedPipeline, report: Report) -> str | None:
    """Return the S3 URI of the full report, or None if the pipeline keeps no reports."""
    if deployed.reports is None or report["dryRun"]:
        return None
    day = datetime.fromtimestamp(report["startedAt"] / 1000, UTC).date().isoformat()
    return f"{deployed.reports}{day}/{report['runId']}.json"


def result_of(report: Report) -> str:
    """Return the result of a run for the record of the operation."""
    text = f"{many(sum(report['counts'].values()), 'findings')}, {many(len(report['delivery']), 'delivery problems')}"
    return text if report["complete"] else f"{text}; not complete"


def has_findings(report: Report) -> bool:
    """Return True if a person should look at the report."""
    return any(report["counts"].values()) or bool(report["delivery"]) or not report["complete"]


def last_report(client: "DynamoDBClient", deployed: DeployedPipeline) -> Report:
    """Return the report of the last successful run.

    Raises:
        CliError: There is none yet.

    """
    found = reading.last_report(reading.read_item(client, deployed, reading.audit_key(deployed)))
    if found is None:
        raise CliError(f"no audit of {deployed.name} has written a report yet: run `intake-ledger audit --resend`")
    return found
