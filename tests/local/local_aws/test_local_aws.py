"""The local AWS itself: it starts wherever it can, says why it cannot, and leaves nothing behind."""

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdk_intake_ledger.testing import LocalAws, LocalAwsError
from intake_ledger_testing import local_server
from tests.local.messages.stream_records import of_table

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTS_AND_IS_KILLED = """
import os, signal
from cdk_intake_ledger.testing import LocalAws
aws = LocalAws()
aws.start()
print(aws.directory, aws.endpoint_url, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def listens(url: str) -> bool:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_nothing_is_left_when_the_parent_is_killed(aws: LocalAws) -> None:
    """No handler runs in a process that gets SIGKILL; the server, its workers and its directory go all the same."""
    script = [sys.executable, "-c", STARTS_AND_IS_KILLED]
    ran = subprocess.run(script, capture_output=True, text=True, check=False, timeout=240)
    directory, url = ran.stdout.split()

    aws.wait_until(lambda: not Path(directory).exists() and not listens(url), "it is gone", timeout=120)


def test_a_port_that_was_taken_meanwhile_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking for a free port and using it anybody may take it: the next one is tried."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports: Iterator[int] = iter([taken.getsockname()[1]])
        really = local_server.free_port
        monkeypatch.setattr(local_server, "free_port", lambda: next(ports, None) or really())

        with LocalAws() as second:
            assert second.client("sts").get_caller_identity()["Account"] == second.account
            directory = second.directory

    assert not directory.exists()


def test_without_ministack_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does not depend on it, so it may well be missing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(LocalAwsError, match="pip install ministack"):
        LocalAws().start()


def test_a_failing_synthesis_is_told_with_its_last_words(aws: LocalAws, tmp_path: Path) -> None:
    """The error contains the app's output."""
    (tmp_path / "broken.py").write_text("raise SystemExit('the bucket has a hole')")

    with pytest.raises(LocalAwsError, match="the bucket has a hole"):
        aws.deploy(f"python {tmp_path / 'broken.py'}", cwd=Path(__file__).parents[1])


def test_waiting_in_vain_says_for_what(aws: LocalAws) -> None:
    """The error names the condition."""
    with pytest.raises(TimeoutError, match="pigs fly"):
        aws.wait_until(lambda: False, "pigs fly", timeout=0.1)


STAGE = """
from aws_cdk import App, NestedStack, RemovalPolicy, Stack, Stage
from aws_cdk.aws_dynamodb import Attribute, AttributeType, PointInTimeRecoverySpecification, StreamViewType, Table
app = App()
stack = Stack(Stage(app, "Dev"), "Tables")
for name, scope in {"StagedTable": stack, "NestedTable": NestedStack(stack, "Nested")}.items():
    Table(
        scope,
        name,
        table_name=name,
        partition_key=Attribute(name="id", type=AttributeType.STRING),
        stream=StreamViewType.NEW_AND_OLD_IMAGES,
        removal_policy=RemovalPolicy.DESTROY,
        time_to_live_attribute="expires_at",
        point_in_time_recovery_specification=PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True),
    )
app.synth()
"""


def test_an_app_with_a_stage_is_deployed(aws: LocalAws, tmp_path: Path) -> None:
    """Its tables, also those of a nested stack, have what their template says. PartiQL writes are in the stream."""
    (tmp_path / "staged.py").write_text(STAGE)
    app = f"python {tmp_path / 'staged.py'}"
    aws.deploy(app, cwd=Path(__file__).parents[1])
    client = aws.client("dynamodb")
    for table in ("StagedTable", "NestedTable"):
        expiry = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
        backups = client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
        assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"

    insert, update, delete = (
        "INSERT INTO StagedTable VALUE {'id': 'a', 'n': 1}",
        "UPDATE StagedTable SET n = 2 WHERE id = 'a'",
        "DELETE FROM StagedTable WHERE id = 'a'",
    )
    client.execute_statement(Statement=insert)
    with pytest.raises(client.exceptions.TransactionCanceledException):
        client.execute_transaction(TransactStatements=[{"Statement": update}, {"Statement": insert}])
    client.batch_execute_statement(Statements=[{"Statement": insert}, {"Statement": update}])
    client.execute_transaction(TransactStatements=[{"Statement": delete}])
    client.execute_statement(Statement=delete)
    [records] = of_table(aws, "StagedTable").values()
    images = [(one["eventName"], *(one["dynamodb"].get(name) for name in ("OldImage", "NewImage"))) for one in records]
    first, second = ({"id": {"S": "a"}, "n": {"N": number}} for number in "12")
    assert images == [("INSERT", None, first), ("MODIFY", first, second), ("REMOVE", second, None)]

    aws.destroy(app, cwd=Path(__file__).parents[1])
    assert not {"StagedTable", "NestedTable"} & set(client.list_tables()["TableNames"])
