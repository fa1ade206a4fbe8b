"""Finds the resources of a pipeline that was renamed, moved to another stack, or deleted.

CloudFormation keeps the bucket, the table and the queues, but no stack owns them. Each has a tag with the pipeline's
name.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol import PIPELINE_TAG
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline

_GONE = frozenset({"Deleting", "Disabled", "Disabling"})
"""States of an event source mapping that takes no more messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPipeline:
    """The resources of a pipeline that is not deployed any more."""

    name: str
    table: str
    queue_url: str | None
    """None if no queue is known."""
    dead_letter_url: str
    buckets: tuple[str, ...]
    """Buckets that it made itself."""


def find_former(
    aws: "Aws",
    deployed: "DeployedPipeline",
    name: str,
    *,
    table: str | None,
    queue: str | None,
    dead_letter_queue: str | None,
) -> FormerPipeline:
    """Find the resources of a former pipeline by their tag, unless they are given. A missing table or dead-letter queue
    was shared with `deployed`.

    Raises:
        CliError: It is the pipeline itself or is still deployed, or several resources have its tag.

    """
    if name == deployed.name:
        raise CliError(f"--from {name} is the pipeline's current name: use its former name")
    if name in deployed.others:
        raise CliError(
            f"--from {name} is deployed in the same stack: only a pipeline that is no longer deployed can be adopted"
        )
    tagged = _tagged(aws, name)
    queue_urls, dead_letter_urls = _queues(aws, tagged["sqs"])
    queue_url = queue or _only(queue_urls, name, "--from-queue")
    if queue_url is not None and queue_url != deployed.queue_url:
        _refuse_live_queue(aws, queue_url, name)
    return FormerPipeline(
        name=name,
        table=table
        or _only([one.removeprefix("table/") for one in tagged["dynamodb"]], name, "--from-table")
        or deployed.table,
        queue_url=queue_url,
        dead_letter_url=dead_letter_queue
        or _only(dead_letter_urls, name, "--from-dead-letter-queue")
        or deployed.dead_letter_url,
        buckets=tuple(one for one in tagged["s3"] if one != deployed.bucket),
    )


def _only(found: list[str], name: str, option: str) -> str | None:
    if len(found) > 1:
        raise CliError(f"several resources have the tag {PIPELINE_TAG}={name}, select one with {option}: {found}")
    return found[0] if found else None


def _tagged(aws: "Aws", name: str) -> dict[str, list[str]]:
    """Return the names of all resources with the pipeline's tag, by service."""
    pages = aws.tagging.get_paginator("get_resources").paginate(TagFilters=[{"Key": PIPELINE_TAG, "Values": [name]}])
    found: dict[str, list[str]] = defaultdict(list)
    for arn in sorted(one["ResourceARN"] for page in pages for one in page["ResourceTagMappingList"]):
        _, _, service, _, _, rest = arn.split(":", 5)
        found[service].append(rest)
    return found


def _queues(aws: "Aws", names: list[str]) -> tuple[list[str], list[str]]:
    """Return the URLs of queues and of dead-letter queues. A dead-letter queue has no redrive policy."""
    queues: list[str] = []
    dead_letters: list[str] = []
    for name in names:
        url = aws.sqs.get_queue_url(QueueName=name)["QueueUrl"]
        attributes = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"]).get("Attributes", {})
        (queues if "RedrivePolicy" in attributes else dead_letters).append(url)
    return queues, dead_letters


def _refuse_live_queue(aws: "Aws", queue_url: str, name: str) -> None:
    attributes: Any = aws.sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]
    mappings = aws.functions.list_event_source_mappings(EventSourceArn=attributes["QueueArn"])["EventSourceMappings"]
    if readers := [one["FunctionArn"].rsplit(":", 1)[-1] for one in mappings if one["State"] not in _GONE]:
        raise CliError(
            f"{name} still runs: {', '.join(readers)} takes messages from its queue {queue_url}; delete the function, "
            "or disable its event source mapping first"
        )
