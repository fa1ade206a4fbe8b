"""The boto3 clients of the hot path, without the work in them that nobody needs.

A request's price is boto3's own CPU, several times what the ledger itself does. Two parts of it can be had by
configuration (`python -m benchmarks.cpu`): the check of parameters that are always built by this package, and the
user agent, which boto3 puts together twice for each request unless it is given.
"""

import platform
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.validate import validate_parameters

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

USER_AGENT = f"Boto3/{boto3.__version__} Python/{platform.python_version()} lib/intake-ledger"
# A claim whose answer was lost is recognised by its owner, so that retries are safe; a call that hangs must not
# outlast the time that was left for it.
RETRIES: Any = {"mode": "standard", "total_max_attempts": 4}
CONNECT_SECONDS, READ_SECONDS, STREAM_SECONDS = 2, 5, 20
POOL = 10
"""Connections that a client keeps open at most, as botocore has it; several threads need more."""


def ledger_client(pool: int = POOL) -> "DynamoDBClient":
    """DynamoDB for the ledger's table. Parameters are checked where the team has written some of them: in transactions.

    A transaction that is not DynamoDB's typed form raises botocore's ParamValidationError, as ever.
    """
    client = boto3.client(
        "dynamodb",
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries=RETRIES,
            max_pool_connections=pool,
            parameter_validation=False,
            user_agent=USER_AGENT,
        ),
    )
    client.meta.events.register("provide-client-params.dynamodb.TransactWriteItems", _checked)
    return client


def bucket_client(pool: int = POOL) -> "S3Client":
    """S3 for heads and streams: a stream may stand still for longer than an answer may take."""
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=STREAM_SECONDS,
        retries=RETRIES,
        max_pool_connections=pool,
        user_agent=USER_AGENT,
    )
    return boto3.client("s3", config=config)


def _checked(params: dict[str, Any], model: Any, **_: Any) -> None:
    validate_parameters(params, model.input_shape)
