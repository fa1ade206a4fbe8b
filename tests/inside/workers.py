"""Parts of the worker outside of Lambda."""

from intake_ledger.worker import heartbeat as heartbeats
from intake_ledger.worker import worker
from intake_ledger.worker.heartbeat import Extensions, Heartbeat
from intake_ledger.worker.worker import WorkerHost, batch_size, extensions_of, make_host, watched
