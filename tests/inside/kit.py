"""Parts of the testing kit."""

from intake_ledger_testing import (
    _ministack,
    dynamodb_expressions,
    local_runtime,
    local_server,
    memory_dynamodb,
    prices,
    pytest_plugin,
)
from intake_ledger_testing.account_cleanup import TAG
from intake_ledger_testing.account_cost import NEW_KEY_REQUESTS, NEW_KEY_UNITS, estimate
from intake_ledger_testing.consumers import object_consumer, object_ledger
from intake_ledger_testing.dynamodb_expressions import Item, inserted_item, parse_update_statement
from intake_ledger_testing.events import cloudtrail_event, eventbridge_event, s3_notification, sqs_event, sqs_record
from intake_ledger_testing.function_logs import json_objects
from intake_ledger_testing.local_settings import BUCKET, PIPELINE, START
from intake_ledger_testing.local_worker import HOLD_SECONDS, Killed, LocalConnection, LocalWorker
from intake_ledger_testing.memory_durable_functions import FUNCTION, MemoryDurableExecution, MemoryDurableFunctions
from intake_ledger_testing.memory_dynamodb import Key
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import MemoryS3, Version, s3_error
from intake_ledger_testing.memory_shard import MemoryShard
from intake_ledger_testing.memory_sqs import (
    DEAD_LETTER_URL,
    MAX_MESSAGE_BYTES,
    QUEUE_URL,
    DeadLetter,
    MemorySQS,
    QueuedMessage,
)
from intake_ledger_testing.memory_step_functions import MACHINE, MemoryExecution, MemoryStepFunctions
from intake_ledger_testing.outcome_counter import OutcomeCounter
from intake_ledger_testing.transaction_rules import check_transaction, expression_problems
