"""The command about audits: it starts one, and shows the report of a run."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.audit.diff import NOT_JUDGED, NOT_SENT, WAITING, Line
from intake_ledger_cli.act import operations
from intake_ledger_cli.app import ExitCode, app, end_with, now_ms, option
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import Report
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read.report_page import MOST_HOURS, write_page
from intake_ledger_cli.show.console import DIM, GOOD, WARNING, console, escape, many
from intake_ledger_cli.show.formatting import duration, relative_time
from intake_ledger_cli.show.render import fields

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_stepfunctions import SFNClient

LOOK_SECONDS = 3.0
"""Seconds between two requests for the state of an execution."""


@app.command()
@with_shared_options
def audit(
    call: Call,
    *,
    resend: Annotated[bool, option("--resend", help="Send what is missing, as the schedule does.")] = False,
    last: Annotated[bool, option("--last", help="Show the last report instead.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page with state, reasons, charts and the last audits to this file instead."),
    ] = None,
    hours: Annotated[int, typer.Option(help="Length of the page's charts.", min=1, max=MOST_HOURS)] = 24,
    exit_code: ExitCode = False,
) -> None:
    """Compare the bucket with the ledger now. With --resend, send each key that differs. It may take minutes."""
    if resend and (last or html is not None):
        raise UsageError("--resend runs the audit: omit --last and --html")
    if html is not None:
        end_with(write_page(call, html, hours), exit_code)
        return
    aws, deployed = call.open()
    if last:
        found = _last_report(aws.dynamodb, deployed)
    else:
        running = operations.acting(aws, deployed, "audit") if resend else nullcontext()
        with console(stderr=True).status("the audit is running"), running as act:
            found = _run(aws, deployed, dry_run=not resend)
            if act is not None:
                act.ends(_result_of(found))
    shown = report_table(found, _location(deployed, found), now_ms())
    looked = not (resend or last)
    if looked and any(found["counts"].values()):
        shown = Group(shown, Text("to send what differs: intake-ledger audit --resend"))
    call.output(found, shown)
    end_with(_has_findings(found), exit_code or looked)


def _run(aws: Aws, deployed: DeployedPipeline, *, dry_run: bool) -> Report:
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
        content = _execute(aws.machines, machine, payload)
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


def _execute(client: "SFNClient", machine: str, payload: str) -> Report:
    """Start an execution and wait for its end. The execution continues if this process stops."""
    execution = client.start_execution(stateMachineArn=machine, input=payload)["executionArn"]
    while (state := client.describe_execution(executionArn=execution))["status"] == "RUNNING":
        time.sleep(LOOK_SECONDS)
    if state["status"] != "SUCCEEDED":
        why = state.get("cause") or state.get("error") or "no cause"
        raise CliError(f"the audit {state['status'].lower()}: {why}; see the execution {execution}")
    content: Report = json.loads(state["output"])
    return content


def _location(deployed: DeployedPipeline, report: Report) -> str | None:
    """Return the S3 URI of the full report, or None if the pipeline keeps no reports."""
    if deployed.reports is None or report["dryRun"]:
        return None
    day = datetime.fromtimestamp(report["startedAt"] / 1000, UTC).date().isoformat()
    return f"{deployed.reports}{day}/{report['runId']}.json"


def _result_of(report: Report) -> str:
    """Return the result of a run for the record of the operation."""
    text = f"{many(sum(report['counts'].values()), 'findings')}, {many(len(report['delivery']), 'delivery problems')}"
    return text if report["complete"] else f"{text}; not complete"


def _has_findings(report: Report) -> bool:
    """Return True if a person should look at the report."""
    return any(report["counts"].values()) or bool(report["delivery"]) or not report["complete"]


def _last_report(client: "DynamoDBClient", deployed: DeployedPipeline) -> Report:
    """Return the report of the last successful run.

    Raises:
        CliError: There is none yet.

    """
    found = reading.last_report(reading.read_item(client, deployed, reading.audit_key(deployed)))
    if found is None:
        raise CliError(f"no audit of {deployed.name} has written a report yet: run `intake-ledger audit --resend`")
    return found


def report_table(found: Report, in_full: str | None, now: int) -> RenderableType:
    """The report for people. One of an earlier release lacks later lines."""
    counts, lines_of = found["counts"], found.get("lines", {})
    lines: dict[str, Any] = {"startedAt": found["startedAt"], "listed": f"{found['listed']:,}"}
    if lines_of:
        dismissed = lines_of.get(Line.DISMISSED)
        lines |= {
            "Agree": f"{lines_of[Line.AGREES]:,}",
            "Resubmitted": f"{lines_of[Line.RESUBMITTED]:,}",
            "Found only": _group(lines_of, NOT_SENT),
            "Rejected": f"{lines_of[Line.REJECTED]:,}",
            "Dismissed": f"{dismissed:,}" if dismissed else "",
            "Waiting": _group(lines_of, WAITING),
            "Not judged": _group(lines_of, NOT_JUDGED),
        }
    if any((unlisted := found.get("unlisted", {})).values()):
        lines["notListed"] = f"rows: {_group(unlisted, tuple(Line))}"
    if len(passes := found.get("passes", ())) > 1:
        spans = [(one, duration(one["until"] - one["from"]), relative_time(one["from"], now)) for one in passes]
        lines["parts"] = [f"{one['listed']:,} listed within {span}, {begun}" for one, span, begun in spans]
    lines |= {"found": counts, "sent": found["resubmitted"]}
    lines["removedUnprocessed"] = found.get("rows", {}).get("removedUnprocessed")
    lines |= {name: found.get(name) for name in ("laterFormat", "stopped", "held", "delivery", "unfinished")}
    parts = [Text(escape(found["summary"]), style=WARNING if _has_findings(found) else GOOD)]
    shown = fields("audit", lines | {"fullReport": in_full}, now)
    findings = [Text(escape(f"{one['why']:<10} {one['key']}")) for one in found["findings"]]
    more = sum(counts.values()) - len(found["findings"])
    return Group(*parts, shown, *findings, *([Text(f"and {more:,} more", style=DIM)] if more > 0 else []))


def _group(counted: Mapping[str, int], group: Sequence[Line]) -> str:
    """Format a sum with its lines: "3: 2 with a worker, 1 younger than the settle time"."""
    # A report of an earlier release lacks later lines.
    each = [f"{counted[line]:,} {line.text}" for line in group if counted.get(line)]
    return ": ".join(filter(None, (f"{sum(counted.get(line, 0) for line in group):,}", ", ".join(each))))
