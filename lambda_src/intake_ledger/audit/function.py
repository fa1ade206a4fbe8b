"""The audit's Lambda function: compares the bucket with the ledger, and sends a message for each key that differs.

The consumer judges such a message as any other, so a finding that is out of date does no harm. Each tick of the
schedule checks the delivery, and then begins a run if one is due. If the bucket is too large for one function, a state
machine calls the steps of a run in parts.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from intake_ledger.audit import backlog as backlogs
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import Window
from intake_ledger.audit.in_parts import BURST_SECONDS, AuditInParts
from intake_ledger.audit.look import STOP_BEFORE_MS, Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.publish import publish
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.audit.runs import RunNotDue
from intake_ledger.audit.tools import Judgement, Tools
from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.aws.page_parsing import parse_scans_directly, parse_versions_once
from intake_ledger.aws.queues import Queues
from intake_ledger.delivery_check.check import DeliveryCheck
from intake_ledger.delivery_check.former_names import former_names, problems
from intake_ledger.delivery_check.looked import UNKNOWN, Looked
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.row_history import RowHistoryRecord
from intake_ledger.observability.audit_powertools import PowertoolsAuditTelemetry, requests_checked
from intake_ledger.protocol.row import lease_length
from intake_ledger.protocol.settings import elsewhere_of
from intake_ledger.protocol.settings_audit import AuditSettings, audit_settings
from intake_ledger.requests.check import RequestCheck, RequestFindings

if TYPE_CHECKING:
    from intake_ledger.audit.executing import IsExecuting

AT_THE_SAME_TIME = 8
"""Parallel requests to S3 and DynamoDB. A page of a listing takes S3 100 to 200 ms, and the function 50 ms of CPU."""

RemainingMs = Callable[[], int]
"""Milliseconds until Lambda's timeout."""


class AuditFunction:
    """The audit with clients of AWS."""

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        config = Config(retries={"mode": "standard", "total_max_attempts": 6})
        # In a VPC there may be no route to CloudWatch and other services. The audit works without them.
        brief = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
        self._cloudwatch = lambda: _client("cloudwatch", brief)
        s3, sqs, dynamodb = (_client(name, config) for name in ("s3", "sqs", "dynamodb"))
        parse_versions_once(s3)
        parse_scans_directly(dynamodb)
        self._tools = Tools(
            settings=settings,
            s3=s3,
            sqs=sqs,
            dynamodb=dynamodb,
            clock=_now,
            judge=self._judge,
            delivery=self._problems,
            scratch=settings.files,
            heads=AT_THE_SAME_TIME,
            sleep=time.sleep,
            is_executing=_is_executing(lambda service: _client(service, config), settings.table),
        )
        self._looked: Looked | None = None
        self._delivery = DeliveryCheck(
            settings, s3=s3, sqs=sqs, dynamodb=dynamodb, make_client=lambda name: _client(name, brief)
        )
        self._row_history = RowHistoryRecord(settings, LedgerTable(dynamodb, settings.table), _now)
        self._runs = self._tools.runs(secrets.token_hex(8))

    def delivery(self) -> Looked:
        """Check the delivery, once for each invocation. Rows under a former name are a problem too."""
        if self._looked is None:
            self._looked = self._delivery.look()
            if not self._looked.gone:
                names = former_names(self._tools.dynamodb, self._settings, first_run_at=self._runs.since())
                self._looked.problems += problems(names)
        return self._looked

    def is_first_tick(self) -> bool:
        """True if the pipeline has had no run before this invocation. Ask after `delivery`, and before the run."""
        return not self._runs.began

    def requests(self, remaining_ms: RemainingMs) -> RequestFindings:
        """Judge the requests of people that are due, and send the outstanding ones again."""
        settings, tools = self._settings, self._tools
        bucket = tools.bucket()
        queues = Queues(lambda: tools.sqs, settings.queue_url, "")
        check = RequestCheck(
            tools.dynamodb, queues, settings, clock=_now, look=lambda key, state, _: bucket.look_at(key, state)
        )
        due = check.due(_now() - settings.settle_seconds * 1000)
        if due:
            # Messages that wait in the queue may be these. The age of the queue is read only then.
            judged = self._judge(_now())
            due = [one for one in due if judged.resubmit and one.sent_at <= judged.window.settled_before]
        return check.run(due, has_time=lambda: remaining_ms() > STOP_BEFORE_MS)

    def look(self, remaining_ms: RemainingMs) -> Report:
        """Run the audit without a change or a message."""
        now = _now()
        self._read_patterns(note=False)
        report = Report(str(now), now, dry_run=True)
        look = self._tools.look(None, backfill=False)
        self._compare(report, self._judge(self._runs.since()), look, remaining_ms)
        return report

    def run(self, remaining_ms: RemainingMs, *, every_seconds: int | None) -> Report:
        """Run the audit. With `every_seconds`, only if a run is due.

        Raises:
            RunNotDue: There is nothing to do.

        """
        lease_ms = lease_length(remaining_ms(), self._settings.clock_skew_seconds * 1000)
        since, now = self._runs.take(lease_ms=lease_ms, only_if_due=every_seconds is not None), _now()
        backfill, problems = self._runs.backfill(self._settings)
        report = Report(str(now), now, delivery=problems)
        try:
            self._read_patterns(note=True)
            judged = self._judge(since, backfill)
            budget = self._budget(judged, backfill=backfill)
            look = self._tools.look(budget if judged.resubmit else None, backfill=backfill)
            self._compare(report, judged, look, remaining_ms)
        except Exception:
            self._runs.give_back()
            raise
        self._runs.finish(report, every_seconds=every_seconds, backfill=backfill)
        return report

    def step(self, event: Mapping[str, Any], remaining_ms: RemainingMs) -> Report | dict[str, Any]:
        """Run one step of a run in parts. The last one returns the report, the others an answer to the state machine.

        Raises:
            RunNotDue: There is nothing to do.
            InventoryError: There is no usable inventory report.

        """
        self._read_patterns(note=event["step"] == "plan" and not event["input"].get("dryRun"))
        parts = AuditInParts(self._tools, event["run"])
        match event["step"]:
            case "plan":
                return parts.plan(event)
            case "write":
                return parts.write(event, remaining_ms)
            case "look":
                return parts.look(event, remaining_ms)
            case "finish":
                return parts.finish()
            case step:
                raise ValueError(f"the audit has no step {step!r}: its state machine is another release's")

    def _read_patterns(self, *, note: bool) -> None:
        """Read the former patterns of `exclude`: an object that they left out is not lost. `note` writes their end."""
        self._settings = self._row_history.with_former(self._settings, note=note)
        self._tools = replace(self._tools, settings=self._settings)

    def publish(self, report: Report) -> str | None:
        """Write the report to S3, and return its key. None if no reports are configured, or after a dry run."""
        return None if report.dry_run else publish(self._tools.s3, self._settings, report, now=_now())

    def _budget(self, judged: Judgement, *, backfill: bool) -> OwnBudget:
        most = self._settings.backfill_rate * BURST_SECONDS - judged.waiting if backfill else self._settings.budget
        if most < 1:
            raise RunNotDue(f"{judged.waiting:,} messages wait in the queue, and the backfill waits for them")
        return OwnBudget(most)

    def _compare(self, report: Report, judged: Judgement, look: Look, remaining_ms: RemainingMs) -> None:
        report.delivery, report.held = [*self._problems(), *report.delivery], judged.held
        tools = self._tools
        audit = AuditInOneFunction(self._settings, tools.s3, tools.dynamodb, look, _now, readers=AT_THE_SAME_TIME)
        audit.run(report, judged.window, remaining_ms=remaining_ms)

    def _problems(self) -> list[str]:
        return [*self.delivery().problems, *self.delivery().unknown]

    def _judge(self, since: int, backfill: bool = False) -> Judgement:
        """The limits of a run. `since` is the start of this pipeline's first run in epoch milliseconds."""
        settings, now = self._settings, _now()
        backlog = backlogs.look(self._tools.sqs, self._cloudwatch, settings.queue_url, now=now)
        first = since if settings.skips_existing else 0
        looks_back = max(now - settings.look_back_seconds * 1000, first)
        all_rows_since = self._row_history.look()
        # A ledger with all rows has a row of each processed object of any age.
        known_since = looks_back if all_rows_since is None else min(looks_back, max(all_rows_since, first))
        window = Window(
            settled_before=now - settings.settle_seconds * 1000,
            known_since=0 if backfill else known_since,
            removals_since=looks_back,
            baseline=0 if backfill else first,
        )
        window = backlogs.narrowed(window, backlog, now=now)
        held = backlogs.reason(backlog, settle_seconds=settings.settle_seconds)
        return Judgement(window, resubmit=not backlog.unknown, held=held, waiting=backlog.waiting)


def _client(name: str, config: Config) -> Any:
    return boto3.client(name, config=config)  # type: ignore[call-overload] # the name is a variable


def _now() -> int:
    return time.time_ns() // 1_000_000


def handler(event: Mapping[str, Any], context: InvocationContext) -> dict[str, Any]:
    """Lambda's entry point."""
    function = AuditFunction(audit_settings(os.environ))
    return respond(event, context.get_remaining_time_in_millis, function, PowertoolsAuditTelemetry())


def respond(
    event: Mapping[str, Any], remaining_ms: RemainingMs, function: AuditFunction, telemetry: PowertoolsAuditTelemetry
) -> dict[str, Any]:
    """Answer an event, and report it.

    The schedule sends `{"everySeconds": 86400}`, which begins a run if one is due. `{"dryRun": true}` compares and
    changes nothing. A state machine sends `{"step": ...}`. Any other event begins a run.
    """
    looked, is_tick = Looked(), event.get("step", "plan") == "plan"
    is_dry_run = (event.get("input") or event).get("dryRun")
    if is_tick:
        looked = function.delivery()
        telemetry.delivery_checked(looked.problems, looked.unknown, count=not is_dry_run)
        if looked.gone:
            # A run would fail without this resource. Each tick reports it.
            return _skipped(f"{' and '.join(looked.gone)} is gone", looked)
        if not is_dry_run and function.is_first_tick():
            telemetry.first_tick()
    with ExitStack() as after:
        if is_tick and not is_dry_run:
            # After the run, because it waits for messages in the queue. Also after a run that failed.
            after.callback(lambda: requests_checked(function.requests(remaining_ms)))
        return _run(event, remaining_ms, function, telemetry, looked)


def _run(
    event: Mapping[str, Any],
    remaining_ms: RemainingMs,
    function: AuditFunction,
    telemetry: PowertoolsAuditTelemetry,
    looked: Looked,
) -> dict[str, Any]:
    """Run the audit, or a step of it. Returns as `respond`."""
    try:
        if "step" in event:
            answer = function.step(event, remaining_ms)
            if not isinstance(answer, Report):
                return answer
            report = answer
        elif event.get("dryRun"):
            report = function.look(remaining_ms)
        else:
            report = function.run(remaining_ms, every_seconds=event.get("everySeconds"))
    except RunNotDue as reason:
        telemetry.skipped(str(reason))
        return _skipped(str(reason), looked)
    telemetry.audited(report.as_json(_now()), _counts(report))
    if "step" in event and not report.dry_run:
        # The plan of a run in parts may have found more problems, such as an inventory that is overdue.
        problems = [problem for problem in report.delivery if not problem.startswith(UNKNOWN)]
        telemetry.delivery_checked(problems, [], count=bool(problems))
    # Last, since the report's bucket may refuse it.
    if key := function.publish(report):
        telemetry.report_written(key)
    return report.as_json(_now())


def _skipped(reason: str, looked: Looked) -> dict[str, Any]:
    return {"skipped": reason, "delivery": [*looked.problems, *looked.unknown]}


def _counts(report: Report) -> dict[str, int]:
    """The metrics of a run. A dry run has none."""
    if report.dry_run:
        return {}
    return {
        "AuditIncomplete": int(not report.complete),
        # A run with gaps does not count, since it has not read the whole bucket.
        "AuditRuns": int(report.stopped not in (Stopped.PARTS, Stopped.READING)),
        "AuditCheckedKeys": report.checked,
        "AuditUnjudgedKeys": report.unjudged,
        "AuditFindings": report.counts.total(),
        "AuditResubmitted": report.resubmitted,
    }


def _is_executing(make_client: Callable[[str], Any], table: str) -> "IsExecuting | None":
    if elsewhere_of(os.environ) is None:
        return None
    from intake_ledger.audit.executing import executing  # noqa: PLC0415 - few pipelines need it

    return executing(os.environ, make_client, table, _now)
