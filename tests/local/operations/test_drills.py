"""Drills: data, queues and settings are lost, and the steps of docs/drills.md repair them.

`make drills` runs them, together with the drills of a rename, a takeover and a rollback. The tests run in this order on
one deployment. Each begins with a clean audit and right effects, and ends with them.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalAws
from intake_ledger.protocol.change import State, StateKind
from intake_ledger_cli.act import forgetting
from tests.local import cloudformation
from tests.local.operations.drills import CODE, EFFECT, EFFECTS, OBJECTS, REPLICA, STACK, Drilled
from tests.local.operations.test_runbook_filters import filter_of
from tests.local.support import TIMEOUT
from tests.unit.support import notification, record

FIRST = [f"first/{number}.csv" for number in range(OBJECTS)]


@pytest.fixture(scope="module")
def deployed(aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Drilled:
    drilled = Drilled(aws, tmp_path_factory.mktemp("drills"))
    aws.client("s3").create_bucket(Bucket=cloudformation.ASSETS)
    key: dict[str, Any] = {"AttributeName": "file"}
    aws.client("dynamodb").create_table(
        TableName=EFFECTS,
        KeySchema=[key | {"KeyType": "HASH"}],
        AttributeDefinitions=[key | {"AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    drilled.deploy("first")
    drilled.upload(*FIRST)
    drilled.processed()
    return drilled


@pytest.fixture
def drilled(deployed: Drilled) -> Iterator[Drilled]:
    """The pipeline after an audit that is clean. At the end of the drill bucket, rows, queues and effects agree."""
    assert deployed.repaired() == {}
    yield deployed
    deployed.repaired()
    deployed.aws.wait_until(lambda: deployed.disagreements() == [], "all stores agree", timeout=90)


def more_calls(before: dict[str, str], after: dict[str, str]) -> dict[str, int]:
    """Calls of the processor since `before`, by key."""
    calls = {key: int(count) - int(before.get(key, "0")) for key, count in after.items()}
    return {key: count for key, count in calls.items() if count}


@pytest.mark.failure_mode("F182")
def test_rows_are_put_back_from_an_export(drilled: Drilled) -> None:
    """Changes since the export are found and processed again. The others are not."""
    exported = drilled.rows()
    drilled.upload("since/new.csv")
    drilled.upload(FIRST[0], content="2 EUR")
    drilled.delete(FIRST[1])
    drilled.processed()
    calls = drilled.effects("calls")

    client, table = drilled.client("dynamodb"), drilled["Ledger"]
    for item in drilled.rows():
        client.delete_item(TableName=table, Key={name: item[name] for name in ("pk", "sk")})
    for item in exported:
        client.put_item(TableName=table, Item=item)

    found = drilled.repaired()
    assert sum(found.values()) == 3, found
    again = more_calls(calls, drilled.effects("calls"))
    assert again == dict.fromkeys(("since/new.csv", FIRST[0], FIRST[1]), 1)


@pytest.mark.failure_mode("F182")
def test_a_lost_table_is_created_again(drilled: Drilled) -> None:
    """Each object is processed again once. Its new fence is higher than the lost one, so its effect is accepted."""
    client, table = drilled.client("dynamodb"), drilled["Ledger"]
    fences, calls = drilled.effects("fence"), drilled.effects("calls")
    form = client.describe_table(TableName=table)["Table"]
    client.update_table(TableName=table, DeletionProtectionEnabled=False)
    client.delete_table(TableName=table)
    indexes = [
        {name: index[name] for name in ("IndexName", "KeySchema", "Projection")}
        for index in form["GlobalSecondaryIndexes"]
    ]
    client.create_table(
        TableName=table,
        KeySchema=form["KeySchema"],
        AttributeDefinitions=form["AttributeDefinitions"],
        GlobalSecondaryIndexes=indexes,
        BillingMode="PAY_PER_REQUEST",
    )
    drilled.finish_table()

    drilled.repaired()
    now = drilled.effects("fence")
    objects = {key for key, content in drilled.wanted().items() if content}
    assert {key: count for key, count in more_calls(calls, drilled.effects("calls")).items() if key in objects} == (
        dict.fromkeys(objects, 1)
    )
    assert all(int(now[key]) > int(fences[key]) for key in objects)


@pytest.mark.failure_mode("F183")
@pytest.mark.failure_mode("F430")
def test_a_purged_queue_loses_no_change_and_no_request(drilled: Drilled) -> None:
    """Two changes, a reprocess of finished work, and a redrive of a rejected file."""
    drilled.upload("purged/bad.csv", content="bad")
    drilled.aws.wait_until(lambda: drilled.dead_letters() == 1, "a file is rejected", timeout=TIMEOUT)
    drilled.fix()
    calls = drilled.effects("calls")
    drilled.command("pause", "--because", "drill", "--yes")
    drilled.upload("purged/new.csv")
    drilled.upload(FIRST[2], content="purged")
    drilled.command("retry", "--again", FIRST[5], "--yes")
    drilled.command("retry", "--prefix", "", "--yes")
    drilled.aws.wait_until(lambda: drilled.messages("Queue") >= 4, "the messages wait", timeout=TIMEOUT)
    drilled.client("sqs").purge_queue(QueueUrl=drilled["Queue"])
    assert any("paused by" in problem for problem in drilled.audit()["delivery"])
    drilled.command("resume", "--yes")
    assert [one["outstanding"] for one in drilled.requests()] == [1, 1]

    def served() -> bool:
        drilled.audit()
        return [one["outstanding"] for one in drilled.requests()] == [0, 0]

    drilled.repaired()
    drilled.aws.wait_until(served, "the requests are served", timeout=TIMEOUT)
    changed = ("purged/new.csv", "purged/bad.csv", FIRST[2], FIRST[5])
    assert more_calls(calls, drilled.effects("calls")) == dict.fromkeys(changed, 1)
    assert (drilled.effects()["purged/new.csv"], drilled.effects()[FIRST[2]]) == ("1 EUR", "purged")


@pytest.mark.failure_mode("F183")
def test_a_removed_notification_is_reported_and_its_losses_are_found(drilled: Drilled) -> None:
    calls = drilled.effects("calls")
    with drilled.no_notification():
        drilled.upload("unseen/new.csv")
        drilled.upload(FIRST[3], content="unseen")
        drilled.delete(FIRST[4])
        assert any("notif" in problem for problem in drilled.audit()["delivery"])
    drilled.repaired()
    assert more_calls(calls, drilled.effects("calls")) == dict.fromkeys(("unseen/new.csv", FIRST[3], FIRST[4]), 1)


@pytest.mark.thorough
@pytest.mark.failure_mode("F434")
def test_a_wrong_reprocess_is_stopped(drilled: Drilled) -> None:
    """Its messages wait in the queue, and are withdrawn without an attempt."""
    calls, sqs, queue = drilled.effects("calls"), drilled.client("sqs"), drilled["Queue"]
    names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

    def waiting() -> int:
        return sum(map(int, sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"].values()))

    drilled.command("pause", "--because", "drill", "--yes")
    drilled.command("retry", "--again", FIRST[2], FIRST[5], "--yes")
    drilled.aws.wait_until(lambda: waiting() >= 2, "the messages wait", timeout=TIMEOUT)
    wrong = drilled.requests()[0]["requestId"]
    stopped = drilled.command("operations", "stop", wrong, "--because", "the wrong files", "--yes")
    assert stopped["outstanding"] == 2
    drilled.command("resume", "--yes")
    drilled.aws.wait_until(lambda: waiting() == 0, "the messages are withdrawn", timeout=TIMEOUT)
    drilled.repaired()
    assert more_calls(calls, drilled.effects("calls")) == {}
    [last, *_] = drilled.requests()
    assert (last["requestId"], "stoppedAt" in last) == (wrong, True)


@pytest.mark.thorough
@pytest.mark.failure_mode("F441")
def test_a_deletion_request_is_served(drilled: Drilled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of docs/forget.md. A message of before comes after it, and the bucket, the rows and the queues are
    searched. The processor was told of the removal, so its effect is empty.
    """
    key, client = "people/ana.csv", drilled.client("s3")
    drilled.upload(key)
    drilled.processed()
    drilled.delete(key)
    drilled.processed()
    found = client.list_object_versions(Bucket=drilled["Bucket"], Prefix=key)
    for one in (*found["Versions"], *found["DeleteMarkers"]):
        client.delete_object(Bucket=drilled["Bucket"], Key=key, VersionId=one["VersionId"])
    assert drilled.command("wait", "--prefix", "first/", "--expect", "1", "--until", "1m")["outcome"] == "committed"

    def finished() -> bool:
        """No message of the removals is left."""
        return not drilled.client("sqs").receive_message(QueueUrl=drilled["Queue"], VisibilityTimeout=0).get("Messages")

    drilled.aws.wait_until(finished, "the removals are handled", timeout=TIMEOUT)
    age(drilled, key)
    monkeypatch.setattr(forgetting.Forgetting, "wait", lambda _: None)
    done = drilled.command("forget", key, "--because", "ticket 4711", "--yes")
    assert (done["rows"], done["unfinished"]) == (1, False)
    drilled.put_code(CODE)  # the minute for which environments remember that no key was forgotten
    calls = drilled.effects("calls")[key]
    body = notification(record(key, State(StateKind.OBJECT, "v1", "e", 1), bucket=drilled["Bucket"]))
    drilled.client("sqs").send_message(QueueUrl=drilled["Queue"], MessageBody=body)
    drilled.aws.wait_until(lambda: "FORGOTTEN" in log_of(drilled), "the message is refused", timeout=TIMEOUT)
    assert not [row for row in drilled.rows() if key in str(row)]
    for queue in (drilled["Queue"], drilled["Dead"]):
        assert not drilled.client("sqs").receive_message(QueueUrl=queue, VisibilityTimeout=0).get("Messages")
    assert not client.list_object_versions(Bucket=drilled["Bucket"], Prefix=key).get("Versions")
    assert (drilled.effects()[key], drilled.effects("calls")[key]) == ("", calls)
    drilled.client("dynamodb").delete_item(TableName=EFFECTS, Key={"file": {"S": key}})


@pytest.mark.thorough
@pytest.mark.failure_mode("F684")
def test_a_restored_table_forgets_and_stops_again(drilled: Drilled, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the restore point, a person was forgotten, a pause began, a reprocess was stopped, a rejected file was
    dismissed, and another one served.
    """
    key, served, test, wrong = "people/bea.csv", "restored/served.csv", "restored/test.csv", FIRST[2]
    client, table = drilled.client("dynamodb"), drilled["Ledger"]
    monkeypatch.setattr(forgetting.Forgetting, "wait", lambda _: None)
    drilled.upload(key)
    drilled.processed()
    drilled.put_code(broken('    if content == "amount": raise Unprocessable("no amount")\n'))
    drilled.upload(served, test, content="amount")
    drilled.aws.wait_until(lambda: drilled.dead_letters() == 2, "two files are rejected", timeout=TIMEOUT)
    point = drilled.rows()

    drilled.put_code(CODE)
    drilled.command("dismiss", test, "--because", "a test file", "--yes")
    drilled.command("retry", "--prefix", "", "--yes")
    remove_versions(drilled, key)
    settled = {key: "", served: "amount"}
    drilled.aws.wait_until(
        lambda: settled.items() <= drilled.effects().items() and not drilled.messages("Queue"),
        "the removal and the redrive are processed",
        timeout=TIMEOUT,
    )
    age(drilled, key)
    drilled.command("forget", key, "--because", "ticket 4712", "--yes")
    assert not [row for row in drilled.rows() if key in str(row)]
    drilled.command("pause", "--because", "a wrong reprocess", "--yes")
    known = places(drilled)
    drilled.command("retry", "--again", wrong, "--yes")
    # It was requested before the restore point, and its message waits.
    point += [item for item in drilled.rows() if place_of(item) not in known]
    operation = drilled.requests()[0]["requestId"]
    stop = ("operations", "stop", operation, "--because", "the wrong file", "--yes")
    drilled.command(*stop)
    calls = drilled.effects("calls")

    for item in drilled.rows():
        client.delete_item(TableName=table, Key={name: item[name] for name in ("pk", "sk")})
    for item in point:
        client.put_item(TableName=table, Item=item)
    age(drilled, key)  # and so the row is back
    assert "they have expired, or were served before a restore of the table" in drilled.types("status")
    assert drilled.command("status")["rejected"] == 2
    again = drilled.command("forget", "--again", "--because", "the table is restored", "--yes")
    assert (again["keys"], again["rows"], again["left"]) == (1, 1, {})
    assert not [row for row in drilled.rows() if key in str(row)]
    drilled.command(*stop)
    drilled.command("dismiss", test, "--because", "a test file", "--yes")
    drilled.command("resume", "--yes")
    drilled.audit()
    drilled.command("retry", "--again", served, "--yes")
    drilled.aws.wait_until(
        lambda: served in more_calls(calls, drilled.effects("calls")) and not drilled.messages("Queue"),
        "the file that was requested is processed again",
        timeout=TIMEOUT,
    )
    assert more_calls(calls, drilled.effects("calls")) == {served: 1}
    assert drilled.command("status")["dismissed"] == 1
    client.delete_item(TableName=EFFECTS, Key={"file": {"S": key}})
    drilled.upload(test)
    drilled.processed()


def place_of(item: dict[str, Any]) -> tuple[str, str]:
    """The primary key of an item."""
    return item["pk"]["S"], item["sk"]["S"]


def places(drilled: Drilled) -> set[tuple[str, str]]:
    """The primary keys of all items of the table."""
    return {place_of(item) for item in drilled.rows()}


def remove_versions(drilled: Drilled, key: str) -> None:
    """Delete an object with all its versions and markers."""
    client = drilled.client("s3")
    drilled.delete(key)
    found = client.list_object_versions(Bucket=drilled["Bucket"], Prefix=key)
    for one in (*found["Versions"], *found["DeleteMarkers"]):
        client.delete_object(Bucket=drilled["Bucket"], Key=key, VersionId=one["VersionId"])


def age(drilled: Drilled, key: str) -> None:
    """Let ten minutes pass since the last attempt on the key."""
    [row] = [one for one in drilled.rows() if key in one["pk"]["S"]]
    drilled.client("dynamodb").update_item(
        TableName=drilled["Ledger"],
        Key={name: row[name] for name in ("pk", "sk")},
        UpdateExpression="SET updated_at = :before",
        ExpressionAttributeValues={":before": {"N": str(int(row["updated_at"]["N"]) - 600_000)}},
    )


def log_of(drilled: Drilled) -> str:
    """The lines of all functions."""
    logs = drilled.client("logs")
    groups = [one["logGroupName"] for one in logs.describe_log_groups()["logGroups"]]
    return " ".join(
        event["message"] for group in groups for event in logs.filter_log_events(logGroupName=group)["events"]
    )


BUGS = {
    "KeyError at noting": '    if content == "{}": json.loads(content)["amount"]\n',
    "JSONDecodeError at noting": '    if content == "{": json.loads(content)\n',
}
"""Lines of a processor that fail, by the reason of the failure."""


def broken(*bugs: str) -> str:
    """The processor's code with lines before its effect."""
    return CODE.replace(EFFECT, "".join(bugs) + EFFECT)


@pytest.mark.thorough
@pytest.mark.failure_mode("F392")
def test_the_breaker_is_closed_after_a_repair(drilled: Drilled) -> None:
    """A deployment with two bugs fails all files, and the next one takes them."""
    drilled.put_code(broken(*BUGS.values()))
    for number in range(6):
        drilled.upload(f"outage/{number}.csv", content="{}" if number % 2 else "{")
    breaker = drilled.aws.wait_until(
        lambda: (found := drilled.status()["breaker"])["status"] == "open" and found, "it opens", timeout=TIMEOUT
    )
    assert breaker["reason"].startswith(tuple(BUGS))
    drilled.put_code(CODE)
    numbers = count()

    def closed() -> bool:
        """A metric has the time of its minute, so that only a commit of a later minute is after the opening."""
        drilled.upload(f"outage/new-{next(numbers)}.csv")
        found = drilled.status()["breaker"]
        return bool(found["status"] == "closed" and found["lastSuccessAt"] > found["openedAt"])

    drilled.aws.wait_until(closed, "a success closes it", timeout=120, interval=5)
    drilled.command("retry", "--waiting", "--yes")
    drilled.processed()
    assert drilled.status()["breaker"]["status"] == "closed"


BROKEN = {
    "syntax": ("def process(change:\n", "'(' was never closed"),
    "module": ("import no_such_module\n", "No module named 'no_such_module'"),
    "variable": ("import os\nos.environ['WAREHOUSE_URL']\n", "WAREHOUSE_URL"),
}
"""Code of processors that cannot be loaded, and the text that says why."""


@pytest.mark.thorough
@pytest.mark.failure_mode("F393")
def test_code_that_cannot_be_loaded_is_seen_and_replaced(drilled: Drilled) -> None:
    """The steps of docs/runbooks.md#consumerfunctionerrors."""
    for name, (code, text) in BROKEN.items():
        key = f"broken/{name}.csv"
        drilled.put_code(code, visibility=2)
        drilled.upload(key)

        def seen(text: str = text) -> bool:
            function = drilled.status()["function"]
            return function is not None and function["atStart"] and text in function["text"]

        drilled.aws.wait_until(seen, f"the status says why: {name}", timeout=TIMEOUT)
        assert drilled.command("inspect", key)["consumerErrors"]["atStart"]
        assert drilled.command("list")["rows"] == []
        retry = drilled.command("retry", key, "--yes")
        assert [(one["status"], one["choice"]) for one in retry["choices"]] == [("no row", "leave")]
        lines = drilled.client("logs").filter_log_events(
            logGroupName=drilled.log_group(), filterPattern=filter_of("ConsumerFunctionErrors")
        )["events"]
        assert any(text in line["message"] for line in lines)
    drilled.put_code(CODE)
    drilled.processed()


@pytest.mark.thorough
@pytest.mark.failure_mode("F394")
def test_one_of_two_bugs_is_repaired_and_redriven(drilled: Drilled) -> None:
    """The steps of docs/runbooks.md#deadletters. Both bugs have one reason code."""
    amount, currency = (
        f'    if content == "{text}": raise Unprocessable("no {text}")\n' for text in ("amount", "currency")
    )
    drilled.put_code(broken(amount, currency))
    files = {f"bugs/{number}.csv": "amount" if number < 3 else "currency" for number in range(5)}
    for key, content in files.items():
        drilled.upload(key, content=content)
    drilled.aws.wait_until(lambda: drilled.dead_letters() == 5, "all are rejected", timeout=TIMEOUT)
    reasons = drilled.command("list", "--by-reason")["reasons"]
    found = {(one["status"], one["reasonCode"], one["reason"]): one["rows"] for one in reasons}
    assert found == {
        ("REJECTED", "unprocessable", "no amount"): 3,
        ("REJECTED", "unprocessable", "no currency"): 2,
    }
    drilled.put_code(broken(currency))
    drilled.command("retry", "--reason", "no amount", "--yes")
    drilled.aws.wait_until(
        lambda: sum(key in files for key in drilled.effects()) == 3, "the first bug's files are processed"
    )
    assert [one["reason"] for one in drilled.command("list", "--by-reason")["reasons"]] == ["no currency"]
    drilled.put_code(CODE)
    drilled.command("retry", "--reason", "no currency", "--yes")
    drilled.processed()


@pytest.mark.thorough
def test_a_scheduler_waits_for_a_prefix(drilled: Drilled) -> None:
    """Missing files, then a rejected one, then all."""
    wait = ("wait", "--prefix", "loads/7/", "--expect", "3", "--interval", "1", "--until")
    drilled.put_code(broken('    if content == "amount": raise Unprocessable("no amount")\n'))
    drilled.upload("loads/7/1.csv", "loads/7/2.csv")
    found = drilled.command(*wait, "5s", ends=4)
    assert (found["outcome"], found["expected"]) == ("missing", 3)
    drilled.upload("loads/7/3.csv", content="amount")
    found = drilled.command(*wait, "4m", ends=1)
    assert [(one["key"], one["why"]) for one in found["rejected"]] == [("loads/7/3.csv", "no amount")]
    drilled.put_code(CODE)
    drilled.command("retry", "--reason", "no amount", "--yes")
    # The redriven row is rejected until its message is claimed.
    drilled.processed()
    assert drilled.command(*wait, "4m")["committed"] == 3


@pytest.mark.thorough
@pytest.mark.failure_mode("F391")
def test_a_dead_worker_is_released(drilled: Drilled) -> None:
    """Its worker dies after the claim, and the rest of its lease is not waited for."""
    key = "stuck/1.csv"
    drilled.upload(key, content="stuck")
    row = drilled.aws.wait_until(
        lambda: next((row for row in drilled.rows() if key in row["pk"]["S"]), None), "it is claimed", timeout=TIMEOUT
    )
    assert row is not None
    fence = int(row["fence"]["N"])
    drilled.aws.wait_until(lambda: "Runtime exited" in log_of(drilled), "its worker dies", timeout=TIMEOUT)
    [kept] = drilled.command("retry", key, "--yes")["choices"]
    assert (kept["status"], "see `release`" in kept["why"]) == ("PROCESSING", True)
    done = drilled.command("release", key, "--because", "the log says: Runtime exited", "--yes")
    assert (done["attempt"], done["woken"], done["fence"] > fence) == (1, True, True)
    drilled.processed()
    assert (drilled.effects("calls")[key], int(drilled.effects("fence")[key]) > done["fence"]) == ("1", True)
    [operation, *_] = drilled.command("operations")["operations"]
    assert operation["what"].startswith("release")
    drilled.upload(key)  # its content kills no worker of the next drills


@pytest.mark.failure_mode("F182")
def test_a_deleted_stack_is_deployed_over_its_retained_data(drilled: Drilled) -> None:
    """Bucket, table and queues outlive the stack. Uploads in between are processed, and no earlier one again."""
    calls = drilled.effects("calls")
    cloudformation = drilled.client("cloudformation")
    cloudformation.delete_stack(StackName=STACK)
    waiter = cloudformation.get_waiter("stack_delete_complete")
    waiter.wait(StackName=STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 240})
    drilled.upload("between/queued.csv")
    with drilled.no_notification():
        drilled.upload("between/lost.csv")

    drilled.deploy("over")
    drilled.repaired()
    expected = dict.fromkeys(("between/queued.csv", "between/lost.csv"), 1)
    assert more_calls(calls, drilled.effects("calls")) == expected


@pytest.mark.failure_mode("F182")
def test_a_bucket_is_replaced_by_its_replica(drilled: Drilled) -> None:
    """The replica has an object that the pipeline never saw. Each object is processed once for the new bucket."""
    client, before = drilled.client("s3"), drilled["Bucket"]
    client.create_bucket(Bucket=REPLICA)
    client.put_bucket_versioning(Bucket=REPLICA, VersioningConfiguration={"Status": "Enabled"})
    # Only the replica has the first object. Its effect shows that the functions use the new bucket.
    content = {"late/unseen.csv": "1 EUR"} | {key: text for key, text in drilled.wanted().items() if text}
    for key, text in content.items():
        client.put_object(Bucket=REPLICA, Key=key, Body=text.encode())
    for key in drilled.effects().keys() - content.keys():
        client.delete_object(Bucket=REPLICA, Key=key)

    calls = drilled.effects("calls")
    drilled.deploy("replica")
    assert drilled["Bucket"] == REPLICA != before
    drilled.repaired()

    def again() -> dict[str, int]:
        return {key: n for key, n in more_calls(calls, drilled.effects("calls")).items() if key in content}

    def backfilled() -> bool:
        """An object counts as baseline until the backfill reaches it, and its earlier effect is right."""
        drilled.repaired()
        return again().keys() == content.keys()

    drilled.aws.wait_until(backfilled, "each object is processed again", timeout=TIMEOUT)
    assert again() == dict.fromkeys(content, 1)
    drilled.upload("replica/new.csv")
    drilled.processed()
    drilled.repaired()
