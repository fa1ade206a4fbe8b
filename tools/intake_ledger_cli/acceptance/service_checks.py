"""Checks of what services answer, by requests that the command sends itself."""

import json

from botocore.exceptions import ClientError

from intake_ledger_cli import operations
from intake_ledger_cli.acceptance.checking import Check, CheckFailed
from intake_ledger_cli.acceptance.world import World
from intake_ledger_cli.app import now_ms

NO_POLICIES = "a local AWS enforces no policies of roles and keys"


def own_key_eventbridge(world: World) -> str:
    """An event reaches the consumer by a rule, through a queue with an own key."""
    version = world.put("OwnKey", "own-key/a.json")
    world.object_once("OwnKey", "own-key/a.json", version)
    return "an upload into a bucket with an own key had one effect, by EventBridge"


def own_key_operators(world: World) -> str:
    """The role of operators writes into the table."""
    aws = world.aws.assuming(world.outputs["OperatorRole"])
    deployed = world.pipeline("OwnKey")
    operation = operations.Operation(now_ms(), "acceptance", "retry-now", "the acceptance command")

    def written() -> bool:
        operations.record(aws, deployed, operation)
        return operation in operations.read_operations(aws.dynamodb, deployed, 10)

    world.until(written, "the role of grant_operate writes and reads a record of an operation", seconds=120)
    return "a role with grant_operate wrote and read a record in the table with an own key"


def partiql_update(world: World) -> str:
    """An UPDATE with several clauses, and IS MISSING in its condition: taken once, then refused."""
    table = world.outputs["EffectsTable"]
    key = {"place": {"S": "partiql"}, "id": {"S": "row"}}
    world.aws.dynamodb.put_item(TableName=table, Item={**key, "old": {"S": "x"}})
    statement = (
        f'UPDATE "{table}" SET first=? SET second=? REMOVE old '  # noqa: S608 - the table's name is the stack's
        "WHERE place='partiql' AND id='row' AND first IS MISSING"
    )
    request = {"Statement": statement, "Parameters": [{"N": "1"}, {"S": "two"}]}
    answers = [
        world.aws.dynamodb.batch_execute_statement(Statements=[request])["Responses"][0]  # type: ignore[list-item]
        for _ in range(2)
    ]
    refusal = answers[1].get("Error", {}).get("Code")
    if "Error" in answers[0] or refusal != "ConditionalCheckFailed":
        raise CheckFailed(f"the same UPDATE twice was answered {json.dumps(answers, default=str)}")
    row = world.aws.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    if row != {**key, "first": {"N": "1"}, "second": {"S": "two"}}:
        raise CheckFailed(f"the row is {json.dumps(row)}")
    return "the first UPDATE was carried out, the second one was ConditionalCheckFailed"


def marker_has_a_date(world: World) -> str:
    """A HEAD of a delete marker's version: 405 with Last-Modified."""
    bucket, key = world.pipeline("Plain").bucket, "marker.json"
    world.put("Plain", key)
    marker = world.aws.s3.delete_object(Bucket=bucket, Key=key)["VersionId"]
    try:
        world.aws.s3.head_object(Bucket=bucket, Key=key, VersionId=marker)
    except ClientError as error:
        answer = error.response["ResponseMetadata"]
        date = answer["HTTPHeaders"].get("last-modified")
        if answer["HTTPStatusCode"] == 405 and date:
            return f"405 with Last-Modified: {date}"
        raise CheckFailed(f"{answer['HTTPStatusCode']} with Last-Modified: {date}") from None
    raise CheckFailed("a HEAD of a delete marker's version succeeded")


def redrive_keeps_attributes(world: World) -> str:
    """AWS's own redrive moves a rejected message back, and the ledger accepts it by its attributes."""
    deployed, key = world.pipeline("Plain"), "rejected/redriven.json"
    version = world.put("Plain", key, {"reject": True})
    world.until(lambda: world.depth(deployed.dead_letter_url), "the rejected message is a dead letter")
    place = f"{deployed.bucket}/{key}"
    item = {"place": {"S": place}, "id": {"S": "open"}}
    world.aws.dynamodb.put_item(TableName=world.outputs["EffectsTable"], Item=item)
    source, target = world.arn_of(deployed.dead_letter_url), world.arn_of(deployed.queue_url)
    world.aws.sqs.start_message_move_task(SourceArn=source, DestinationArn=target)
    world.once(place, version)
    return "the rejected object had one effect after StartMessageMoveTask"


CHECKS = (
    Check(
        name="own-key-eventbridge",
        shows="EventBridge reaches a queue with an own key, whose policy has aws:SourceAccount.",
        run=own_key_eventbridge,
        assumptions=("EVB-01", "EVB-02"),
        not_local=NO_POLICIES,
    ),
    Check(
        name="own-key-operators",
        shows="A role of operators writes into a table with an own key.",
        run=own_key_operators,
        assumptions=("DDB-21",),
        not_local=NO_POLICIES,
    ),
    Check(
        name="partiql-update",
        shows="An UPDATE of PartiQL may have several clauses, and IS MISSING in its condition.",
        run=partiql_update,
        assumptions=("DDB-08",),
    ),
    Check(
        name="marker-date",
        shows="S3 tells the date of a delete marker with its 405.",
        run=marker_has_a_date,
        assumptions=("S3-02", "S3-03"),
    ),
    Check(
        name="redrive",
        shows="AWS's own redrive keeps body and attributes of a message.",
        run=redrive_keeps_attributes,
        assumptions=("SQS-06",),
        not_local="MiniStack has no StartMessageMoveTask",
        only_aws=True,
    ),
)
