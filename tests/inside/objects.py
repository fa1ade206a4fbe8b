"""Parts of the consumer of objects, with the events that it reads and the processors that it calls."""

from intake_ledger.aws import clients
from intake_ledger.consumer import composition, hooks, managed_instances
from intake_ledger.consumer import deadline as deadline_module
from intake_ledger.consumer.attempt import Attempts, Failures
from intake_ledger.consumer.batch import RESERVE_SECONDS
from intake_ledger.consumer.circuit_breaker import (
    CLOSE_MS,
    MAX_BAD_KEYS,
    MAX_PAUSE_MS,
    RECENT_MS,
    SHARE_MS,
    THRESHOLD,
    CircuitBreaker,
    least_wait_ms,
)
from intake_ledger.consumer.consumer import BUSY_JITTER_SECONDS, HOLD_MS, MAX_LATER_FORMAT_SECONDS, later_format_seconds
from intake_ledger.consumer.deadline import deadline
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.group_by_key import group_by_key
from intake_ledger.consumer.host import IN_LAMBDA
from intake_ledger.consumer.returns import (
    ANSWER_MS,
    FULL,
    LATE_REQUESTS,
    LOOK_MS,
    MAX_DELAY_SECONDS,
    Crowd,
    Returns,
)
from intake_ledger.consumer.threads import ProcessorThreads, exit_now
from intake_ledger.consumer.withdrawal import has_begun
from intake_ledger.events import parser
from intake_ledger.events.parser import PATIENCE
from intake_ledger.garbage import no_garbage_collection
from intake_ledger.kinds.objects import Objects, ObjectWork, request_of
from intake_ledger.observability.error_text import MAX_CAUSES, is_library
from intake_ledger.observability.log_lines import ChangeFormatter
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.processor.lambda_processor import commit_from, remote_function
from intake_ledger.processor.object_stream import download_to_file
from intake_ledger.processor.rejects import Reading
from intake_ledger.processor.text import MAX_LINE, Dialect, csv_rows, json_lines, lines
from intake_ledger.runners.calls import InlineCalls
from intake_ledger.runners.inline import Inline
from intake_ledger.runners.remote import Remote
