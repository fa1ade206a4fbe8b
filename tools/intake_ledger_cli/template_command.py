"""The command that writes a CloudFormation template of a pipeline. Only this command starts the CDK."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intake_ledger.protocol import Ordering
from intake_ledger_cli.app import app
from intake_ledger_cli.console import console, escape
from intake_ledger_cli.errors import CliError, UsageError

if TYPE_CHECKING:
    from cdk_intake_ledger.template import TemplateFiles

_CDK = ("aws_cdk", "cdk_intake_ledger", "constructs", "jsii")
_FUNCTION_ARN = re.compile(r"arn:[a-z-]+:lambda:[a-z0-9-]+:\d{12}:function:[\w-]+(:[\w$-]+)?", re.ASCII)
_CODE_BUCKET, _ROLE, _ARN = "CODE_BUCKET", "PROCESSOR_ROLE_NAME", "PROCESSOR_ARN"
"""Stand for values that the command does not know, in the commands that it prints."""


@app.command("template")
def template_command(
    *,
    processor_arn: Annotated[
        str | None,
        typer.Option(help="ARN of the function that processes one object. It may be given at deployment instead."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Process keys with this prefix only.", show_default=False)] = "",
    suffix: Annotated[str, typer.Option(help="Process keys with this suffix only.", show_default=False)] = "",
    name: Annotated[str, typer.Option(help="Name of the pipeline, and beginning of all logical IDs.")] = "Intake",
    ordering: Annotated[
        Ordering, typer.Option(help="LATEST skips versions that a newer one has overtaken.", case_sensitive=False)
    ] = Ordering.LATEST,
    deletes: Annotated[
        bool, typer.Option("--deletes", help="Call the processor for removed objects too.", show_default=False)
    ] = False,
    processing_timeout: Annotated[
        int, typer.Option(help="Seconds for one object, at least 10 more than the timeout of the function.")
    ] = 60,
    max_attempts: Annotated[int, typer.Option(help="Attempts before a change is rejected.")] = 12,
    retention_days: Annotated[int, typer.Option(help="Days for which the ledger keeps a settled row.")] = 35,
    bucket_name: Annotated[
        str | None, typer.Option(help="Name of the new bucket. Without it, CloudFormation chooses one.")
    ] = None,
    existing_bucket: Annotated[
        str | None, typer.Option(help="Use this bucket of the account and region instead of a new one.")
    ] = None,
    event_bridge: Annotated[
        bool,
        typer.Option("--event-bridge", help="Deliver events by EventBridge instead of S3 notifications."),
    ] = False,
    key_arn: Annotated[str | None, typer.Option(help="ARN of the KMS key of bucket, queues, table and logs.")] = None,
    code_bucket: Annotated[
        str, typer.Option(help="Bucket for the runtime's archive, for the printed commands.", show_default=False)
    ] = _CODE_BUCKET,
    to: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("intake"),
) -> None:
    """Write a CloudFormation template of a pipeline and the runtime's archive, and print the commands that deploy them.

    The template is for teams that have no CDK app in Python. The processor is an existing Lambda function.
    """
    if bucket_name and existing_bucket:
        raise UsageError(
            "--bucket-name is for a new bucket, and --existing-bucket for an existing one: use one of them"
        )
    if processor_arn is not None and not _FUNCTION_ARN.fullmatch(processor_arn):
        raise UsageError(
            f"--processor-arn {processor_arn} is not the ARN of a Lambda function, version or alias: "
            "arn:aws:lambda:REGION:ACCOUNT:function:NAME"
        )
    options = {
        "name": name,
        "prefix": prefix,
        "suffix": suffix,
        "ordering": ordering,
        "deletes": deletes,
        "processing_timeout": processing_timeout,
        "max_attempts": max_attempts,
        "retention_days": retention_days,
        "bucket_name": bucket_name,
        "existing_bucket": existing_bucket,
        "event_bridge": event_bridge,
        "key_arn": key_arn,
        "processor_arn": processor_arn,
    }
    with console(stderr=True).status("the CDK is starting"):
        files = _write(options, to)
    for warning in files.warnings:
        console(stderr=True).print(escape(f"warning: {warning}"))
    for line in _next_steps(files, name, code_bucket, processor_arn or _ARN):
        sys.stdout.write(f"{line}\n")


def _write(options: dict[str, Any], folder: Path) -> "TemplateFiles":
    """Write the files, with the CDK.

    Raises:
        CliError: The CDK or Node.js is not installed.
        UsageError: A pipeline with these options cannot work.

    """
    node = os.environ.get("JSII_NODE", "node")
    if shutil.which(node) is None:
        raise CliError(f"intake-ledger template needs Node.js 20 or later, and there is no {node} on the PATH")
    try:
        from cdk_intake_ledger import IntakeConfigurationError  # noqa: PLC0415 - see the module
        from cdk_intake_ledger.template import TemplateOptions, write_template  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _CDK:
            raise
        raise CliError(
            f"intake-ledger template needs {missing.name}, which is not installed: "
            "pip install 'cdk-intake-ledger[cli]' without --no-deps"
        ) from None
    try:
        return write_template(TemplateOptions(**options), folder)
    except IntakeConfigurationError as error:
        raise UsageError(f"the pipeline cannot work: {'; '.join(error.problems)}") from None


def _next_steps(files: "TemplateFiles", name: str, code_bucket: str, arn: str) -> Iterator[str]:
    """The commands that deploy the template and look at the pipeline, one for each line."""
    yield shlex.join(("aws", "s3", "cp", str(files.archive), f"s3://{code_bucket}/{files.archive_key}"))
    deploy = ("aws", "cloudformation", "deploy", "--stack-name", name, "--template-file", str(files.template))
    values = {"CodeBucket": code_bucket, "ProcessorArn": arn, "ProcessorRoleName": _ROLE}
    parameters = [f"{parameter}={value}" for parameter, value in values.items()]
    yield shlex.join((*deploy, "--capabilities", "CAPABILITY_IAM", "--parameter-overrides", *parameters))
    yield shlex.join(("intake-ledger", "status", "--stack", name))
