"""A typical hand-written way to the same work: S3 to SQS to Lambda, which starts an execution.

It is written with care: a copy of an event starts no second execution, since the version names it, and an older text
replaces no newer result, since S3's sequencer is compared. But it believes that an event comes for each text.
"""

import json
import os
import time
from typing import Any
from urllib.parse import unquote_plus

import boto3
from botocore.exceptions import ClientError

s3 = boto3.client("s3")
dynamodb = boto3.client("dynamodb")
states = boto3.client("stepfunctions")
COPIES = "ExecutionAlreadyExists"
OLDER = "ConditionalCheckFailedException"


def start(event: dict[str, Any], _context: object) -> None:
    """Start an execution for each text."""
    for message in event["Records"]:
        for record in json.loads(message["body"]).get("Records", []):
            text = record["s3"]["object"]
            change = {
                "bucket": record["s3"]["bucket"]["name"],
                "key": unquote_plus(text["key"]),
                "versionId": text["versionId"],
                "sequencer": text["sequencer"],
            }
            try:
                states.start_execution(
                    stateMachineArn=os.environ["MACHINE_ARN"], name=text["versionId"], input=json.dumps(change)
                )
            except ClientError as error:
                if error.response["Error"]["Code"] != COPIES:
                    raise


def count_words(event: dict[str, Any], _context: object) -> None:
    """Count the words of one version, and write the result unless one of a newer version is there."""
    change = event["change"]
    answer = s3.get_object(Bucket=change["bucket"], Key=change["key"], VersionId=change["versionId"])
    text = answer["Body"].read().decode()
    if not text.strip():
        return
    if text.startswith("broken") and event["attempt"] == 1:
        raise RuntimeError("the first attempt fails")
    time.sleep(float(os.environ["WORK_SECONDS"]))
    # S3 tells to fill up the shorter sequencer with zeros on its right side before they are compared.
    sequencer = change["sequencer"].ljust(64, "0")
    try:
        dynamodb.put_item(
            TableName=os.environ["RESULTS_TABLE"],
            Item={
                "key": {"S": change["key"]},
                "sequencer": {"S": sequencer},
                "words": {"N": str(len(text.split()))},
            },
            ConditionExpression="attribute_not_exists(sequencer) OR sequencer <= :sequencer",
            ExpressionAttributeValues={":sequencer": {"S": sequencer}},
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != OLDER:
            raise
