"""Parts of the audit and of the delivery check."""

from intake_ledger.audit import backlog, function, in_parts, inventory, listing, look, one_function
from intake_ledger.audit.backlog import Backlog
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import NOT_JUDGED, NOT_SENT, WAITING, Finding, Line, Mark, Window, is_marked, judge
from intake_ledger.audit.executing import IsExecuting, executing
from intake_ledger.audit.function import AT_THE_SAME_TIME, handler
from intake_ledger.audit.in_parts import AuditInParts, _order
from intake_ledger.audit.inventory import File, Inventory, InventoryError, Location, manifest_of
from intake_ledger.audit.join import athena, athena_parts, duckdb, parts
from intake_ledger.audit.join.athena import CANDIDATES, LINES, PARTITION, Athena, AthenaResult, statements
from intake_ledger.audit.join.athena_parts import MOST_ATTEMPTS, AthenaJoin
from intake_ledger.audit.join.duckdb import Join, Slice, connection, slice_name, write
from intake_ledger.audit.join.parts import join_parts
from intake_ledger.audit.join.sqlite import SqliteJoin
from intake_ledger.audit.listing import KEYS_OF_A_SAMPLE, BucketListing, Page, Place
from intake_ledger.audit.look import BACKFILL_ID, BATCH, Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.publish import publish
from intake_ledger.audit.relations import (
    CANDIDATE,
    COLUMNS,
    HELD,
    LISTED,
    QUERY,
    Candidate,
    candidate,
    held_entry,
    listed_entry,
)
from intake_ledger.audit.report import NAMED_FINDINGS, NAMED_PASSES, SOON, Pass, Report, Stopped, few_passes, report_of
from intake_ledger.audit.row_numbers import RowNumbers, row_numbers, total
from intake_ledger.audit.runs import KEPT_FINDINGS, MOST_REPEATS, AuditRuns, RunLeaseLost, RunNotDue
from intake_ledger.audit.scratch import Scratch
from intake_ledger.audit.shards import MAX_KEY_BYTES, MOST_KEYS, Sample, Shard, cut
from intake_ledger.audit.table import AuditTable
from intake_ledger.audit.tools import Judgement, Tools
from intake_ledger.aws.page_parsing import parse_scans_directly, parse_versions_once
from intake_ledger.delivery_check import lifecycle
from intake_ledger.delivery_check.check import DeliveryCheck
from intake_ledger.delivery_check.deployed import Deployed
from intake_ledger.delivery_check.lifecycle import early_ends
from intake_ledger.delivery_check.looked import Looked
from intake_ledger.delivery_check.pauses import describe_pause
from intake_ledger.delivery_check.policies import Caller, decide
from intake_ledger.observability.audit_powertools import PowertoolsAuditTelemetry, publish_ages, shortly_audited
