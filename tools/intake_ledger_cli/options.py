"""The options that all commands share: the pipeline, the AWS account and the output format."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

from rich.console import Group, RenderableType

from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger_cli.app import now_ms, option
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline, find_pipeline
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.kinds import check_kind
from intake_ledger_cli.show.console import show
from intake_ledger_cli.show.json_output import document, versioned
from intake_ledger_cli.show.render import view

_CODE = re.compile("[a-z0-9]+(_[a-z0-9]+)+")
"""Texts that look like a reason code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The shared options of one call."""

    stack: Annotated[str, option(help="CloudFormation stack of the pipeline.", envvar="INTAKE_LEDGER_STACK")] = ""
    pipeline: Annotated[
        str | None,
        option(
            help="Name of the pipeline or its construct's ID, if the stack has several.",
            envvar="INTAKE_LEDGER_PIPELINE",
        ),
    ] = None
    region: Annotated[str | None, option(help="AWS Region, as for the AWS CLI.")] = None
    profile: Annotated[str | None, option(help="AWS profile, as for the AWS CLI.")] = None
    as_json: Annotated[bool, option("--json", help="Print JSON.")] = False

    def open(self, command: str = "") -> tuple[Aws, DeployedPipeline]:
        """Create the AWS clients and find the pipeline.

        Args:
            command: the command, if some kinds of pipelines have no use for it.

        Raises:
            CliError: The pipeline does not exist, or several pipelines match.
            UsageError: The stack is not named, or the pipeline's kind has no use for the command.

        """
        if not self.stack:
            raise UsageError("name the stack: --stack, or INTAKE_LEDGER_STACK. `intake-ledger status` lists all stacks")
        aws = Aws(region=self.region, profile=self.profile)
        deployed = find_pipeline(aws, self.stack, self.pipeline)
        check_kind(deployed, command)
        return aws, deployed

    def output(self, result: Any, shown: RenderableType | None = None) -> None:
        """Print the document of a result, as JSON or for people. `shown` replaces the usual view."""
        if self.as_json:
            sys.stdout.write(json.dumps(versioned(result), indent=2) + "\n")
        else:
            show(Group(*view(type(result).__name__, document(result), now_ms())) if shown is None else shown)


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command, so that typer sees them in its signature."""
    shared = signature(Call).parameters
    _, *own = signature(command).parameters.values()
    positional = [one for one in own if one.kind is not Parameter.KEYWORD_ONLY]

    @wraps(command)
    def called(**given: Any) -> None:
        command(Call(**{name: given.pop(name) for name in shared}), **given)

    called.__signature__ = Signature([*positional, *shared.values(), *own[len(positional) :]])  # type: ignore[attr-defined]
    return called


def check_reason(reason: str | None) -> None:
    """Refuse a reason that matches nothing, if it looks like a misspelled code.

    Raises:
        UsageError: It looks like a code. The message lists all codes.

    """
    if reason is None or reason in ReasonCode:
        return
    if _CODE.fullmatch(reason) or get_close_matches(reason, list(ReasonCode)):
        codes = ", ".join(sorted(ReasonCode))
        raise UsageError(f"--reason {reason} matches nothing and is not a reason code; the codes are {codes}")
