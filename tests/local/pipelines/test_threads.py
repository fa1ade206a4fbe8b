"""Process three records at once while one processor hangs. The consumer ends its process. The others are processed."""

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.conftest import Outputs
from tests.local.support import TIMEOUT, Catalogue

HUNG = ("hangs-once.bin", "hangs-always.bin")
NEIGHBOURS = ("a.bin", "b.bin", "c.bin")


@pytest.fixture(scope="module")
def threads(aws: LocalAws, outputs: Outputs) -> Catalogue:
    found = outputs["Local"]
    return Catalogue.of(aws, found, "Threads", effects_table=found["EffectsTable"])


@pytest.fixture(scope="module")
def versions(threads: Catalogue) -> dict[str, str]:
    """Upload all keys and return their versions. All messages are in one batch."""
    mapping, queue = threads.aws.client("lambda"), threads.aws.client("sqs")
    [source] = mapping.list_event_source_mappings(FunctionName=threads.function)["EventSourceMappings"]
    mapping.update_event_source_mapping(UUID=source["UUID"], Enabled=False)
    put = {key: threads.put(key, key.encode()) for key in (*HUNG, *NEIGHBOURS)}

    def all_there() -> bool:
        name = "ApproximateNumberOfMessages"
        answer = queue.get_queue_attributes(QueueUrl=threads.queue, AttributeNames=[name])
        return int(answer["Attributes"][name]) >= len(put)

    threads.aws.wait_until(all_there, "every upload has its message", timeout=TIMEOUT)
    mapping.update_event_source_mapping(UUID=source["UUID"], Enabled=True)
    return put


@pytest.mark.failure_mode("F20")
def test_the_process_ends_and_a_new_one_goes_on(threads: Catalogue, versions: dict[str, str]) -> None:
    """A thread that hangs cannot be stopped in another way. The next attempt has the effect, once."""
    second = threads.effect(HUNG[0], versions[HUNG[0]])
    assert second["attempt"] == 2
    assert second["process"] not in {threads.effect(key, versions[key])["process"] for key in NEIGHBOURS}

    threads.drained()
    first, *_ = [one["keys"] for one in threads.aws.records(threads.function) if one["message"] == "the process ends"]
    assert sorted(first) == sorted(HUNG)
    assert [one["attempt"] for one in threads.effects(HUNG[0])] == [2]


@pytest.mark.failure_mode("F44")
def test_one_that_hangs_at_every_attempt_is_rejected_with_its_reason(
    threads: Catalogue, versions: dict[str, str]
) -> None:
    """Its row does not say PROCESSING for ever, and its copy is in the dead-letter queue."""
    letter = threads.rejected(versions[HUNG[1]])
    assert "ran longer than its limit of 5 s" in letter["MessageAttributes"]["reason"]["StringValue"]
    row = threads.aws.wait_until(
        lambda: row if (row := threads.ledger_row(HUNG[1])).get("status") == "REJECTED" else {}, "the rejection"
    )
    assert row["attempts"] == 2
    assert threads.effects(HUNG[1]) == []


@pytest.mark.failure_mode("F20")
def test_the_neighbours_of_one_that_hangs_are_done_once(threads: Catalogue, versions: dict[str, str]) -> None:
    """The invocation fails, but messages of earlier records are deleted and do not come back as duplicates."""
    for key in NEIGHBOURS:
        assert threads.effect(key, versions[key])["attempt"] == 1

    threads.drained()
    for key in NEIGHBOURS:
        assert [one["message"] for one in threads.decisions(key)] == ["committed"]
        assert len(threads.effects(key)) == 1
