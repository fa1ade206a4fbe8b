"""Parts of the consumer whose processor is a state machine."""

from intake_ledger.consumer.executions import Executions
