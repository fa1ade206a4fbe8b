"""The kinds of pipelines, and the commands that a kind has no use for, each with the way out."""

from enum import StrEnum
from typing import TYPE_CHECKING

from intake_ledger_cli.errors import UsageError

if TYPE_CHECKING:
    from intake_ledger_cli.deployed import DeployedPipeline


class PipelineKind(StrEnum):
    """The kind of a pipeline."""

    OBJECTS = "a pipeline of objects"
    MACHINE = "a pipeline with a state machine"
    WORKERS = "a pipeline with workers outside of Lambda"
    MESSAGES = "an intake of messages"
    SETS = "sets of files"


RUNNING = "list --running"
_NOT_RUNNING = "it has no executions; see `list` and `list --stuck`"
_SERVICE = "with the service that runs them: suspend its scaling, and set its desired count"
REFUSED: dict[str, dict[PipelineKind, str]] = {
    RUNNING: {kind: _NOT_RUNNING for kind in PipelineKind if kind is not PipelineKind.MACHINE},
    "wait": {
        PipelineKind.MESSAGES: "no listing has its messages; see `status`, and `list` for those that failed",
    },
    "reprocess": {
        PipelineKind.MESSAGES: "no bucket keeps its messages; send the message again, or use `redrive` for rejected "
        "messages",
    },
    "dismiss": {
        PipelineKind.MESSAGES: "delete its dead-letter message in SQS, or use `redrive`",
        PipelineKind.SETS: "dismiss its parts, with --pipeline and the name of the pipeline of the parts",
    },
    "adopt": {
        PipelineKind.MESSAGES: "deploy it with its former name: `MessageIntake(name=...)`",
        PipelineKind.SETS: "deploy them with their former name: `FileSets(name=...)`",
    },
    "release": {
        PipelineKind.MACHINE: "stop the execution that `inspect` names in Step Functions, then use `retry-now`",
    },
    "pause": {PipelineKind.WORKERS: f"the command stops functions only; stop the workers {_SERVICE} to 0"},
    "resume": {PipelineKind.WORKERS: f"the command would start the function too; start the workers {_SERVICE}"},
}
"""For each command and kind: why it is refused, and the way out."""


def kind_of(deployed: "DeployedPipeline") -> PipelineKind:
    """The kind of a deployed pipeline."""
    if deployed.message_source is not None:
        return PipelineKind.MESSAGES
    if deployed.set_variables is not None:
        return PipelineKind.SETS
    if deployed.state_machine is not None:
        return PipelineKind.MACHINE
    return PipelineKind.WORKERS if deployed.workers else PipelineKind.OBJECTS


def check_kind(deployed: "DeployedPipeline", command: str) -> None:
    """Refuse a command that the pipeline's kind has no use for.

    Messages and sets may have a state machine or workers too.

    Args:
        deployed: the pipeline.
        command: the command, as a key of `REFUSED`.

    Raises:
        UsageError: The kind has no use for it. The text names the kind and the way out.

    """
    if command == RUNNING and deployed.state_machine is not None:
        return
    beside = [PipelineKind.WORKERS] if deployed.workers else []
    beside += [PipelineKind.MACHINE] if deployed.state_machine is not None else []
    for kind in (kind_of(deployed), *beside):
        way_out = REFUSED.get(command, {}).get(kind)
        if way_out is not None:
            raise UsageError(f"`{command}` is not for {deployed.name}, which is {kind}: {way_out}")
