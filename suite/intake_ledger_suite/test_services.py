"""What services answer, by requests that the tests send themselves."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger_suite.deployed import Deployed

NO_POLICIES = "a local AWS enforces no policies of roles and keys"
pytestmark = pytest.mark.thorough
Evidence = Callable[[str], None]


@pytest.mark.assumptions("EVB-01", "EVB-02")
@pytest.mark.only_on_aws(NO_POLICIES, steps=True)
def test_own_key_lets_eventbridge_reach_the_queue(checks: Deployed) -> None:
    """EventBridge reaches a queue with an own key, whose policy has aws:SourceAccount."""
    version = checks.put("OwnKey", "own-key/a.json")
    checks.object_once("OwnKey", "own-key/a.json", version)


@pytest.mark.assumptions("DDB-21")
@pytest.mark.only_on_aws(NO_POLICIES, steps=True)
def test_own_key_lets_operators_write(checks: Deployed, evidence: Evidence) -> None:
    """A role with `grant_operate` writes and reads records of operations in a table with an own key."""
    role = checks.out["OperatorRole"]

    def written() -> Any:
        """A new role and its policy are known some seconds later."""
        checks.command_as(role, "OwnKey", "retry", "--waiting", "--yes")
        return (checks.command_as(role, "OwnKey", "operations") or {}).get("operations")

    found = checks.until(written, "the role writes and reads a record of an operation", seconds=120)
    assert found[0]["what"].startswith("retry --waiting")
    evidence(f"recorded by {found[0]['by']}")


@pytest.mark.assumptions("DDB-08")
def test_partiql_update_with_several_clauses_is_taken_once(checks: Deployed, evidence: Evidence) -> None:
    """An UPDATE of PartiQL may have several clauses, and IS MISSING in its condition."""
    table, dynamodb = checks.out["Effects"], checks.aws.client("dynamodb")
    key = {"place": {"S": "partiql"}, "id": {"S": "row"}}
    dynamodb.put_item(TableName=table, Item={**key, "old": {"S": "x"}})
    statement = (
        f'UPDATE "{table}" SET first=? SET second=? REMOVE old '
        "WHERE place='partiql' AND id='row' AND first IS MISSING"
    )
    request = {"Statement": statement, "Parameters": [{"N": "1"}, {"S": "two"}]}
    first, second = (dynamodb.batch_execute_statement(Statements=[request])["Responses"][0] for _ in range(2))
    assert "Error" not in first
    assert second["Error"]["Code"] == "ConditionalCheckFailed"
    row = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    assert row == {**key, "first": {"N": "1"}, "second": {"S": "two"}}
    evidence(f"the second UPDATE was {second['Error']['Code']}")


@pytest.mark.assumptions("S3-02", "S3-03")
def test_marker_has_a_date(checks: Deployed, evidence: Evidence) -> None:
    """S3 tells the date of a delete marker with its 405."""
    checks.put("Plain", "markers/marker.json")
    marker = checks.remove("Plain", "markers/marker.json")
    with pytest.raises(ClientError) as refused:
        checks.aws.client("s3").head_object(
            Bucket=checks.out["PlainBucket"], Key=checks.key("markers/marker.json"), VersionId=marker
        )
    answer = refused.value.response["ResponseMetadata"]
    date = answer["HTTPHeaders"].get("last-modified")
    assert answer["HTTPStatusCode"] == 405
    assert date
    evidence(f"405 with Last-Modified: {date}")


@pytest.mark.assumptions("SQS-06")
@pytest.mark.only_on_aws("MiniStack has no StartMessageMoveTask")
def test_redrive_keeps_attributes(checks: Deployed) -> None:
    """AWS's own redrive moves a rejected message back, and the ledger accepts it by its attributes."""
    key = "rejected/redriven.json"
    version = checks.put("Plain", key, {"reject": True})
    checks.until(lambda: sum(checks.depth("PlainDeadLetters")), "the rejected message is a dead letter")
    place = checks.place("Plain", key)
    item = {"place": {"S": place}, "id": {"S": "open"}}
    checks.aws.client("dynamodb").put_item(TableName=checks.out["Effects"], Item=item)
    source, target = checks.arn_of("PlainDeadLetters"), checks.arn_of("PlainQueue")
    checks.aws.client("sqs").start_message_move_task(SourceArn=source, DestinationArn=target)
    checks.once(place, version)
