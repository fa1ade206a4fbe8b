"""Parts of the consumer of sets of files."""

from intake_ledger.consumer.set_wakes import SetWakes
from intake_ledger.kinds.sets import PartLists, S3PartLists, Sets
from intake_ledger.sets import audit, manifest, reader
from intake_ledger.sets.audit import MINUTE, SETTLE_MS, SetAudit, SetFindings
from intake_ledger.sets.manifest import parts_of
from intake_ledger.sets.waiting import SetTelemetry, WaitingSets
