"""The verdict of `status`, from its document."""

from dataclasses import fields
from typing import Any

import pytest

from intake_ledger_cli.act.recording import OpenOperation
from intake_ledger_cli.aws import executions
from intake_ledger_cli.aws.consumer_log import FunctionErrors
from intake_ledger_cli.aws.metrics import LastHour, Tick
from intake_ledger_cli.aws.reading import AuditState
from intake_ledger_cli.read.counting import Count
from intake_ledger_cli.read.status import (
    Alarm,
    BreakerState,
    BreakerStatus,
    NotRead,
    PauseRecord,
    PipelineStatus,
    QueueDepth,
)
from intake_ledger_cli.read.verdict import findings_of, verdict_lines
from tests.unit.support import HOUR, MINUTE, START

NOW = START + HOUR
EMPTY = QueueDepth(0, 0, 0, None)
NONE = Count(0)
HOUR_OF = LastHour(0, 0, 0, None, 0, None, 0, 0)
ARN = "arn:aws:states:eu-central-1:111122223333:execution:m:x"
ABORTED = executions.AbortedExecution("in/a", ARN, NOW - MINUTE)
OPERATION = OpenOperation("01K", "retry --reason x --id 01K", "ana", START, "340 of 3,000 served", stopped=False)


def waits(number: int, since: int = START) -> Count:
    return Count(number, "", since, since)


def audited(**report: Any) -> AuditState:
    return AuditState({"counts": {}, "delivery": [], **report}, running=False, due_at=None, sending=None)


def status_of(**parts: Any) -> PipelineStatus:
    """A status without findings, with some parts replaced."""
    names = [one.name for one in fields(PipelineStatus)]
    counts = ("failed", "rejected", "dismissed", "removed", "rejected_rows", "waiting", "later_format")
    known: dict[str, Any] = dict.fromkeys(names) | dict.fromkeys(counts, NONE)
    known |= {"pipeline": "Intake", "bucket": "b", "kind": "objects", "at": NOW, "consumer": "Enabled", "queue": EMPTY}
    known |= {"dead_letters": EMPTY, "last_hour": HOUR_OF, "breaker": BreakerState(BreakerStatus.CLOSED), "alarms": []}
    known |= {"audit": audited(), "operations": [], "from_stream": False, "tick": Tick(NOW, 0)}
    return PipelineStatus(**known | parts)


PAUSED = PauseRecord(START, "ana", "a move")
TEXT = (
    "Intake: new messages came (intake-ledger list --stack S --pipeline Intake; https://h/docs/runbooks.md#deadletters)"
)
ALARM = Alarm("A", "ALARM", TEXT)
CASES: list[Any] = [
    pytest.param({}, ["OK"], id="nothing"),
    pytest.param(
        {"function": FunctionErrors(3, at_start=True, text="No module named 'x'")},
        ["LOOK: the function cannot start: No module named 'x' -> cdk deploy, with code that starts"],
        id="cannot start",
    ),
    pytest.param(
        {"consumer": "Disabled"},
        ["LOOK: the consumer takes no messages (Disabled) -> intake-ledger resume"],
        id="disabled",
    ),
    pytest.param(
        {"consumer": "Disabled", "pause": PAUSED},
        ["LOOK: the consumer is paused by ana because a move (Disabled) -> intake-ledger resume"],
        id="paused",
    ),
    pytest.param({"consumer": "Disabled", "kind": "workers"}, ["OK"], id="workers"),
    pytest.param(
        {"breaker": BreakerState(BreakerStatus.OPEN, NOW - 2 * MINUTE, reason="HTTPError at i:4")},
        ["LOOK: the downstream fails for 2 minutes: HTTPError at i:4 -> fix it, then intake-ledger retry --waiting"],
        id="breaker",
    ),
    pytest.param({"tick": Tick(NOW, 2)}, ["LOOK: the delivery has 2 problems -> intake-ledger audit"], id="delivery"),
    pytest.param(
        {"failed": waits(2), "waiting": waits(3)},
        [
            (
                "LOOK: 5 rows wait for messages that the queue does not have: it was purged, or they have expired -> "
                "intake-ledger retry --waiting"
            )
        ],
        id="purge",
    ),
    pytest.param(
        {"failed": waits(1), "message_source": "sqs"},
        [
            (
                "LOOK: 1 row waits for messages that the queue does not have: it was purged, or they have expired -> "
                "send them again from their source"
            )
        ],
        id="purge of messages",
    ),
    pytest.param({"failed": waits(1, NOW - MINUTE)}, ["OK"], id="a message may be on its way"),
    pytest.param({"failed": waits(1), "queue": QueueDepth(0, 0, 1, None)}, ["OK"], id="a delayed copy"),
    pytest.param({"failed": waits(1), "from_stream": True}, ["OK"], id="a stream has no queue"),
    pytest.param(
        {"rejected": waits(5), "dead_letters": QueueDepth(2, 1, 0, None)},
        [
            (
                "LOOK: 2 rejected rows without a dead letter: it has expired, was purged, or was served before a "
                "restore of the table -> intake-ledger retry --prefix '' --dry-run"
            ),
            "also: 3 dead letters, and 5 rejected rows -> intake-ledger list --by-reason",
        ],
        id="some letters are gone",
    ),
    pytest.param(
        {"dead_letters": QueueDepth(2, 0, 0, None)},
        ["LOOK: 2 dead letters, and no rejected row -> intake-ledger retry --prefix '' --dry-run"],
        id="letters without rows",
    ),
    pytest.param(
        {"rejected": Count(0, "throttled")},
        ["LOOK: the number of rejected rows is unknown: throttled -> intake-ledger list --status REJECTED"],
        id="unknown",
    ),
    pytest.param(
        {"audit": audited(rows={"lapsed": 2}), "last_hour": LastHour(0, 0, 0, None, 0, None, 4, 0)},
        [
            (
                "LOOK: 2 claims of dead workers at the last audit, 4 invocations failed as a whole in the last hour -> "
                "intake-ledger list --status stuck"
            )
        ],
        id="dead workers",
    ),
    pytest.param(
        {"aborted": [ABORTED]},
        ["LOOK: the execution of in/a was aborted 1 minute ago -> intake-ledger retry in/a"],
        id="aborted",
    ),
    pytest.param(
        {"alarms": [ALARM]},
        ["LOOK: in ALARM: new messages came -> read https://h/docs/runbooks.md#deadletters"],
        id="alarm",
    ),
    pytest.param(
        {"operations": [OPERATION]},
        ["OK", "also: retry --reason x --id 01K: 340 of 3,000 served -> intake-ledger operations stop 01K"],
        id="operation",
    ),
    pytest.param(
        {"operations": [OPERATION], "tick": Tick(NOW, 1), "consumer": "Disabled"},
        [
            "LOOK: the consumer takes no messages (Disabled) -> intake-ledger resume",
            "also: the delivery has 1 problem -> intake-ledger audit",
            "also: retry --reason x --id 01K: 340 of 3,000 served -> intake-ledger operations stop 01K",
        ],
        id="the worst first",
    ),
]


@pytest.mark.failure_mode("F720")
@pytest.mark.parametrize(("parts", "lines"), CASES)
def test_the_verdict_names_the_worst_finding_and_its_command(parts: dict[str, Any], lines: list[str]) -> None:
    assert verdict_lines(findings_of(status_of(**parts))) == lines


@pytest.mark.failure_mode("F720")
def test_what_may_not_be_read_is_no_finding() -> None:
    refused = NotRead("dynamodb:Query")
    keep = {"pipeline", "bucket", "kind", "at", "from_stream", "pause", "function", "message_source"}
    parts = {one.name: refused for one in fields(PipelineStatus) if one.name not in keep}
    assert findings_of(status_of(**parts)) == []
