"""The scheduled Lambda function that finds what S3 never told anyone about.

It compares what S3 holds with what the ledger has committed and sends a wake-up message for every key that differs; the
consumer then decides as always. So a finding that is out of date does no harm.

Each tick of the schedule checks the delivery. Then it runs if a run is due, or does nothing more. For a bucket beyond
one function, a state machine calls for the steps of a run in parts.
"""

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.config import Config

from intake_ledger.audit import backlog as backlogs
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.in_parts import BURST_SECONDS, AuditInParts, Judgement, Tools
from intake_ledger.audit.look import Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.publish import publish
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.audit.runs import AuditRuns, NotNow
from intake_ledger.aws import Bucket, lean_listings, lean_scans
from intake_ledger.delivery_check.check import UNKNOWN, DeliveryCheck, Looked
from intake_ledger.delivery_check.former_names import former_names, problems
from intake_ledger.ledger import CompletenessRecord, LedgerTable
from intake_ledger.protocol import AuditSettings, audit_settings, lease_length

AT_THE_SAME_TIME = 8
"""Requests to S3 and DynamoDB at the same time. A page of a listing takes S3 100 to 200 ms, and the function 50 ms of
its CPU.
"""


class LambdaContext(Protocol):
    """The part of Lambda's context that is used."""

    def get_remaining_time_in_millis(self) -> int: ...


class AuditFunction:
    """The audit with the real AWS behind it."""

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        config = Config(retries={"mode": "standard", "total_max_attempts": 6})
        # A VPC may have no way to CloudWatch: then the audit goes on without.
        brief = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
        self._cloudwatch = lambda: _client("cloudwatch", brief)
        self._sqs = boto3.client("sqs", config=config)
        s3, dynamodb = boto3.client("s3", config=config), boto3.client("dynamodb", config=config)
        lean_listings(s3)
        lean_scans(dynamodb)
        self._looked: Looked | None = None
        self._s3, self._dynamodb = s3, dynamodb
        self._delivery = DeliveryCheck(
            settings, s3=s3, sqs=self._sqs, dynamodb=dynamodb, make_client=lambda name: _client(name, brief)
        )
        self._completeness = CompletenessRecord(settings, LedgerTable(dynamodb, settings.table), _now)
        self._runs = AuditRuns(
            dynamodb,
            settings.table,
            bucket=settings.bucket,
            pipeline=settings.pipeline,
            clock=_now,
            owner=secrets.token_hex(8),
        )

    def delivery(self) -> Looked:
        """Check the delivery, once for each invocation. Rows under a former name are a problem too."""
        if self._looked is None:
            self._looked = self._delivery.look()
            if not self._looked.gone:
                names = former_names(self._dynamodb, self._settings, first_run_at=self._runs.since())
                self._looked.problems += problems(names)
        return self._looked

    def look(self, context: LambdaContext) -> Report:
        """A run that changes and sends nothing."""
        now = _now()
        report = Report(str(now), now, dry_run=True)
        self._compare(report, self._judge(self._runs.since()), context, budget=None)
        return report

    def run(self, context: LambdaContext, *, every_seconds: int | None) -> Report:
        """Run the audit. With `every_seconds`, only if a run is due.

        Raises:
            NotNow: There is nothing to do.

        """
        lease_ms = lease_length(context.get_remaining_time_in_millis(), self._settings.clock_skew_seconds * 1000)
        since, now = self._runs.take(lease_ms=lease_ms, only_if_due=every_seconds is not None), _now()
        backfill, problems = self._runs.backfill(self._settings)
        report = Report(str(now), now, delivery=problems)
        try:
            self._compare_and_send(report, self._judge(since, backfill), context, backfill=backfill)
        except Exception:
            self._runs.give_back()
            raise
        self._runs.finish(report, every_seconds=every_seconds, backfill=backfill)
        return report

    def step(self, event: Mapping[str, Any], context: LambdaContext) -> Report | dict[str, Any]:
        """One step of a run in parts: the last one gives the report, the others what the state machine needs.

        Raises:
            NotNow: There is nothing to do.
            InventoryError: There is no inventory report that can be used.

        """
        parts = AuditInParts(
            Tools(
                settings=self._settings,
                s3=self._s3,
                sqs=self._sqs,
                dynamodb=self._dynamodb,
                clock=_now,
                judge=self._judge,
                delivery=self._problems,
                scratch=self._settings.files,
                heads=AT_THE_SAME_TIME,
                sleep=time.sleep,
            ),
            event["run"],
        )
        match event["step"]:
            case "plan":
                return parts.plan(event)
            case "write":
                return parts.write(event, context.get_remaining_time_in_millis)
            case "look":
                return parts.look(event, context.get_remaining_time_in_millis)
            case "finish":
                return parts.finish()
            case step:
                raise ValueError(f"the audit has no step {step!r}: its state machine is another release's")

    def publish(self, report: Report) -> str | None:
        """Write the report where the team wants it; None where nobody does."""
        return None if report.dry_run else publish(self._s3, self._settings, report, now=_now())

    def _compare_and_send(self, report: Report, judged: Judgement, context: LambdaContext, *, backfill: bool) -> None:
        most = self._settings.backfill_rate * BURST_SECONDS - judged.waiting if backfill else self._settings.budget
        if most < 1:
            raise NotNow(f"{judged.waiting:,} messages wait in the queue, and the backfill waits for them")
        budget = OwnBudget(most) if judged.resubmit else None
        self._compare(report, judged, context, budget=budget, backfill=backfill)

    def _compare(
        self,
        report: Report,
        judged: Judgement,
        context: LambdaContext,
        *,
        budget: OwnBudget | None,
        backfill: bool = False,
    ) -> None:
        settings = self._settings
        report.delivery, report.held = [*self._problems(), *report.delivery], judged.held
        look = Look(
            settings,
            LedgerTable(self._dynamodb, settings.table),
            Bucket(lambda: self._s3, settings.bucket, settings.bucket_owner),
            sqs=self._sqs,
            clock=_now,
            budget=budget,
            heads=AT_THE_SAME_TIME,
            backfill=backfill,
        )
        audit = AuditInOneFunction(settings, self._s3, self._dynamodb, look, _now, readers=AT_THE_SAME_TIME)
        audit.run(report, judged.window, remaining_ms=context.get_remaining_time_in_millis)

    def _problems(self) -> list[str]:
        return [*self.delivery().problems, *self.delivery().unknown]

    def _judge(self, since: int, backfill: bool = False) -> Judgement:
        """What may be judged now; `since` is when this pipeline's first run began. A backfill judges objects of any
        age.
        """
        settings, now = self._settings, _now()
        backlog = backlogs.look(self._sqs, self._cloudwatch, settings.queue_url, now=now)
        first = since if settings.skips_existing else 0
        looks_back = max(now - settings.look_back_seconds * 1000, first)
        complete_since = self._completeness.look()
        window = backlogs.window(
            backlog,
            now=now,
            settle_seconds=settings.settle_seconds,
            # A complete ledger has a row of each object that was ever processed, however old.
            known_since=looks_back if complete_since is None else min(looks_back, max(complete_since, first)),
            removals_since=looks_back,
            baseline=first,
        )
        if backfill:
            window = replace(window, known_since=0, baseline=0)
        held = backlogs.reason(backlog, settle_seconds=settings.settle_seconds)
        return Judgement(window, resubmit=not backlog.unknown, held=held, waiting=backlog.waiting)


def _client(name: str, config: Config) -> Any:
    return boto3.client(name, config=config)  # type: ignore[call-overload] # a name that is only known here


def _now() -> int:
    return time.time_ns() // 1_000_000


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point. `{"dryRun": true}` only looks; `{"everySeconds": 86400}` runs when a run is due, which is
    what the schedule sends; anything else runs at once. A state machine sends `{"step": ...}`.
    """
    logger, function = Logger(), AuditFunction(audit_settings(os.environ))
    looked = Looked()
    if event.get("step", "plan") == "plan":
        looked = function.delivery()
        _tell_delivery(logger, looked, measured=not (event.get("input") or event).get("dryRun"))
        if looked.gone:
            # A run would fail at it. What is gone is told at each tick.
            return _skipped(f"{' and '.join(looked.gone)} is gone", looked)
    try:
        if "step" in event:
            answer = function.step(event, context)
            if not isinstance(answer, Report):
                return answer
            report = answer
        elif event.get("dryRun"):
            report = function.look(context)
        else:
            report = function.run(context, every_seconds=event.get("everySeconds"))
    except NotNow as nothing:
        logger.info("not now", extra={"reason": str(nothing)})
        return _skipped(str(nothing), looked)
    _tell(logger, report)
    if "step" in event and not report.dry_run:
        # Planning a run in parts may have found more, such as an inventory that is overdue.
        found = [one for one in report.delivery if not one.startswith(UNKNOWN)]
        _tell_delivery(logger, Looked(found), measured=bool(found))
    # Last, so that a bucket that refuses it keeps nobody from hearing of the run.
    if key := function.publish(report):
        logger.info("report", extra={"key": key})
    return report.as_json(_now())


def _skipped(reason: str, looked: Looked) -> dict[str, Any]:
    return {"skipped": reason, "delivery": [*looked.problems, *looked.unknown]}


def _tell_delivery(logger: Logger, looked: Looked, *, measured: bool) -> None:
    for problem in looked.problems:
        logger.error("delivery", extra={"problem": problem})
    for unknown in looked.unknown:
        logger.warning("delivery", extra={"problem": unknown})
    if not measured:
        return
    metrics = Metrics()
    metrics.add_metric("AuditDeliveryProblems", unit=MetricUnit.Count, value=len(looked.problems))
    if looked.unknown:
        # A custom metric costs money in each hour that has data.
        metrics.add_metric("AuditDeliveryUnknown", unit=MetricUnit.Count, value=len(looked.unknown))
    metrics.flush_metrics()


def _tell(logger: Logger, report: Report) -> None:
    content = report.as_json(_now())
    logger.info("audited", extra={name: value for name, value in content.items() if name != "findings"})
    for finding in report.findings:
        logger.warning("finding", extra={"run_id": report.run_id, **finding})
    if report.dry_run:
        return
    metrics = Metrics()
    counts = {
        "AuditIncomplete": int(not report.complete),
        # A run with gaps is none: it has not seen the bucket.
        "AuditRuns": int(report.stopped not in (Stopped.PARTS, Stopped.READING)),
        "AuditCheckedKeys": report.checked,
        "AuditUnjudgedKeys": report.unjudged,
        "AuditFindings": report.counts.total(),
        "AuditResubmitted": report.resubmitted,
    }
    for name, value in counts.items():
        metrics.add_metric(name, unit=MetricUnit.Count, value=value)
    metrics.flush_metrics()
