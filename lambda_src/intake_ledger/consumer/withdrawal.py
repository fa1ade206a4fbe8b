"""Withdraw a message of an operation that a person has stopped, before any claim.

A redriven message goes back into the dead-letter queue with its reasons. A request to process again is acknowledged:
its object is as before. A message whose work has begun is no longer the operation's: it ends as any other work.
"""

from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.ulids import made_at
from intake_ledger.requests.redriven import redriven


def withdraw(message: Message, operation: str, services: Services) -> bool:
    """Withdraw the message. False: work has begun for it, so it is handled as any other.

    Args:
        message: a message of the operation.
        operation: the ID of the operation, which was stopped.
        services: those of the consumer.

    Raises:
        CopyRefused: The dead-letter queue does not take the message.
        ClientError: DynamoDB refuses a request. Also BotoCoreError.

    """
    back = None if message.redriven_by is None else redriven(message.redriven_by)
    for change in message.parsed:
        if isinstance(change, Change):
            row = services.ledger.row_of(change)
            if has_begun(change, row, operation, redriven=back is not None):
                return False
            if back is not None and row is None and services.ledger.is_forgotten(change):
                return False
    if back is not None:
        attributes = {**back.attributes, "rejected_fence": message.rejected_fence}
        services.queues.dead_letter(message.body, attributes, message.group)
    services.telemetry.withdrawn(message.only_change, operation, message.id)
    return True


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
