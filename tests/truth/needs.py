"""The actions of IAM that a request needs, from the Service Authorization Reference and the pages of operations."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.truth.policies import ACCOUNT, REGION, Need
from tests.truth.recording import Json, Request

_S3_ACTIONS = {
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "HeadBucket": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "PutBucketNotificationConfiguration": "PutBucketNotification",
}
_WRITES = {"CompleteMultipartUpload", "CreateMultipartUpload", "PutObject", "UploadPart"}
_MISSING = {404, 405}
_TRANSACTION = {
    "ConditionCheck": "ConditionCheckItem",
    "Delete": "DeleteItem",
    "Get": "GetItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}
_NO_ACTION = {("sts", "GetCallerIdentity")}
"""IAM never denies it."""


def needs_of(request: Request) -> Iterator[Need]:
    """All that IAM must allow for a request, and for its answer."""
    if (request.service, request.operation) not in _NO_ACTION:
        yield from _SERVICES.get(request.service, _without_resource)(request)


def _s3(request: Request) -> Iterator[Need]:
    parameters, operation = request.parameters, request.operation
    bucket = f"arn:aws:s3:::{parameters.get('Bucket')}"
    key = f"{bucket}/{parameters.get('Key')}"
    version = "Version" if parameters.get("VersionId") else ""
    if operation in ("HeadObject", "GetObject"):
        yield Need(f"s3:GetObject{version}", key)
        if request.status in _MISSING:  # without it, S3 answers 403
            yield Need("s3:ListBucket", bucket, {"s3:prefix": [str(parameters["Key"])]})
    elif operation in _WRITES:
        yield Need("s3:PutObject", key)
        if parameters.get("Tagging"):
            yield Need("s3:PutObjectTagging", key)
        if parameters.get("IfMatch"):
            yield Need("s3:GetObject", key)
    elif operation == "DeleteObject":
        yield Need(f"s3:DeleteObject{version}", key)
    elif operation in ("GetObjectTagging", "PutObjectTagging"):
        yield Need(f"s3:{operation.removesuffix('Tagging')}{version}Tagging", key)
    elif "Key" in parameters:
        yield Need(f"s3:{operation}", key)
    else:
        prefix = parameters.get("Prefix")
        yield Need(f"s3:{_S3_ACTIONS.get(operation, operation)}", bucket, {"s3:prefix": [prefix]} if prefix else {})


def _dynamodb(request: Request) -> Iterator[Need]:
    parameters, operation = request.parameters, request.operation
    if operation == "BatchExecuteStatement":
        for statement in parameters["Statements"]:
            found = re.match(r'\s*(\w+).*?"([^"]+)"', statement["Statement"], re.DOTALL)
            assert found, statement
            yield Need(f"dynamodb:PartiQL{found[1].title()}", _table(found[2]))
    elif operation in ("TransactWriteItems", "TransactGetItems"):
        for element in parameters["TransactItems"]:
            ((kind, one),) = element.items()
            yield Need(f"dynamodb:{_TRANSACTION[kind]}", _table(one["TableName"]), _leading(one))
    elif operation in ("BatchGetItem", "BatchWriteItem"):
        for table in parameters["RequestItems"]:
            yield Need(f"dynamodb:{operation}", _table(table))
    else:
        index = f"/index/{parameters['IndexName']}" if "IndexName" in parameters else ""
        yield Need(f"dynamodb:{operation}", _table(parameters["TableName"]) + index, _leading(parameters))


def _table(name: str) -> str:
    return name if name.startswith("arn:") else f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"


def _leading(parameters: Json) -> dict[str, list[str]]:
    key = (parameters.get("Key") or parameters.get("Item") or {}).get("pk")
    value = key.get("S") if isinstance(key, dict) else key
    return {"dynamodb:leadingkeys": [value]} if value else {}


def _sqs(request: Request) -> Iterator[Need]:
    queue = str(request.parameters.get("QueueUrl")).rsplit("/", 1)[-1]
    yield Need(f"sqs:{request.operation.removesuffix('Batch')}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}")


def _states(request: Request) -> Iterator[Need]:
    parameters = request.parameters
    yield Need(f"states:{request.operation}", parameters.get("executionArn") or parameters["stateMachineArn"])


def _lambda(request: Request) -> Iterator[Need]:
    parameters, operation = request.parameters, request.operation
    if operation == "ListEventSourceMappings":
        yield Need(f"lambda:{operation}", "*")
    elif "DurableExecutionArn" in parameters:
        # All but ListDurableExecutionsByFunction are authorized against the execution (developer guide, "Security and
        # permissions for Lambda durable functions").
        yield Need(f"lambda:{operation}", str(parameters["DurableExecutionArn"]))
    elif "UUID" in parameters:
        mapping = f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{parameters['UUID']}"
        yield Need(f"lambda:{operation}", mapping)
    else:
        name = str(parameters["FunctionName"])
        arn = name if name.startswith("arn:") else f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"
        yield Need("lambda:InvokeFunction" if operation == "Invoke" else f"lambda:{operation}", arn)


def _logs(request: Request) -> Iterator[Need]:
    parameters = request.parameters
    group = parameters.get("logGroupName") or str(parameters.get("logGroupIdentifier")).partition(":log-group:")[2]
    stream = f"log-stream:{parameters.get('logStreamName')}" if request.operation == "PutLogEvents" else "*"
    yield Need(f"logs:{request.operation}", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}:{stream}")


def _events(request: Request) -> Iterator[Need]:
    name: Any = request.parameters.get("Name") or request.parameters.get("Rule")
    yield Need(f"events:{request.operation}", f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{name}" if name else "*")


def _kms(request: Request) -> Iterator[Need]:
    key = str(request.parameters.get("KeyId"))
    yield Need(
        f"kms:{request.operation}", key if key.startswith("arn:") else f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{key}"
    )


def _stream(request: Request) -> Iterator[Need]:
    arn = str(request.parameters.get("StreamARN") or request.parameters["StreamArn"])
    # `Template.attribute` does not know the time in the ARN.
    arn = re.sub("/stream/.*", "/stream/1", arn)
    yield Need(f"{request.service.removesuffix('streams')}:{request.operation}", arn)


def _tagging(request: Request) -> Iterator[Need]:
    yield Need(f"tag:{request.operation}", "*")


def _without_resource(request: Request) -> Iterator[Need]:
    yield Need(f"{request.service}:{request.operation}", "*")


_SERVICES: dict[str, Callable[[Request], Iterator[Need]]] = {
    "dynamodb": _dynamodb,
    "dynamodbstreams": _stream,
    "events": _events,
    "kinesis": _stream,
    "kms": _kms,
    "lambda": _lambda,
    "logs": _logs,
    "resourcegroupstaggingapi": _tagging,
    "s3": _s3,
    "sqs": _sqs,
    "stepfunctions": _states,
}
