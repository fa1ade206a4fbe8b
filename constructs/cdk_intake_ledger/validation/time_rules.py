"""Rules about retention, visibility, the ledger and the audit: how long each thing must last for the others."""

from cdk_intake_ledger.validation.plan import ABORT_MULTIPART_DAYS, DAY, HOUR, MINUTE, number_text
from cdk_intake_ledger.validation.plan_check import Check, between, compare
from cdk_intake_ledger.validation.registry import Subject

SUBJECT = Subject("Retention, visibility and the audit's times")

QUEUE_RETENTION_RANGE = between(SUBJECT, "queue_retention", MINUTE, 14 * DAY, "the range of SQS")
DEAD_LETTER_RETENTION_RANGE = between(SUBJECT, "dead_letter_retention", MINUTE, 14 * DAY, "the range of SQS")

CHECKS: tuple[Check, ...] = (
    QUEUE_RETENTION_RANGE,
    DEAD_LETTER_RETENTION_RANGE,
    compare(
        SUBJECT,
        "dead-letter-retention-minimum",
        "queue_retention",
        "dead_letter_retention",
        broken=lambda plan: plan.dead_letter_retention < plan.queue_retention,
        times=lambda plan: {"dead_letter_retention": plan.dead_letter_retention, "retention": plan.queue_retention},
        what="the dead-letter queue's retention is {dead_letter_retention} and the queue's retention is {retention}",
        why="SQS counts the retention from the time at which a message was first sent",
        fix="Give the dead-letter queue a retention of at least {retention}",
    ),
    compare(
        SUBJECT,
        "visibility-covers-function",
        "visibility_timeout",
        "processing_timeout",
        "max_batching_window",
        broken=lambda plan: plan.visibility_timeout < plan.function_timeout + plan.max_batching_window,
        times=lambda plan: {
            "visibility": plan.visibility_timeout,
            "function": plan.function_timeout,
            "least": plan.function_timeout + plan.max_batching_window,
        },
        what="the queue's visibility_timeout is {visibility} and the function's timeout is {function}",
        why="it must be at least {least} (the timeout and the batching window)",
        fix="Set visibility_timeout to at least {least}, or omit it",
    ),
    compare(
        SUBJECT,
        "lease-within-visibility",
        "visibility_timeout",
        "processing_timeout",
        "clock_skew",
        broken=lambda plan: plan.visibility_timeout < plan.lease,
        times=lambda plan: {"visibility": plan.visibility_timeout, "lease": plan.lease},
        what="the queue's visibility_timeout is {visibility} and the lease can last {lease}",
        why="SQS would deliver a message again while the claim of a dead worker still holds",
        fix="Set visibility_timeout to at least {lease}, or omit it",
    ),
    compare(
        SUBJECT,
        "visibility-within-12-hours",
        "processing_timeout",
        "clock_skew",
        "max_batching_window",
        broken=lambda plan: plan.visibility > 12 * HOUR,
        times=lambda plan: {"visibility": plan.visibility},
        what="the queue's visibility timeout would be {visibility}",
        why="SQS allows 12 hours at most",
        fix="Set a shorter visibility_timeout",
    ),
    compare(
        SUBJECT,
        "attempts-within-retention",
        "queue_retention",
        "max_attempts",
        "min_backoff",
        "max_backoff",
        "processing_timeout",
        "clock_skew",
        "max_batching_window",
        broken=lambda plan: plan.queue_retention < plan.retry_time,
        times=lambda plan: {"retention": plan.queue_retention, "retry_time": plan.retry_time},
        numbers=("max_attempts",),
        what="the queue's retention is {retention} and {max_attempts} attempts can take {retry_time}",
        why="SQS would delete the message before its last attempt",
        fix="Set a longer retention, fewer attempts or a shorter backoff",
    ),
    compare(
        SUBJECT,
        "ledger-retention-minimum",
        "ledger_retention",
        "queue_retention",
        "dead_letter_retention",
        "audit_interval",
        broken=lambda plan: plan.ledger_retention < plan.least_ledger_retention,
        times=lambda plan: {
            "ledger_retention": plan.ledger_retention,
            "least": plan.least_ledger_retention,
            "retention": plan.queue_retention,
            "dead_letter_retention": plan.dead_letter_retention,
            "interval": plan.audit_interval,
        },
        what="the ledger's retention is {ledger_retention}",
        why=(
            "a change can come back after {least} (twice the queue's {retention}, the dead-letter queue's "
            f"{{dead_letter_retention}}, the audit's interval of {{interval}} and {ABORT_MULTIPART_DAYS} days of "
            "multipart upload)"
        ),
        fix="Set the ledger's retention to at least {least}",
    ),
    between(SUBJECT, "resubmit_rate", 1, 5_000, "the messages that the audit sends in a second", show=number_text),
    between(SUBJECT, "backfill_rate", 1, 5_000, "the messages that a backfill sends in a second", show=number_text),
    between(SUBJECT, "audit_interval", MINUTE, 365 * DAY, "a rate that EventBridge Scheduler takes"),
    compare(
        SUBJECT,
        "look-back-within-ledger",
        "look_back",
        "ledger_retention",
        broken=lambda plan: plan.look_back > plan.ledger_retention,
        times=lambda plan: {"look_back": plan.look_back, "ledger_retention": plan.ledger_retention},
        what="the audit's look_back is {look_back} and the ledger deletes rows after {ledger_retention}",
        why="the audit would report objects whose rows have expired as missing",
        fix="Set a shorter look_back, or a longer retention of the ledger",
    ),
    compare(
        SUBJECT,
        "look-back-covers-uploads",
        "look_back",
        "settle_time",
        broken=lambda plan: plan.look_back < ABORT_MULTIPART_DAYS * DAY + plan.settle_time,
        times=lambda plan: {"look_back": plan.look_back, "least": ABORT_MULTIPART_DAYS * DAY + plan.settle_time},
        what="the audit's look_back is {look_back}",
        why=(
            f"a multipart upload has the date of its start, and may take {ABORT_MULTIPART_DAYS} days before the settle "
            "time begins"
        ),
        fix="Set look_back to at least {least}",
    ),
    compare(
        SUBJECT,
        "look-back-covers-interval",
        "look_back",
        "settle_time",
        "audit_interval",
        broken=lambda plan: plan.look_back < plan.audit_interval + plan.settle_time,
        times=lambda plan: {
            "look_back": plan.look_back,
            "interval": plan.audit_interval,
            "least": plan.audit_interval + plan.settle_time,
        },
        what="the audit's look_back is {look_back} and it runs every {interval}",
        why="the audit would never compare some objects that arrive between two runs",
        fix="Set look_back to at least {least}, or a shorter interval",
    ),
    between(SUBJECT, "audit_budget", 1, 10_000_000, "the messages that one run may send", show=number_text),
)
