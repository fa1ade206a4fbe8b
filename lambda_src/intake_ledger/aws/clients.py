"""The AWS clients of the consumer.

They come from botocore, because the import of boto3 takes a tenth of the cold start. Two settings save CPU in each
request (`python -m benchmarks.cpu`): parameters of the frequent requests, which this package builds, are not validated,
and the user agent is given, since botocore otherwise builds it twice for each request.
"""

import platform
from functools import cache
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config
from botocore.validate import validate_parameters

from intake_ledger.garbage import no_garbage_collection

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

USER_AGENT = f"Botocore/{botocore.__version__} Python/{platform.python_version()} lib/intake-ledger"
CONNECT_SECONDS, READ_SECONDS, STREAM_SECONDS = 2, 5, 20
POOL = 10
"""The number of connections that a client keeps open, botocore's default. Several threads need more."""


def ledger_client(pool: int = POOL) -> "DynamoDBClient":
    """DynamoDB for the ledger's table. Only parameters of transactions are validated, since processors write them.

    A transaction that is not in DynamoDB's typed form raises botocore's ParamValidationError.
    """
    client: DynamoDBClient = make_client("dynamodb", pool, parameter_validation=False)
    client.meta.events.register("provide-client-params.dynamodb.TransactWriteItems", _checked)
    return client


def bucket_client(pool: int = POOL) -> "S3Client":
    """S3 for HEAD requests and streams. A stream may pause for longer than a response may take.

    Parameters of GET requests are not validated: their keys come from events, and are checked there.
    """
    client: S3Client = make_client("s3", pool, read_timeout=STREAM_SECONDS, parameter_validation=False)
    client.meta.events.register("provide-client-params.s3", _checked_unless_get)
    return client


def make_client(service: str, pool: int = POOL, **options: Any) -> Any:
    """Make a client of this service with these options of botocore's `Config`.

    Do not call it from several threads at once.
    """
    # A claim whose response was lost may be repeated, because the row has its owner. The timeouts are short, so that a
    # request without a response does not use up the time of the invocation.
    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "retries": {"mode": "standard", "total_max_attempts": 4},
        "max_pool_connections": pool,
        "user_agent": USER_AGENT,
    }
    with no_garbage_collection():
        return _session().create_client(service, config=Config(**defaults | options))


@cache
def _session() -> botocore.session.Session:
    """One session for all clients. It caches the descriptions of services."""
    return botocore.session.get_session()


def _checked(params: dict[str, Any], model: Any, **_: Any) -> None:
    validate_parameters(params, model.input_shape)


def _checked_unless_get(params: dict[str, Any], model: Any, **_: Any) -> None:
    if model.name != "GetObject":
        _checked(params, model)
