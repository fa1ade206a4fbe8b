"""The command that writes a CloudFormation template of a pipeline. Only this command starts the CDK."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intake_ledger.protocol.row import Ordering
from intake_ledger_cli.app import app, option
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.show.console import console, escape

if TYPE_CHECKING:
    from cdk_intake_ledger.template.files import TemplateFiles

_CDK = ("aws_cdk", "cdk_intake_ledger", "constructs", "jsii")
_SILENCE = ("END_OF_LIFE", "DEPRECATED")
"""jsii prints a page about each release of Node.js that ends soon. The CDK runs on it all the same."""
_CODE_BUCKET, _ROLE, _ARN = "CODE_BUCKET", "PROCESSOR_ROLE_NAME", "PROCESSOR_ARN"
"""Stand for values that the command does not know, in the commands that it prints."""


@app.command("template")
def template_command(
    *,
    processor_arn: Annotated[
        str | None,
        typer.Option(help="ARN of the function that processes one object. It may be given at deployment instead."),
    ] = None,
    prefix: Annotated[str, option(help="Process keys with this prefix only.")] = "",
    suffix: Annotated[str, option(help="Process keys with this suffix only.")] = "",
    name: Annotated[str, typer.Option(help="Name of the pipeline, and beginning of all logical IDs.")] = "Intake",
    ordering: Annotated[
        Ordering, typer.Option(help="LATEST skips versions that a newer one has overtaken.", case_sensitive=False)
    ] = Ordering.LATEST,
    deletes: Annotated[bool, option("--deletes", help="Call the processor for removed objects too.")] = False,
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
        bool, typer.Option("--event-bridge", help="Deliver events by EventBridge instead of S3 notifications.")
    ] = False,
    key_arn: Annotated[str | None, typer.Option(help="ARN of the KMS key of bucket, queues, table and logs.")] = None,
    code_bucket: Annotated[
        str, option(help="Bucket for the runtime's archive, for the printed commands.")
    ] = _CODE_BUCKET,
    to: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("intake"),
) -> None:
    """Write a CloudFormation template of a pipeline and the runtime's archive, and print the commands that deploy them.

    The template is for teams that have no CDK app in Python. The processor is an existing Lambda function. Sets of
    files, messages, a VPC and a processor in the consumer need a CDK app in Python: docs/getting-started.md.
    """
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
    for why in _SILENCE:
        os.environ.setdefault(f"JSII_SILENCE_WARNING_{why}_NODE_VERSION", "20,22,24")
    try:
        from cdk_intake_ledger import IntakeConfigurationError  # noqa: PLC0415 - see the module
        from cdk_intake_ledger.template.files import write_template  # noqa: PLC0415
        from cdk_intake_ledger.template.options import TemplateOptions, WrongTemplateOptions  # noqa: PLC0415 - as above
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _CDK:
            raise
        raise CliError(
            f"intake-ledger template needs {missing.name}, which is not installed: "
            "pip install 'cdk-intake-ledger[cli]' without --no-deps"
        ) from None
    try:
        return write_template(TemplateOptions(**options), folder)
    except WrongTemplateOptions as error:
        raise UsageError(f"the pipeline cannot work: {'; '.join(_as_options(error.texts, options))}") from None
    except IntakeConfigurationError as error:
        raise UsageError(f"the pipeline cannot work: {'; '.join(_as_options(error.problems, options))}") from None


def _as_options(problems: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """The problems, with the names of options as they are typed."""
    names = "|".join(name for name in options if "_" in name)
    return [re.sub(rf"\b({names})\b", lambda one: f"--{one[0].replace('_', '-')}", text) for text in problems]


def _next_steps(files: "TemplateFiles", name: str, code_bucket: str, arn: str) -> Iterator[str]:
    """The commands that deploy the template and look at the pipeline, one for each line."""
    yield shlex.join(("aws", "s3", "cp", str(files.archive), f"s3://{code_bucket}/{files.archive_key}"))
    stack = name.replace("_", "-")  # a stack's name has no _
    deploy = ("aws", "cloudformation", "deploy", "--stack-name", stack, "--template-file", str(files.template))
    values = {"CodeBucket": code_bucket, "ProcessorArn": arn, "ProcessorRoleName": _ROLE}
    parameters = [f"{parameter}={value}" for parameter, value in values.items()]
    yield shlex.join((*deploy, "--capabilities", "CAPABILITY_IAM", "--parameter-overrides", *parameters))
    yield shlex.join(("intake-ledger", "status", "--stack", stack))
