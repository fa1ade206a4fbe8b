"""Operations that a person has stopped: a message of one is withdrawn before any claim.

A redriven message goes back into the dead-letter queue with its reasons. A request to process again is acknowledged:
its object is as before. A message whose work has begun is no longer the operation's: it ends as any other work.
"""

from intake_ledger.consumer.batch import Batch
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.ulids import made_at
from intake_ledger.requests.redriven import Redriven, redriven


def admits_ahead(message: Message, batch: Batch, services: Services) -> bool:
    """False: a person may have stopped the operation of the message. It is judged alone then, before a claim."""
    try:
        return _stopped_operation(message, batch, services) is None
    except Exception:  # noqa: BLE001 - the error comes again when it is judged
        return False


def admits(message: Message, batch: Batch, services: Services) -> bool:
    """False: a person has stopped the operation of the message, and it was withdrawn. A claim is never undone.

    Args:
        message: a message in its turn.
        batch: the batch that has it.
        services: those of the consumer.

    Raises:
        CopyRefused: The dead-letter queue does not take the message.
        ClientError: DynamoDB refuses a request. Also BotoCoreError.

    """
    if message in batch.ahead or (operation := _stopped_operation(message, batch, services)) is None:
        return True
    back = _redriven(message)
    for change in message.parsed:
        if isinstance(change, Change):
            row = services.ledger.row_of(change)
            if has_begun(change, row, operation, redriven=back is not None):
                return True
            if back is not None and row is None and services.ledger.is_forgotten(change):
                return True
    if back is not None:
        attributes = {**back.attributes, "rejected_fence": message.rejected_fence}
        services.queues.dead_letter(message.body, attributes, message.group)
    services.telemetry.withdrawn(message.only_change, operation, message.id)
    return False


def _redriven(message: Message) -> Redriven | None:
    return None if message.redriven_by is None else redriven(message.redriven_by)


def _stopped_operation(message: Message, batch: Batch, services: Services) -> str | None:
    """The ID of the stopped operation of a person that has sent the message: a redrive or a reprocess.

    Each batch reads once whether an operation was stopped, so that a running one ends.
    """
    if message.redriven_by is None:
        operation = change.reprocess_id if (change := message.only_change) else None
    else:
        operation = back.request_id if (back := _redriven(message)) else None
    if operation is None:
        return None
    if operation not in batch.stopped:
        batch.stopped[operation] = services.is_stopped(operation)
    return operation if batch.stopped[operation] else None


def has_begun(change: Change, row: Row | None, operation: str, *, redriven: bool) -> bool:
    """True if work has begun for a message of an operation, or the row is no longer what the operation was about.

    Args:
        change: the change of the message.
        row: its row.
        operation: the ID of the operation, which has the time at which it began.
        redriven: the message is from the dead-letter queue. Otherwise it asks to process a state again.

    """
    if row is not None and row.status is Status.LATER_FORMAT:
        return True
    if not redriven:
        return row is not None and row.unfinished and (row.reprocess_id or "") >= operation
    if change.rejected_fence is not None:
        return row is None or row.status is not Status.REJECTED or row.rejected_fence != change.rejected_fence
    # SQS moved it, so no rejection tells which attempts came before the operation.
    return row is not None and row.fence >= made_at(operation)
