"""Rules about retention, visibility, the ledger and the audit: how long each thing must last for the others."""

from cdk_intake_ledger.checks.plan import ABORT_MULTIPART_DAYS
from cdk_intake_ledger.checks.plan_check import Check, between, compare
from cdk_intake_ledger.checks.registry import Subject
from cdk_intake_ledger.checks.spans import DAY, HOUR, MINUTE

SUBJECT = Subject("Retention, visibility and the audit's times")

QUEUE_RETENTION_RANGE = between(SUBJECT, "queue_retention", MINUTE, 14 * DAY, "the range of SQS")
DEAD_LETTER_RETENTION_RANGE = between(SUBJECT, "dead_letter_retention", MINUTE, 14 * DAY, "the range of SQS")

CHECKS: tuple[Check, ...] = (
    QUEUE_RETENTION_RANGE,
    DEAD_LETTER_RETENTION_RANGE,
    compare(SUBJECT, "dead-letter-retention-minimum", "queue_retention dead_letter_retention",
            lambda plan: plan.dead_letter_retention < plan.queue_retention,
            "the dead-letter queue's retention is {dead_letter_retention} and the queue's retention is "
            "{queue_retention}", "SQS counts the retention from the time at which a message was first sent",
            "Give the dead-letter queue a retention of at least {queue_retention}"),
    compare(SUBJECT, "visibility-covers-function", "visibility_timeout processing_timeout max_batching_window",
            lambda plan: plan.visibility_timeout < plan.function_timeout + plan.max_batching_window,
            "the queue's visibility_timeout is {visibility_timeout} and the function's timeout is {function_timeout}",
            "it must be at least {least} (the timeout and the batching window)",
            "Set visibility_timeout to at least {least}, or omit it",
            least=lambda plan: plan.function_timeout + plan.max_batching_window),
    compare(SUBJECT, "lease-within-visibility", "visibility_timeout processing_timeout clock_skew",
            lambda plan: plan.visibility_timeout < plan.lease,
            "the queue's visibility_timeout is {visibility_timeout} and the lease can last {lease}",
            "SQS would deliver a message again while the claim of a dead worker still holds",
            "Set visibility_timeout to at least {lease}, or omit it"),
    compare(SUBJECT, "visibility-within-12-hours", "processing_timeout clock_skew max_batching_window",
            lambda plan: plan.visibility > 12 * HOUR, "the queue's visibility timeout would be {visibility}",
            "SQS allows 12 hours at most", "Set a shorter visibility_timeout"),
    compare(SUBJECT, "attempts-within-retention",
            "queue_retention max_attempts min_backoff max_backoff processing_timeout clock_skew max_batching_window",
            lambda plan: plan.queue_retention < plan.retry_time,
            "the queue's retention is {queue_retention} and {max_attempts} attempts can take {retry_time}",
            "SQS would delete the message before its last attempt",
            "Set a longer retention, fewer attempts or a shorter backoff"),
    compare(SUBJECT, "ledger-retention-minimum",
            "ledger_retention queue_retention dead_letter_retention audit_interval",
            lambda plan: plan.ledger_retention < plan.least_ledger_retention,
            "the ledger's retention is {ledger_retention}",
            f"a change can come back after {{least_ledger_retention}} (twice the queue's {{queue_retention}}, the "
            f"dead-letter queue's {{dead_letter_retention}}, the audit's interval of {{audit_interval}} and "
            f"{ABORT_MULTIPART_DAYS} days of multipart upload)",
            "Set the ledger's retention to at least {least_ledger_retention}"),
    between(SUBJECT, "resubmit_rate", 1, 5_000, "the messages that the audit sends in a second"),
    between(SUBJECT, "backfill_rate", 1, 5_000, "the messages that a backfill sends in a second"),
    between(SUBJECT, "audit_interval", MINUTE, 365 * DAY, "a rate that EventBridge Scheduler takes"),
    compare(SUBJECT, "look-back-within-ledger", "look_back ledger_retention",
            lambda plan: plan.look_back > plan.ledger_retention,
            "the audit's look_back is {look_back} and the ledger deletes rows after {ledger_retention}",
            "the audit would report objects whose rows have expired as missing",
            "Set a shorter look_back, or a longer retention of the ledger"),
    compare(SUBJECT, "look-back-covers-uploads", "look_back settle_time",
            lambda plan: plan.look_back < ABORT_MULTIPART_DAYS * DAY + plan.settle_time,
            "the audit's look_back is {look_back}",
            f"a multipart upload has the date of its start, and may take {ABORT_MULTIPART_DAYS} days before the "
            "settle time begins", "Set look_back to at least {least}",
            least=lambda plan: ABORT_MULTIPART_DAYS * DAY + plan.settle_time),
    compare(SUBJECT, "look-back-covers-interval", "look_back settle_time audit_interval",
            lambda plan: plan.look_back < plan.audit_interval + plan.settle_time,
            "the audit's look_back is {look_back} and it runs every {audit_interval}",
            "the audit would never compare some objects that arrive between two runs",
            "Set look_back to at least {least}, or a shorter interval",
            least=lambda plan: plan.audit_interval + plan.settle_time),
    between(SUBJECT, "audit_budget", 1, 10_000_000, "the messages that one run may send"),
)  # fmt: skip
