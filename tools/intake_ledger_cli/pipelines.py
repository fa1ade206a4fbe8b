"""Lists the pipelines of an account and region, by the tag that each of their resources has."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from intake_ledger.protocol import PIPELINE_TAG
from intake_ledger_cli.console import DIM, WARNING, escape

if TYPE_CHECKING:
    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.json_output import JsonObject

_STACK_TAG = "aws:cloudformation:stack-name"


@dataclass(slots=True)
class FoundPipeline:
    """A pipeline, and the resources that have its tag."""

    name: str
    stacks: set[str] = field(default_factory=set)
    """Stacks of its resources. Resources that a stack has kept after its deletion still have the stack's tag."""
    resources: list[str] = field(default_factory=list)
    """ARNs."""

    @property
    def deployed(self) -> bool:
        """False if only kept resources remain: no function has the pipeline's tag."""
        return any(arn.split(":")[2] == "lambda" for arn in self.resources)


def list_pipelines(aws: "Aws") -> list[FoundPipeline]:
    """List pipelines by name. A pipeline whose tags were removed is missing.

    Raises:
        ClientError: The caller lacks `tag:GetResources`.

    """
    found: dict[str, FoundPipeline] = {}
    pages = aws.tagging.get_paginator("get_resources").paginate(TagFilters=[{"Key": PIPELINE_TAG}])
    for one in (one for page in pages for one in page["ResourceTagMappingList"]):
        tags: dict[str, Any] = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        pipeline = found.setdefault(tags[PIPELINE_TAG], FoundPipeline(tags[PIPELINE_TAG]))
        pipeline.resources.append(one["ResourceARN"])
        if stack := tags.get(_STACK_TAG):
            pipeline.stacks.add(stack)
    return [found[name] for name in sorted(found)]


def pipelines_json(found: list[FoundPipeline], region: str) -> "JsonObject":
    return {
        "region": region,
        "pipelines": [
            {
                "name": one.name,
                "stacks": sorted(one.stacks),
                "deployed": one.deployed,
                "resources": sorted(one.resources),
            }
            for one in found
        ],
    }


def pipelines_table(found: list[FoundPipeline], region: str) -> RenderableType:
    if not found:
        return Text(f"no resource in {region} has the tag {PIPELINE_TAG}", style=WARNING)
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for title in ("pipeline", "stack", "state"):
        table.add_column(title, overflow="fold")
    for one in found:
        state = Text("deployed") if one.deployed else Text("only kept resources, see: adopt", style=WARNING)
        table.add_row(escape(one.name), escape(", ".join(sorted(one.stacks)) or "unknown"), state)
    return table
