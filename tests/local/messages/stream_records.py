"""The records of a stream, as Lambda gives them to a function."""

import base64

from cdk_intake_ledger.testing import LocalAws
from tests.unit.messages.stream_mapping import Record


def of_kinesis(aws: LocalAws, stream: str) -> dict[str, list[Record]]:
    """Return the records of each shard, the oldest first."""
    client, found = aws.client("kinesis"), {}
    for shard in (one["ShardId"] for one in client.list_shards(StreamName=stream)["Shards"]):
        at = client.get_shard_iterator(StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        iterator, records = at["ShardIterator"], []
        while (page := client.get_records(ShardIterator=iterator))["Records"]:
            records += page["Records"]
            iterator = page["NextShardIterator"]
        found[shard] = [
            {
                "eventSource": "aws:kinesis",
                "eventID": f"{shard}:{record['SequenceNumber']}",
                "kinesis": {
                    "partitionKey": record["PartitionKey"],
                    "sequenceNumber": record["SequenceNumber"],
                    "data": base64.b64encode(record["Data"]).decode(),
                    "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"].timestamp(),
                },
            }
            for record in records
        ]
    return found


def of_table(aws: LocalAws, table: str) -> dict[str, list[Record]]:
    """Return the records of each shard of a table's stream, the oldest first."""
    client, found = aws.client("dynamodbstreams"), {}
    arn = client.list_streams(TableName=table)["Streams"][0]["StreamArn"]
    for shard in (one["ShardId"] for one in client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]):
        at = client.get_shard_iterator(StreamArn=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        iterator, records = at["ShardIterator"], []
        while iterator and (page := client.get_records(ShardIterator=iterator))["Records"]:
            records += page["Records"]
            iterator = page.get("NextShardIterator")
        found[shard] = [
            {
                "eventSource": "aws:dynamodb",
                "eventID": record["eventID"],
                "eventName": record["eventName"],
                "dynamodb": {
                    **record["dynamodb"],
                    "ApproximateCreationDateTime": record["dynamodb"]["ApproximateCreationDateTime"].timestamp(),
                },
            }
            for record in records
        ]
    return found
