"""Data that the runtime, the constructs, the command and the documents share: metrics, alarms and graphs.

A row of `ALARMS` makes the alarm of each kind of work, its description, its line in the dashboard and its line in
docs/runbooks.md, where each alarm has a section. This module imports no AWS, and no consumer needs it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

METRICS_NAMESPACE = "IntakeLedger"

OBJECTS: Final = "objects"
MESSAGES: Final = "messages"
SETS: Final = "sets"
KINDS: Mapping[str, str] = {OBJECTS: "IntakePipeline", MESSAGES: "MessageIntake", SETS: "FileSets"}
"""The kinds of work, and the construct of each."""

OUTCOME_INTAKES, OUTCOME_BUS = "INTAKE_OUTCOME_INTAKES", "INTAKE_OUTCOME_BUS"
"""The settings of the function of `OutcomeEvents`: the kind of work of each intake by name, and the bus."""
OUTCOME_SOURCE = "intake-ledger"
"""The `source` of the events that it sends."""
COMMITTED, REJECTED = "Intake Committed", "Intake Rejected"
_COMMON = ("pipeline", "bucket", "key", "id", "kind", "versionId", "etag", "size", "fence", "attempt", "idempotencyKey")
OUTCOME_DETAILS: Mapping[str, tuple[str, ...]] = {
    COMMITTED: (*_COMMON, "processorVersion", "commitId", "committedAt"),
    REJECTED: (*_COMMON, "processorVersion", "reason", "reasonCode"),
}
"""The possible fields of an event's `detail`, by its `detail-type`."""

MINUTE, HOUR, DAY = 60, 3_600, 86_400
AN_HOUR_OF_PERIODS = 12
"""Periods of five minutes."""
FOUND_AGAIN = "in two periods of five minutes within an hour"
RUNBOOKS: Final = "https://github.com/cdk-intake-ledger/cdk-intake-ledger/blob/main/docs/runbooks.md"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric that the functions write."""

    counts: str
    """The counted thing in Markdown, with links relative to docs."""
    statistic: str = "Sum"
    """The statistic when the user chooses none. A metric with another one than the sum is a time in milliseconds."""
    kinds: tuple[str, ...] = tuple(KINDS)
    """The kinds of work that write it."""
    reason: str = ""
    """The reason why other kinds do not write it. Empty if all do."""


_OF_FILES = (OBJECTS, SETS)
_DELIVERED = (OBJECTS, MESSAGES)
_OF_PARTS = "the path from S3 ends at the pipeline of the parts"
_NO_OBJECTS = "the work is not an object of S3"

METRICS: Mapping[str, MetricRow] = {
    "Accepted": MetricRow("claims: calls of the processor that were about to begin"),
    "AlreadyRejected": MetricRow("messages about a rejected state"),
    "AuditDeliveryProblems": MetricRow(
        "differences between the deployed path from S3, or from the source of messages, and the actual one, at each "
        "tick",
        kinds=_DELIVERED,
        reason=_OF_PARTS,
    ),
    "AuditDeliveryUnknown": MetricRow(
        "parts of that path that a tick could not judge, if there are any",
        kinds=_DELIVERED,
        reason=_OF_PARTS,
    ),
    "AuditFindings": MetricRow("keys on which S3 and the ledger differed"),
    "AuditIncomplete": MetricRow(
        "calls of the audit that ended before their run did",
        kinds=(OBJECTS,),
        reason="a check that needs several runs continues at the next one",
    ),
    "AuditResubmitted": MetricRow(
        "messages that were sent for these keys",
        kinds=_OF_FILES,
        reason="the ledger does not have the content of messages",
    ),
    "AuditRuns": MetricRow("audits that finished, and the first tick of `IntakePipeline`"),
    "BreakerOpen": MetricRow(
        "messages that returned to the queue without an attempt because the downstream seemed to be out"
    ),
    "Busy": MetricRow(
        "changes that could not be claimed: another worker held the key, the next attempt was not due, or "
        "the row changed at each try. Their messages return to the queue",
    ),
    "CommitLag": MetricRow(
        "milliseconds from S3's event to the end of the attempt that was committed. Messages of the audit and of "
        "`retry --again` report no event",
        statistic="Maximum",
    ),
    "Committed": MetricRow("states that were processed and committed"),
    "ConsumerErrors": MetricRow("messages whose handling failed in AWS or in this library"),
    "Copies": MetricRow("batches with messages that wait as [delayed copies](protocol.md#waiting)"),
    "CopiesLost": MetricRow(
        "redriven messages that no queue has any more, although no attempt has begun. Their rows say `copy_lost`",
        kinds=(MESSAGES,),
        reason="the audit sends the requests of people for objects and sets again",
    ),
    "CopiesRefused": MetricRow(
        "copies of rejected or unreadable messages that the dead-letter queue did not take. The messages "
        "stay in the queue",
    ),
    "DirectoryMarkers": MetricRow(
        "[directory markers](protocol.md#directory-markers), and removals of them, that were skipped",
        kinds=(OBJECTS,),
        reason=_NO_OBJECTS,
    ),
    "DuplicateAge": MetricRow(
        "milliseconds from the commit of a state to each further message about it, without requests to reprocess",
        statistic="Maximum",
    ),
    "Duplicates": MetricRow("messages about a state that was already committed"),
    "Excluded": MetricRow(
        "messages about keys that [`exclude`](options.md#leave-files-out) leaves out",
        kinds=(OBJECTS,),
        reason=_NO_OBJECTS,
    ),
    "Exhausted": MetricRow("last attempts without an outcome"),
    "ExpiredSets": MetricRow(
        "messages of sets that are [older than the retention and have no row](file-sets.md#limits). Most are late "
        "copies and removals, so no alarm watches them",
        kinds=(SETS,),
        reason="only sets have members whose rows expire before the set",
    ),
    "Failed": MetricRow("attempts that failed and will be repeated"),
    "Fenced": MetricRow(
        "commits, failures, rejections and releases that were refused, since another attempt had claimed the row"
    ),
    "FilteredOut": MetricRow(
        "changes of keys outside the pipeline's filters. Another sender uses the queue, or the filters were narrowed",
        kinds=_OF_FILES,
        reason="messages have no filters: the source filters",
    ),
    "Forgotten": MetricRow(
        "messages that were sent before a person had their key [forgotten](forget.md). Nothing was done, and the log "
        "line has no key"
    ),
    "IdentityCollisions": MetricRow(
        "messages with [other content](messages.md#identities-that-collide) than the earlier one of their key and "
        "identity",
        kinds=(MESSAGES,),
        reason="the content of an object has its own version or ETag",
    ),
    "LapsedLeases": MetricRow("leases that ended without an outcome, counted when another worker takes over"),
    "LateWrites": MetricRow(
        "late workers that may have written after their successor. The current state is processed again"
    ),
    "LaterFormat": MetricRow(
        "messages that returned to the queue because [a later release](operating.md#after-a-rollback) wrote the row"
    ),
    "LongWaits": MetricRow(
        "changes that wait for a tenth of `max_wait` (for a group, a tag or a rate), half of it (for `NotYet`), or "
        "`alarm_after` (sets), each once",
    ),
    "OldestClaimAge": MetricRow(
        "milliseconds since [the oldest claim without an outcome](monitoring.md#work-that-stays-in-processing) that "
        "was seen",
        statistic="Maximum",
    ),
    "OldestCopy": MetricRow(
        "milliseconds since the first sending of a message that waits as a [delayed copy](protocol.md#waiting). "
        "SQS's own age does not count delayed messages",
        statistic="Maximum",
    ),
    "OldestWait": MetricRow(
        "milliseconds for which a change has waited for its group, its rate or `NotYet`, at each look",
        statistic="Maximum",
        kinds=_DELIVERED,
        reason="`OldestWaitingSet` is the age of a set that waits",
    ),
    "OldestWaitingSet": MetricRow(
        "milliseconds for which the oldest waiting set waits for its parts or for its processor. A folder "
        "that still gets uploads does not count",
        statistic="Maximum",
        kinds=(SETS,),
        reason="only sets wait for other work of the ledger",
    ),
    "Overtaken": MetricRow(
        "executions that the pipeline [stopped](long-work.md#stop-overtaken-executions), since a newer version came",
        kinds=(OBJECTS,),
        reason="a message is never overtaken, and a set that changes may be incomplete for a while",
    ),
    "Recovering": MetricRow(
        "claims for messages of the audit and of a backfill, for requests of people and for copies of rejections. "
        "While there are any, [`OldestMessage`](runbooks.md#oldestmessage) calls no person",
    ),
    "Rejected": MetricRow("changes that were rejected"),
    "RejectedRows": MetricRow(
        "[rejected rows](outputs.md#rejected-rows) of files that were committed without them",
        kinds=_OF_FILES,
        reason="a message is one row: its processor raises `Unprocessable`",
    ),
    "RemovalsRecorded": MetricRow(
        "removals, without `deletes`",
        kinds=_OF_FILES,
        reason="messages are not removed",
    ),
    "RemovedUnprocessed": MetricRow(
        "objects that were [removed before they were processed](operating.md#removed-objects). With `deletes`, only "
        "those that left no row. Clients that rename cause them, so no alarm watches them",
        kinds=_OF_FILES,
        reason="messages are not removed",
    ),
    "Retries": MetricRow("claims for an attempt after the first. The effect may happen again"),
    "Stale": MetricRow("messages about a state that is no longer current"),
    "StartRefused": MetricRow(
        "executions that Step Functions or Lambda refused to start, or throttled. Each start is tried again, and no "
        "attempt is counted",
    ),
    "Started": MetricRow("executions that were started, if a state machine or a durable function is the processor"),
    "TagsRefused": MetricRow(
        "tags of committed versions (`after_commit`) that S3 did not take. The rows say why. They are tried again",
        kinds=(OBJECTS,),
        reason="a message has no version in S3, and a set's parts are tagged by their pipeline",
    ),
    "UnreadableMessages": MetricRow(
        "messages of an unknown format, with records of an unknown format, or with other content than a "
        "[rejected one](messages.md#after-a-rejection). Each becomes one message in the dead-letter queue, with "
        "`reason` and `unreadable_records`",
    ),
    "VersionGone": MetricRow(
        "versions that were deleted before they were read",
        kinds=_OF_FILES,
        reason="messages have no versions",
    ),
    "WaitedTooLong": MetricRow("changes that were rejected after `max_wait`"),
    "Waiting": MetricRow("attempts that ended because a prerequisite was missing"),
}
"""The metrics that the functions write, by name."""


class Source(StrEnum):
    """The thing whose metric an alarm watches."""

    LEDGER = "the ledger's functions"
    DEAD_LETTER_QUEUE = "the dead-letter queue"
    QUEUE = "the queue"
    CONSUMER = "the consumer's function"
    AUDIT = "the audit's function"
    OUTCOMES = "the function of `OutcomeEvents`"


class Call(StrEnum):
    """The composite alarms. They carry the actions, so a person is called once for all children that ring together.

    CloudWatch allows 100 children, which are in the account and the region of their composite. Its actions are SNS
    topics, Lambda functions, OpsItems and incidents. A further child of a composite in ALARM causes no action, so no
    child of `NEEDS_A_PERSON` rings for days for what a person leaves. A composite costs $0.50 a month.
    Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutCompositeAlarm.html
    """

    NOT_WORKING = "NotWorking"
    NEEDS_A_PERSON = "NeedsAPerson"

    @property
    def meaning(self) -> str:
        """The reason to look, as a part of a sentence."""
        return "the intake does not work" if self is Call.NOT_WORKING else "some work needs a decision of a person"


class Limit(StrEnum):
    """A threshold that follows from the options."""

    SETTLE_TIME = "`settle_time` of the audit (an hour for messages and sets)"
    LATE_AFTER = "`late_after` (an hour when omitted)"
    CLAIM_AGE = "the longest time of an attempt and `settle_time` of the audit (an hour for messages and sets)"


class Comparison(StrEnum):
    """The comparison of a value with the threshold."""

    AT_LEAST = "at least"
    ABOVE = "above"
    BELOW = "below"


class NoData(StrEnum):
    """The meaning of a period without data."""

    GOOD = "notBreaching"
    BAD = "breaching"
    SAME = "ignore"
    """The alarm keeps its state."""


class Need(StrEnum):
    """A property of the intake without which it does not have the alarm."""

    EXECUTIONS = "a state machine or a durable function as the processor"
    STREAM = "a stream as the source"
    TAGS = "a tag after the commit"


def _periods_without_an_audit(interval: float) -> int:
    """Return the periods of two intervals. The duration of runs differs, so there is one more than the interval has."""
    return math.ceil(interval / min(interval, DAY)) + 1


def _periods_of_incomplete_audits(interval: float) -> int:
    """Return the periods of two intervals, or one day: `AuditMissing` watches days without a run."""
    return 2 if interval <= DAY else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRow:
    """An alarm. The defaults are those of an alarm on one event in five minutes."""

    name: str
    metric: str
    meaning: str
    """The problem, as a part of a sentence."""
    graph: str
    """The title of the graph that shows the metric, in the dashboard of the kinds that have the alarm."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Other meanings, by the kind of work."""
    kinds: tuple[str, ...] = tuple(KINDS)
    """The kinds whose constructs have it. Empty: `OutcomeEvents` has it."""
    reason: str = ""
    """The reason why other kinds do not have it. Empty if all have it."""
    need: Need | None = None
    source: Source = Source.LEDGER
    other: str = ""
    """Another metric of the source, for the expression."""
    expression: str = ""
    """Metric math on `value` and `other`. `{threshold}` is the threshold. Empty for the plain metric."""
    call: Call | None = None
    """The composite alarm that it is a child of. None: it is made only if `alarms` names it."""
    no_call: str = ""
    """The reason why it calls nobody. Empty if it does."""
    first: str = "status"
    """The first command of a person, without the program's name."""
    label: str = ""
    """The name of the metric in the graph. Empty for the name in CloudWatch."""
    statistic: str = "Sum"
    period: int | None = 5 * MINUTE
    """In seconds. None for the interval of the audit, but a day at most, which is the longest period of CloudWatch."""
    comparison: Comparison = Comparison.AT_LEAST
    threshold: float | Limit = 1
    """In the unit of the metric."""
    periods: int | Callable[[float], int] = 1
    """The periods that are evaluated. A function gets the audit's interval in seconds."""
    needed: int | None = None
    """The number of these periods that have to be beyond the threshold. None for all."""
    no_data: NoData = NoData.GOOD
    condition: str = ""
    """The condition in words, if the numbers depend on the audit's interval. Empty for a text made of the numbers."""

    @property
    def runbook(self) -> str:
        """The address of its repair."""
        return f"{RUNBOOKS}#{self.name.lower()}"

    def description(self, name: str, kind: str, stack: str) -> str:
        """Return the text of the alarm of an intake with this name: the problem, the first command and the runbook."""
        return describe(name, self.meanings.get(kind, self.meaning), self.first, stack, self.runbook)


def describe(name: str, meaning: str, command: str, stack: str, runbook: str) -> str:
    """Return the text of an alarm, which a person may get as an e-mail."""
    return f"{name}: {meaning} (intake-ledger {command} --stack {stack} --pipeline {name}; {runbook})"


ALARMS = (
    AlarmRow(
        name="LongWaits",
        # Not an age, which would ring for days: the wait of each change counts once.
        metric="LongWaits",
        meaning="a change waits long for its group, its rate or a prerequisite, and is rejected after max_wait",
        meanings={SETS: "a set waits for its parts for too long, and is rejected after its deadline"},
        graph="Work that waits",
        call=Call.NEEDS_A_PERSON,
        first="list --status waiting",
    ),
    AlarmRow(
        name="DeadLetters",
        source=Source.DEAD_LETTER_QUEUE,
        metric="ApproximateNumberOfMessagesVisible",
        other="ApproximateNumberOfMessagesNotVisible",
        # SQS counts no message that it moves by maxReceiveCount as sent. A message that `retry` reads is hidden, not
        # new. SQS ends the data of an unused queue after six hours: then it is empty.
        expression="DIFF(FILL(value, 0) + FILL(other, 0))",
        meaning="new messages came into the dead-letter queue, each with its reason",
        graph="Messages",
        label="dead letters",
        # The average of a sum is the sum of the averages: the total stays the same while messages are hidden.
        statistic="Average",
        comparison=Comparison.ABOVE,
        threshold=0,
        condition="the messages of the dead-letter queue, visible and hidden, become more, in 5 minutes",
        call=Call.NEEDS_A_PERSON,
        first="list --by-reason",
    ),
    AlarmRow(
        name="OldestMessage",
        source=Source.QUEUE,
        # SQS ignores messages that were received three times or more: a retried failure is not a backlog.
        metric="ApproximateAgeOfOldestMessage",
        meaning="messages wait longer than the audit allows for",
        graph="Oldest message",
        statistic="Maximum",
        comparison=Comparison.ABOVE,
        threshold=Limit.SETTLE_TIME,
        periods=3,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="OldestCopy",
        metric="OldestCopy",
        # The age of a message that waits by NotYet ends at max_wait, three days by default.
        meaning="a message has waited as delayed copies for four days",
        graph="Oldest message",
        statistic="Maximum",
        comparison=Comparison.ABOVE,
        threshold=4 * DAY * 1000,
        no_call="each cause has its own alarm",
    ),
    AlarmRow(
        name="OldestClaim",
        metric="OldestClaimAge",
        # An older claim rings no more, so that it hides no other alarm for days.
        expression="IF(value - {threshold} < 43200000, value, 0)",
        meaning="a claim has had no outcome for longer than an attempt may take",
        graph="Oldest claim",
        statistic="Maximum",
        comparison=Comparison.ABOVE,
        threshold=Limit.CLAIM_AGE,
        period=HOUR,
        # Polls of an execution of weeks are eleven hours apart.
        periods=12,
        needed=1,
        condition=f"`OldestClaimAge` (maximum) is above {Limit.CLAIM_AGE}, by 12 hours at most, in 1 of the last 12 "
        "periods of 60 minutes",
        call=Call.NEEDS_A_PERSON,
        first="list --status stuck",
    ),
    AlarmRow(
        name="MessagesInFlight",
        source=Source.QUEUE,
        metric="ApproximateNumberOfMessagesNotVisible",
        # 80 % of SQS's limit. From half of it on, messages wait as copies, which are not in flight.
        meaning="SQS soon delivers no more messages, because so many are in flight",
        graph="Messages",
        label="in flight",
        statistic="Maximum",
        threshold=96_000,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="Rejected",
        metric="Rejected",
        meaning="changes were rejected",
        graph="Trouble",
        call=Call.NEEDS_A_PERSON,
        first="list --status REJECTED --by-reason",
    ),
    AlarmRow(
        name="CopiesRefused",
        metric="CopiesRefused",
        meaning="the dead-letter queue does not take copies of rejected messages, so they stay in the queue",
        graph="Trouble",
        call=Call.NOT_WORKING,
        first="list --status FAILED",
    ),
    AlarmRow(
        name="TagsRefused",
        metric="TagsRefused",
        meaning="S3 does not take the tags of committed versions",
        graph="Trouble",
        kinds=(OBJECTS,),
        reason="a message has no version in S3, and a set's parts are tagged by their pipeline",
        need=Need.TAGS,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="CopiesLost",
        metric="CopiesLost",
        meaning="redriven messages are in no queue any more, and no attempt has processed them",
        graph="Trouble",
        kinds=(MESSAGES,),
        reason="the audit sends the requests of people for objects and sets again",
        call=Call.NOT_WORKING,
        first="operations",
    ),
    AlarmRow(
        name="IdentityCollides",
        metric="IdentityCollisions",
        other="Committed",
        expression="value - FILL(other, 0)",
        # A sender that repeats with a new time has copies that differ, but not more of them than messages.
        meaning="more messages were taken for copies of others, with other content, than were processed",
        graph="Trouble",
        kinds=(MESSAGES,),
        reason="the content of an object has its own version or ETag",
        period=HOUR,
        comparison=Comparison.ABOVE,
        threshold=0,
        condition="`IdentityCollisions` less `Committed` is above 0, in 60 minutes",
        call=Call.NEEDS_A_PERSON,
        first="list --limit 5",
    ),
    AlarmRow(
        name="Fenced",
        metric="Fenced",
        meaning="a worker outlived its lease",
        graph="Trouble",
        no_call="the ledger refused the late write",
    ),
    AlarmRow(
        name="WaitedTooLong",
        metric="WaitedTooLong",
        meaning="a prerequisite of the processor was missing for longer than max_wait",
        graph="Work that waits",
        no_call="`Rejected` calls",
        first="list --status REJECTED",
    ),
    AlarmRow(
        name="Retries",
        metric="Retries",
        meaning="ten or more retries in three of the last twelve periods of five minutes",
        graph="Repeated attempts",
        # Fewer retries come from a few bad files.
        threshold=10,
        # An outage of minutes needs no operator.
        periods=AN_HOUR_OF_PERIODS,
        needed=3,
        no_call="`Rejected` calls after the last attempt",
    ),
    AlarmRow(
        name="LapsedLeases",
        metric="LapsedLeases",
        # The ledger repairs one case.
        meaning=f"workers die in their attempts, {FOUND_AGAIN}",
        graph="Repeated attempts",
        periods=AN_HOUR_OF_PERIODS,
        needed=2,
        no_call="`ConsumerFunctionErrors` calls, and `Rejected` after the last attempt",
    ),
    AlarmRow(
        name="ConsumerFunctionErrors",
        source=Source.CONSUMER,
        metric="Errors",
        meaning=f"the consumer function fails or times out, {FOUND_AGAIN}",
        graph="Functions",
        label="consumer errors",
        periods=AN_HOUR_OF_PERIODS,
        needed=2,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="ConsumerFunctionThrottles",
        source=Source.CONSUMER,
        metric="Throttles",
        meaning="the consumer function has been throttled for a quarter of an hour",
        graph="Functions",
        label="consumer throttles",
        # Lambda throttles briefly when many messages arrive at the same time.
        periods=3,
        no_call="`OldestMessage` calls if messages wait",
    ),
    AlarmRow(
        name="AuditFunctionErrors",
        source=Source.AUDIT,
        metric="Errors",
        meaning=f"the audit function fails or times out, {FOUND_AGAIN}",
        graph="Functions",
        label="audit errors",
        kinds=(OBJECTS,),
        reason="the consumer's function runs their check, so `ConsumerFunctionErrors` watches it",
        periods=AN_HOUR_OF_PERIODS,
        needed=2,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="StartRefused",
        metric="StartRefused",
        meaning=f"AWS refuses to start executions, {FOUND_AGAIN}",
        graph="Trouble",
        need=Need.EXECUTIONS,
        periods=AN_HOUR_OF_PERIODS,
        needed=2,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="DownstreamOut",
        metric="BreakerOpen",
        meaning="the downstream has been out for hours, messages wait untried",
        graph="Trouble",
        # In a long outage, messages come back rarely: not in each hour.
        period=HOUR,
        periods=4,
        needed=2,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="AuditFindings",
        metric="AuditFindings",
        meaning="the audit found keys that differ between S3 and the ledger",
        meanings={
            MESSAGES: "no message has continued unfinished rows for hours",
            SETS: "the audit found sets that nothing had processed",
        },
        graph="Audit",
        call=Call.NEEDS_A_PERSON,
        first="audit --last",
    ),
    AlarmRow(
        name="AuditDeliveryProblems",
        metric="AuditDeliveryProblems",
        meaning="the path from S3 to the ledger is not what was deployed",
        meanings={MESSAGES: "the path from the source to the function is not what was deployed"},
        graph="Audit",
        kinds=_DELIVERED,
        reason=_OF_PARTS,
        statistic="Maximum",
        # A single tick is enough. Between two ticks there are no data, and the problem remains.
        no_data=NoData.SAME,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="AuditIncomplete",
        metric="AuditIncomplete",
        meaning="the audit does not get through the bucket",
        graph="Audit",
        kinds=(OBJECTS,),
        reason="a check that needs several runs continues at the next one",
        # A run may need several invocations, and the last one writes 0.
        statistic="Minimum",
        period=None,
        periods=_periods_of_incomplete_audits,
        condition="all calls of the audit in two intervals ended before their run did (in one day, if it runs less "
        "often than daily)",
        call=Call.NOT_WORKING,
        first="audit --last",
    ),
    AlarmRow(
        name="AuditMissing",
        metric="AuditRuns",
        meaning="no audit has finished in time",
        graph="Audit",
        period=None,
        comparison=Comparison.BELOW,
        periods=_periods_without_an_audit,
        # A run that did not start writes no data.
        no_data=NoData.BAD,
        condition="no audit finished in two intervals (sets: two hours, messages: twelve hours)",
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="IteratorAge",
        source=Source.CONSUMER,
        metric="IteratorAge",
        meaning="records of the stream wait longer than an hour",
        graph="Age of records in the stream",
        kinds=(MESSAGES,),
        reason="they have no source but a queue",
        need=Need.STREAM,
        statistic="Maximum",
        comparison=Comparison.ABOVE,
        threshold=HOUR * 1_000,
        periods=3,
        call=Call.NOT_WORKING,
    ),
    AlarmRow(
        name="OutcomeEventsLate",
        source=Source.OUTCOMES,
        metric="IteratorAge",
        meaning="outcome events wait, and are lost after 24 hours",
        graph="Age of records in the stream",
        kinds=(),
        reason="one function sends the outcomes of all intakes of a ledger",
        statistic="Maximum",
        comparison=Comparison.ABOVE,
        threshold=Limit.LATE_AFTER,
        no_call="it serves several intakes: add an action",
    ),
)
"""All alarms. `alarms` of a construct has this order."""

GRAPHS: Mapping[str, tuple[str, ...]] = {
    "Changes": ("Accepted", "Committed"),
    "Answered without work": ("Duplicates", "Stale", "Busy"),
    "Repeated attempts": (),
    "From event to commit": ("CommitLag", "DuplicateAge"),
    "Functions": (),
    "Trouble": ("Failed", "UnreadableMessages", "LaterFormat"),
    "Work that waits": ("Waiting",),
    "Messages": (),
    "Oldest message": (),
    "Oldest claim": (),
    "Oldest wait": ("OldestWait", "OldestWaitingSet"),
    "Age of records in the stream": (),
    "Audit": ("AuditResubmitted",),
}
"""The graphs of a dashboard by title, with their metrics besides those of the alarms."""
