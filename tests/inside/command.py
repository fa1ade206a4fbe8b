"""Parts of the command `intake-ledger`."""

from intake_ledger_cli import (
    announcing,
    commands,
    dismissing,
    drain,
    forget_command,
    forgetting,
    formatting,
    function_errors,
    history,
    inspection,
    json_output,
    listing,
    page_parts,
    page_style,
    pipelines,
    prices,
    reading,
    redrive,
    report_data,
    reprocess,
    retrying,
    s3_listing,
    stopping,
    tables,
    waiting,
)
from intake_ledger_cli import redrive_lock as redrive_lock_module
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws import Aws
from intake_ledger_cli.console import console, escape
from intake_ledger_cli.consumer_log import OPERATIONS_STREAM
from intake_ledger_cli.counting import PAGES, Count, Counts, count_rows
from intake_ledger_cli.dead_letters import NO_REASON, NO_ROOM, DeadLetterMessage, MessageFilter, from_sqs
from intake_ledger_cli.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, UsageError, describe_error
from intake_ledger_cli.inspection import compare
from intake_ledger_cli.kinds import PipelineKind, kind_of
from intake_ledger_cli.log_links import LogGroup, key_pattern
from intake_ledger_cli.metrics import Tick, read_metrics
from intake_ledger_cli.options import Call
from intake_ledger_cli.page_parts import Bar
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.read_budget import ReadBudget, write_token
from intake_ledger_cli.reading import ObjectRow, ReviewPage
from intake_ledger_cli.recording import RequestRecorder
from intake_ledger_cli.redrive import Redrive, RedriveResult
from intake_ledger_cli.redrive_lock import redrive_lock
from intake_ledger_cli.report_data import ReportData
from intake_ledger_cli.report_file import replace_file
from intake_ledger_cli.report_page import render
from intake_ledger_cli.reprocess import (
    ReprocessResult,
    Target,
    key_targets,
    prefix_targets,
    review_targets,
    send_requests,
)
from intake_ledger_cli.result_tables import redrive_table
from intake_ledger_cli.row_scan import RowFilter, row_targets
from intake_ledger_cli.s3_listing import ListedVersion
from intake_ledger_cli.sending import send
from intake_ledger_cli.status import Alarm, NotRead, PipelineStatus
from intake_ledger_cli.status_table import alarms_text, count_text
from intake_ledger_cli.tables import report_table
from intake_ledger_cli.waiting import parse_until

commands.load()
