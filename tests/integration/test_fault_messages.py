"""Test the judge of the fault runs of messages: each requirement is violated once."""

from dataclasses import replace

import pytest

from tests.local.faults.downstream import Call, Delivery
from tests.local.faults.judge import Row
from tests.local.faults.message_judge import MessageFacts, MessageLetter, MessagesExpected, Name, judge_messages

FIRST, SECOND, BAD = Name("a", "1"), Name("a", "2"), Name("a", "3")
LETTER = MessageLetter(BAD, "no amount in it")


def call(name: Name, fence: int, *, taken: bool = True, idempotency_key: str = "", started: float = 0) -> Call:
    """A call of one second. It starts at the second of its fence."""
    delivery = Delivery(
        key=name.key,
        version=name.identity,
        content="",
        attempt=1,
        fence=fence,
        idempotency_key=idempotency_key or f"{name.key}{name.identity}",
        pid=1,
    )
    return Call(delivery, started or fence, (started or fence) + 0.9, taken)


DONE = {FIRST: Row("PROCESSED", "a1"), SECOND: Row("PROCESSED", "a2")}
REJECTED = Row("REJECTED", "", "no amount in it")
ROWS = {**DONE, BAD: REJECTED}
CALLS = [call(FIRST, 1), call(BAD, 2, taken=False), call(SECOND, 3)]
RIGHT = MessageFacts(sent=[FIRST, FIRST, SECOND, BAD, SECOND], rows=ROWS, letters=[LETTER], calls=CALLS)
EXPECTED = MessagesExpected(poison={BAD: "no amount"}, ordered=True)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(RIGHT, rows={FIRST: ROWS[FIRST], BAD: REJECTED}), "a 2: no row"),
        (replace(RIGHT, rows={**ROWS, SECOND: Row("FAILED", "")}), "a 2: the ledger says FAILED"),
        (replace(RIGHT, rows={**ROWS, SECOND: Row("PROCESSED", "a1")}), "a 2: the ledger has committed 'a1'"),
        (replace(RIGHT, calls=[call(FIRST, 1)]), "a 2: no effect"),
        (replace(RIGHT, calls=[call(FIRST, 1), call(SECOND, 2, taken=False)]), "a 2: no effect"),
        (replace(RIGHT, calls=[*CALLS, call(SECOND, 4)]), "repeated without a killed worker"),
        (replace(RIGHT, calls=[*CALLS, call(SECOND, 4, idempotency_key="b")]), "had 2 idempotency keys"),
        (replace(RIGHT, calls=[CALLS[0], call(SECOND, 3, idempotency_key="a1")]), "has the idempotency key of a 1"),
        (replace(RIGHT, calls=[CALLS[0], call(SECOND, 3, started=1.5)]), "processed at the same time"),
        (replace(RIGHT, calls=[CALLS[0], call(BAD, 2, taken=False, started=1.5)]), "processed at the same time"),
        (replace(RIGHT, calls=[CALLS[0], call(SECOND, 1, started=5)]), "the fence went from 1 to 1"),
        (replace(RIGHT, calls=[call(SECOND, 1), call(FIRST, 2)]), "a 2 took effect before a 1"),
        (replace(RIGHT, behind={"shard-0": 0, "shard-1": 2}), "shard-1: 2 records are not done"),
        (replace(RIGHT, calls=[*CALLS, call(Name("b", "1"), 9)]), "b 1 was never sent"),
        (replace(RIGHT, letters=[LETTER, MessageLetter(FIRST, "HTTPError")]), "a 1: a dead letter"),
        (replace(RIGHT, letters=[]), "its dead letters are []"),
        (replace(RIGHT, letters=[LETTER, LETTER]), "its dead letters are"),
        (replace(RIGHT, letters=[MessageLetter(BAD, "")]), "its dead letters are ['']"),
        (replace(RIGHT, rows=DONE), "the ledger says nothing"),
        (replace(RIGHT, rows={**ROWS, BAD: Row("FAILED", "", "no amount in it")}), "says FAILED for"),
        (replace(RIGHT, rows={**ROWS, BAD: replace(REJECTED, reason="")}), "says REJECTED for ''"),
        (replace(RIGHT, calls=[*CALLS, call(BAD, 4)]), "yet it had an effect"),
    ],
)
def test_each_violation_is_found(facts: MessageFacts, problem: str) -> None:
    """One thing at a time is altered in facts that were right."""
    assert judge_messages(RIGHT, EXPECTED).right
    found = judge_messages(facts, EXPECTED).problems

    assert any(problem in one for one in found), found


def test_each_stamped_copy_of_a_rejected_message_has_a_dead_letter() -> None:
    """Only of sources that stamp their copies."""
    copied = MessageLetter(BAD, "a message with its key and identity was rejected before, and this one may have others")
    facts = replace(RIGHT, letters=[copied, LETTER, copied])
    assert judge_messages(facts, replace(EXPECTED, stamped=True)).right
    assert not judge_messages(facts, EXPECTED).right
    assert not judge_messages(replace(facts, letters=[copied]), replace(EXPECTED, stamped=True)).right
