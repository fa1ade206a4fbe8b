"""The kinds of pipelines: texts and columns of each, and the commands that are not for it, each with the way out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from intake_ledger_cli.errors import UsageError

if TYPE_CHECKING:
    from intake_ledger_cli.aws.deployed import DeployedPipeline


class PipelineKind(StrEnum):
    """The kind of a pipeline."""

    OBJECTS = "a pipeline of objects"
    EXECUTIONS = "a pipeline with executions"
    WORKERS = "a pipeline with workers outside of Lambda"
    MESSAGES = "an intake of messages"
    SETS = "sets of files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kind of work as the commands show it. Each runner serves each kind."""

    kind: PipelineKind
    """The kind without executions and without workers."""
    noun: str
    """The name of several."""
    waits: str
    """Why they wait."""
    in_bucket: bool
    """S3 has them under their keys. Otherwise a key may have several, which their identities tell apart."""
    retried: str
    """When an attempt that is due begins: at once by a message of the command, or when the source delivers again."""
    has_ticks: bool = True
    """Whether a tick checks its delivery. That of sets ends at the pipeline of their parts."""
    audit_event: str | None
    """The event with which the consumer's function audits them. None: the audit lists the bucket, counts the rows and
    checks the delivery."""


OBJECTS = Work(
    kind=PipelineKind.OBJECTS,
    noun="objects",
    waits="wait after NotYet, for a tag, for their group, or for max_rate",
    in_bucket=True,
    retried="now",
    audit_event=None,
)
MESSAGES = Work(
    kind=PipelineKind.MESSAGES,
    noun="messages",
    waits="wait after NotYet, or for max_rate",
    in_bucket=False,
    retried="at their next delivery",
    audit_event="checkRows",
)
SETS = Work(
    kind=PipelineKind.SETS,
    noun="sets",
    waits="wait for their parts, for their group, or for max_rate",
    in_bucket=True,
    retried="now",
    has_ticks=False,
    audit_event="auditSets",
)
RUNNING = "list --status running"
_NOT_RUNNING = "it has no executions; see `list` and `list --status stuck`"
_SERVICE = "with the service that runs them: suspend its scaling, and set its desired count"
REFUSED: dict[str, dict[PipelineKind, str]] = {
    RUNNING: {kind: _NOT_RUNNING for kind in PipelineKind if kind is not PipelineKind.EXECUTIONS},
    "wait": {
        PipelineKind.MESSAGES: "no listing has its messages; use --id for a `retry`, `status`, and `list` for those "
        "that failed",
    },
    "retry --again": {
        PipelineKind.MESSAGES: "no bucket keeps its messages; send the message again, or use `retry` for rejected "
        "messages",
    },
    "dismiss": {
        PipelineKind.SETS: "dismiss its parts, with --pipeline and the name of the pipeline of the parts",
    },
    "release": {
        PipelineKind.EXECUTIONS: "`release --end` ends its work for good, also while its execution runs",
    },
    "rehearse": {
        PipelineKind.EXECUTIONS: "its code runs elsewhere, in steps; test the function of a step with a change of "
        "`LocalPipeline`",
        PipelineKind.WORKERS: "no command can read the variables of their containers; test the code with "
        "`LocalPipeline(worker=True)`",
        PipelineKind.MESSAGES: "nothing keeps the body of a committed message; test the code with `LocalMessages`",
        PipelineKind.SETS: "no row keeps the parts that a set had at its commit; test the code with `LocalSets`",
    },
    "pause": {PipelineKind.WORKERS: f"the command stops functions only; stop the workers {_SERVICE} to 0"},
    "resume": {PipelineKind.WORKERS: f"the command would start the function too; start the workers {_SERVICE}"},
}
"""For each command and kind: why it is refused, and the way out."""


def kind_of(deployed: "DeployedPipeline") -> PipelineKind:
    """The kind of a deployed pipeline."""
    kind = deployed.work.kind
    if kind is PipelineKind.OBJECTS and deployed.has_executions:
        return PipelineKind.EXECUTIONS
    return PipelineKind.WORKERS if kind is PipelineKind.OBJECTS and deployed.setting("has_workers") else kind


def check_kind(deployed: "DeployedPipeline", command: str) -> None:
    """Refuse a command that the pipeline's kind has no use for.

    Messages and sets may have executions or workers too.

    Args:
        deployed: the pipeline.
        command: the command, as a key of `REFUSED`.

    Raises:
        UsageError: The kind has no use for it. The text names the kind and the way out.

    """
    if command == RUNNING and deployed.has_executions:
        return
    beside = [PipelineKind.WORKERS] if deployed.setting("has_workers") else []
    beside += [PipelineKind.EXECUTIONS] if deployed.has_executions else []
    for kind in (kind_of(deployed), *beside):
        way_out = REFUSED.get(command, {}).get(kind)
        if way_out is not None:
            raise UsageError(f"`{command}` is not for {deployed.name}, which is {kind}: {way_out}")
