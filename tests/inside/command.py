"""Parts of the command `intake-ledger`."""

from intake_ledger_cli import commands
from intake_ledger_cli.act import (
    again,
    dismissing,
    forget_again,
    forget_command,
    forgetting,
    recording,
    redrive,
    reprocess,
    retrying,
    stopping,
)
from intake_ledger_cli.act import redrive_lock as redrive_lock_module
from intake_ledger_cli.act.choice import Act, Asked, choose
from intake_ledger_cli.act.rate_limit import RateLimit
from intake_ledger_cli.act.recording import OpenOperation, RequestRecorder
from intake_ledger_cli.act.redrive import Redrive, RedriveResult, opened_by
from intake_ledger_cli.act.redrive_lock import redrive_lock
from intake_ledger_cli.act.reprocess import (
    ReprocessResult,
    Target,
    key_targets,
    prefix_targets,
    send_requests,
)
from intake_ledger_cli.act.row_scan import CommitFilter, row_targets
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws import drain, executions, function_errors, reading, s3_listing, sending
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import OPERATIONS_STREAM
from intake_ledger_cli.aws.dead_letters import NO_REASON, NO_ROOM, DeadLetterMessage, MessageFilter, from_sqs
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.function_errors import FunctionErrors
from intake_ledger_cli.aws.log_links import LogGroup, key_pattern
from intake_ledger_cli.aws.metrics import LastHour, Tick, read_metrics
from intake_ledger_cli.aws.read_budget import ReadBudget, write_token
from intake_ledger_cli.aws.reading import AuditState, ObjectRow, ReviewPage
from intake_ledger_cli.aws.s3_listing import ListedVersion
from intake_ledger_cli.aws.sending import send
from intake_ledger_cli.errors import CliError, UsageError, describe_error
from intake_ledger_cli.kinds import MESSAGES, PipelineKind, kind_of
from intake_ledger_cli.options import Call
from intake_ledger_cli.read import history, inspection, listing, pipelines, report_data, waiting
from intake_ledger_cli.read.breaker import BreakerState, BreakerStatus
from intake_ledger_cli.read.counting import PAGES, Count, Counts, count_rows
from intake_ledger_cli.read.inspection import compare
from intake_ledger_cli.read.report_data import ReportData
from intake_ledger_cli.read.report_file import replace_file
from intake_ledger_cli.read.status import Alarm, NotRead, PauseRecord, PipelineStatus, QueueDepth
from intake_ledger_cli.read.verdict import findings_of, verdict_lines
from intake_ledger_cli.read.waiting import parse_until
from intake_ledger_cli.show import formatting, json_output, render, tables
from intake_ledger_cli.show.console import console, escape, many
from intake_ledger_cli.show.report_page import render as report_page
from intake_ledger_cli.show.status_table import alarms_text, count_parts
from intake_ledger_cli.show.tables import report_table

commands.load()
