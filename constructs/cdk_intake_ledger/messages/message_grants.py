"""Permissions that an intake of messages gives to others."""

from aws_cdk import aws_iam as iam

from cdk_intake_ledger.arguments import check_arguments
from cdk_intake_ledger.key_access import QUEUE_KEY_ACTIONS, grant_key
from cdk_intake_ledger.messages.message_consumer import MessageConsumer, source_name
from cdk_intake_ledger.resources import IntakeLedger, IntakeQueue


@check_arguments
class MessageGrants:
    """`grant_*` for one intake of messages."""

    _queue: IntakeQueue
    _ledger: IntakeLedger
    _consumer: MessageConsumer
    _pipeline_name: str

    def grant_send(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to send messages to the intake's queue.

        Args:
            grantee: may send to the queue, and use its key.

        Returns:
            the grant.

        """
        return self._with_queue_key(grantee, self._queue.queue.grant(grantee, "sqs:SendMessage"))

    def grant_read_ledger(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read rows, and to list rows that need review.

        Args:
            grantee: gets the reading actions on the table and its index, and use of the table's key for them.

        Returns:
            the grant.

        """
        return self._ledger.grant_read(grantee)

    def grant_redrive(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to move messages from the dead-letter queue back to the queue.

        Args:
            grantee: may receive and delete dead-letter messages, send to the queue, and use the queues' key. It may
                also write records of operations into the ledger's table, and no rows, and lines into the consumer's log
                group.

        Returns:
            the grant.

        """
        receive = ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")
        send = self._queue.queue.grant(grantee, "sqs:GetQueueAttributes", "sqs:SendMessage")
        record = self._ledger.grant_record(grantee, self._pipeline_name)
        grant = self._with_queue_key(grantee, self._queue.dead_letter_queue.grant(grantee, *receive))
        log = self._consumer.function.log_group.grant_write(grantee)
        return grant.combine(send).combine(record).combine(log)

    def grant_operate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read the ledger, redrive, and retry at once.

        Args:
            grantee: gets `grant_read_ledger` and `grant_redrive`. It may also update rows of the intake's messages, and
                the marks of the circuit breaker and of a pause in the ledger's table. It can change rows: give it to
                people whom you trust with the ledger.

        Returns:
            the grant.

        """
        rows, marks = f"{source_name(self._pipeline_name)}/*", f"{self._pipeline_name}#downstream"
        update = self._ledger.grant_update(grantee, rows=rows, marks=marks)
        return self.grant_read_ledger(grantee).combine(self.grant_redrive(grantee)).combine(update)

    def _with_queue_key(self, grantee: iam.IGrantable, grant: iam.Grant) -> iam.Grant:
        key = self._queue.encryption_key
        return grant.combine(grant_key(key, grantee, *QUEUE_KEY_ACTIONS)) if key else grant
