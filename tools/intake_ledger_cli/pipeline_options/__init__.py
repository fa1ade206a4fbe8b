"""The command's view of the options of a pipeline. Each option has a module with the name of its setting."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from intake_ledger.protocol.row import RowKey
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline


@dataclass(frozen=True, slots=True)
class StatusPart:
    """The part of `status` that belongs to an option."""

    name: str
    """Its name in the document."""
    read: Callable[[Aws, DeployedPipeline, int, Mapping[str, Any]], Any]
    """Read it at a time in epoch milliseconds, with its item. None: the pipeline does not have the option."""
    key: Callable[[str], RowKey] | None = None
    """The key of its item, by the pipeline's name. It is read in one request with others. None: it has no item."""
    brief: tuple[str, Callable[[Any], object]] | None = None
    """Name and value in the line for a log. None: the line does not have it."""
