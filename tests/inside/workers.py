"""Parts of the worker outside of Lambda."""

from intake_ledger.worker import worker
from intake_ledger.worker.heartbeat import Extensions, Heartbeat
from intake_ledger.worker.held import HeldLedger, HeldQueues
from intake_ledger.worker.worker import batch_size, make_heartbeat
