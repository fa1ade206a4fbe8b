"""A recovery never delays fresh files: its messages share a message group, and SQS serves others first."""

from typing import Any, cast

import pytest

from intake_ledger_cli.aws import sending
from tests.unit.audit.support import AuditWorld

SLOTS, WORK, FRESH = 50, 2, 60
"""Messages in work at once, the seconds of each, and the number of fresh ones: one a second."""


def longest_wait(groups: list[str]) -> int:
    """The longest wait of a fresh message in seconds, behind messages of these groups. The rules are documented:
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues-detailed.html
    A group with 30 messages in flight that are more than a tenth of all is served after the others. A message without
    a group is a group of its own.
    """
    waiting = [(0, group or str(place)) for place, group in enumerate(groups)]
    in_work: list[tuple[int, str]] = []
    waits = []
    for now in range(len(groups) * WORK // SLOTS + FRESH * WORK):
        in_work = [(end, group) for end, group in in_work if end > now]
        if now < FRESH:
            waiting.append((now, f"fresh {now}"))
        while waiting and len(in_work) < SLOTS:
            held = [group for _, group in in_work]
            noisy = {one for one in set(held) if held.count(one) >= 30 and held.count(one) * 10 > len(held)}
            sent, group = taken = min(waiting, key=lambda one: (one[1] in noisy, one[0]))
            waiting.remove(taken)
            in_work.append((now + WORK, group))
            if group.startswith("fresh"):
                waits.append(now - sent)
    assert len(waits) == FRESH
    return max(waits)


def sent_by_an_audit(later: int = 0) -> list[dict[str, Any]]:
    """The entries of an audit that finds lost events."""
    world, entries = AuditWorld(), list[dict[str, Any]]()
    world.clock.advance(later)
    for number in range(30):
        world.s3.put(f"in/{number}")
    world.clock.advance(2 * world.settled_ms)
    send = world.sqs.send_message_batch

    def seen(**request: Any) -> Any:
        entries.extend(request["Entries"])
        return send(**request)

    cast("Any", world.sqs).send_message_batch = seen
    world.run()
    return entries


def sent_by_an_operation(queue_url: str = "https://sqs/queue") -> list[dict[str, Any]]:
    """The entries of a command."""
    entries = list[dict[str, Any]]()

    class Queue:
        def send_message_batch(self, **request: Any) -> dict[str, Any]:
            entries.extend(request["Entries"])
            return {}

    messages = [sending.OutgoingMessage(str(number), group="g", operation="op") for number in range(10)]
    sending.send(cast("Any", Queue()), queue_url, messages)
    return entries


@pytest.mark.failure_mode("F747")
@pytest.mark.parametrize("entries", [sent_by_an_audit, sent_by_an_operation])
def test_fresh_messages_overtake_a_recovery(entries: Any) -> None:
    made = entries()
    [group] = {one["MessageGroupId"] for one in made}
    assert group
    assert len(made) >= 10
    assert longest_wait([group] * 1_000) <= WORK
    assert longest_wait([""] * 1_000) > 10 * WORK, "the model has a backlog"


def test_two_runs_are_two_groups() -> None:
    """An urgent one does not stand behind a long one."""
    first, second = ({one["MessageGroupId"] for one in sent_by_an_audit(later)} for later in (0, 1))
    assert not first & second


def test_a_fifo_queue_keeps_the_order_of_its_groups() -> None:
    assert {one["MessageGroupId"] for one in sent_by_an_operation("https://sqs/queue.fifo")} == {"g"}
