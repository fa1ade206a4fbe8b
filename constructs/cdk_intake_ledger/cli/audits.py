"""Runs the audit by hand, and tells how the last run went."""

import json
from typing import TYPE_CHECKING, Any

from cdk_intake_ledger.cli import reading
from cdk_intake_ledger.cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient

    from cdk_intake_ledger.cli.deployed import Deployed

Report = dict[str, Any]
"""As `intake_ledger.audit.report.Report.as_json` writes it."""


def run(client: "LambdaClient", deployed: "Deployed", *, dry_run: bool) -> Report:
    """Invoke the audit and wait for its report; one that needs longer than a function may run says so in it.

    Raises:
        CliError: The pipeline has no audit, another run is at work, or this one failed.

    """
    if deployed.audit_function is None:
        raise CliError(f"{deployed.name} has no audit function: it was taken out of the stack")
    payload = json.dumps({"dryRun": True} if dry_run else {}).encode()
    answer = client.invoke(FunctionName=deployed.audit_function, Payload=payload)
    content: Report = json.loads(answer["Payload"].read() or b"{}")
    if "FunctionError" in answer:
        said = content.get("errorMessage") or answer["FunctionError"]
        raise CliError(f"the audit failed: {said}; the log of {deployed.audit_function} has more")
    if "skipped" in content:
        raise CliError(f"not now: {content['skipped']}; see `intake-ledger status`")
    return content


def last(client: "DynamoDBClient", deployed: "Deployed") -> Report:
    """The report of the last invocation that worked.

    Raises:
        CliError: There is none yet.

    """
    found = reading.audit_item(client, deployed).last
    if found is None:
        raise CliError(f"no audit of {deployed.name} has left a report yet: `intake-ledger audit` runs one now")
    return found
