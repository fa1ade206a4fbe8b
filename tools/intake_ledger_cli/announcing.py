"""Announces a command before it asks: the selection, the number of messages or objects, and the pipeline."""

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_sqs import SQSClient

    from intake_ledger_cli.adopt import AdoptionResult
    from intake_ledger_cli.dead_letters import MessageFilter
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.former import FormerPipeline
    from intake_ledger_cli.reprocess import Target

COUNTED = 10_000
"""The largest number of objects that are counted before the question."""


def redrive(
    client: "SQSClient", deployed: "DeployedPipeline", wanted: "MessageFilter", limit: int | None
) -> tuple[str, str]:
    """Return the redrive as a record and as a sentence.

    Raises:
        ClientError: SQS refuses the number of messages.

    """
    given = (("--key", wanted.key), ("--reason", wanted.reason), ("--limit", limit))
    options = " ".join(f"{name} {value}" for name, value in given if value is not None)
    number = _visible(client, deployed.dead_letter_url)
    chosen = f", only {options}" if options else ""
    does = (
        f"{deployed.name} will process messages of its dead-letter queue again: about {number:,} are there{chosen}. "
        "They move back to the queue."
    )
    return f"redrive {options}".rstrip(), does


def adopt(client: "SQSClient", former: "FormerPipeline", deployed: "DeployedPipeline") -> tuple[str, str]:
    """Return the adoption as a record and as a sentence.

    Raises:
        ClientError: SQS refuses the number of messages.

    """
    moved = [f"rows in the table {former.table}"]
    if former.queue_url is not None and former.queue_url != deployed.queue_url:
        moved.append(f"about {_visible(client, former.queue_url):,} messages")
    moved.append(f"dead-letter messages in a queue of about {_visible(client, former.dead_letter_url):,}")
    does = (
        f"{deployed.name} will take over what belongs to {former.name}: {', '.join(moved)}. The old ones are deleted."
    )
    return f"adopt --from {former.name}", does


def adopted(done: "AdoptionResult") -> str:
    """The result of an adoption, for its record."""
    messages = done.queue.moved if done.queue else 0
    end = "complete" if done.complete else "incomplete"
    return f"{done.rows.moved:,} rows, {messages:,} messages, {done.dead_letters.moved:,} dead-letter messages; {end}"


def reprocess(deployed: "DeployedPipeline", selection: str, targets: "Iterator[Target] | None") -> str:
    """Return the requests as a sentence. `targets` are counted, up to a limit. Without them no number is said."""
    noun = deployed.work.noun
    number = f"the {noun}"
    if targets is not None:
        found = sum(1 for _ in islice(targets, COUNTED + 1))
        number = f"more than {COUNTED:,} {noun}" if found > COUNTED else f"{found:,} {noun}"
    return f"{deployed.name} will process {number} of `{selection}` again."


def _visible(client: "SQSClient", url: str) -> int:
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])
