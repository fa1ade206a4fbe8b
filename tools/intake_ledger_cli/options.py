"""The options that all commands have: which pipeline is meant, and in which form the answer is wanted."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from intake_ledger_cli import tables
from intake_ledger_cli.aws import Aws
from intake_ledger_cli.deployed import DeployedPipeline, find_pipeline
from intake_ledger_cli.json_output import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a command, as far as all of them are alike."""

    stack: Annotated[str, typer.Option(help="The CloudFormation stack that the pipeline is in.", show_default=False)]
    pipeline: Annotated[
        str | None,
        typer.Option(help="Its name, or its construct's id, where the stack has several.", show_default=False),
    ] = None
    region: Annotated[str | None, typer.Option(help="As for every AWS tool.", show_default=False)] = None
    profile: Annotated[str | None, typer.Option(help="As for every AWS tool.", show_default=False)] = None
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", show_default=False)] = False

    def open(self) -> tuple[Aws, DeployedPipeline]:
        """AWS as the caller is known there, and the pipeline.

        Raises:
            CliError: There is no such pipeline, or it is not clear which is meant.

        """
        aws = Aws(region=self.region, profile=self.profile)
        return aws, find_pipeline(aws, self.stack, self.pipeline)

    def output(self, document: JsonObject, shown: RenderableType) -> None:
        """Answer: with the document where a program asks."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
        else:
            tables.console().print(shown)


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer has to see it: with the fields of its first parameter, the call, as options of its own."""
    shared = signature(Call).parameters
    _, *own = signature(command).parameters.values()
    positional = [one for one in own if one.kind is not Parameter.KEYWORD_ONLY]

    @wraps(command)
    def called(**given: Any) -> None:
        command(Call(**{name: given.pop(name) for name in shared}), **given)

    called.__signature__ = Signature([*positional, *shared.values(), *own[len(positional) :]])  # type: ignore[attr-defined]
    return called
