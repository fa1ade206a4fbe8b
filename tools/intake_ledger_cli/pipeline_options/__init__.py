"""What the command reads of an option of a pipeline, one module for each option with the name of its setting."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline


@dataclass(frozen=True, slots=True)
class StatusPart:
    """The part of `status` that belongs to an option."""

    name: str
    """Its name in the document."""
    read: Callable[[Aws, DeployedPipeline, int], Any]
    """Read it at a time in epoch milliseconds. None: the pipeline does not have the option."""
    brief: tuple[str, Callable[[Any], object]] | None = None
    """Name and value in the line for a log. None: the line does not have it."""
