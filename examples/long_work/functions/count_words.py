"""The task of the state machine. It stands for work that takes hours: it counts the words of a text.

It reads exactly the version in its input, and writes its result on the condition that no later attempt has written one.
"""

import os
import time
from typing import Any

import boto3
from botocore.exceptions import ClientError

s3 = boto3.client("s3")
dynamodb = boto3.client("dynamodb")


def handler(change: dict[str, Any], _context: object) -> dict[str, str]:
    """Count the words of one version."""
    if change["kind"] != "created":
        return {"commit": f"nothing left of {change['key']}"}
    answer = s3.get_object(Bucket=change["bucket"], Key=change["key"], VersionId=change["versionId"])
    text = answer["Body"].read().decode()
    if not text.strip():
        # The pipeline rejects the object with this reason, and does not try it again.
        return {"unprocessable": "the text is empty"}
    if text.startswith("broken") and change["attempt"] == 1:
        raise RuntimeError("the first attempt fails")
    time.sleep(float(os.environ["WORK_SECONDS"]))
    words = len(text.split())
    write_result(change, words)
    return {"commit": f"{words} words"}


def write_result(change: dict[str, Any], words: int) -> None:
    """Write the result unless a later attempt has. Its fence is higher."""
    try:
        dynamodb.put_item(
            TableName=os.environ["RESULTS_TABLE"],
            Item={
                "key": {"S": change["key"]},
                "fence": {"N": change["fenceText"]},
                "version": {"S": change["versionId"]},
                "words": {"N": str(words)},
            },
            ConditionExpression="attribute_not_exists(fence) OR fence <= :fence",
            ExpressionAttributeValues={":fence": {"N": change["fenceText"]}},
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
