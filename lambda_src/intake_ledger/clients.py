"""The AWS clients of the consumer, without the work in them that nobody needs.

They are botocore's, which boto3 gives out too: boto3 itself would be a tenth of the cold start, for resources and
transfers that are not used here. A request's price is botocore's own CPU, several times what the ledger itself does.
Two parts of it can be had by configuration (`python -m benchmarks.cpu`): the check of parameters that are always built
by this package, and the user agent, which is put together twice for each request unless it is given.
"""

import platform
from functools import cache
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config
from botocore.validate import validate_parameters

from intake_ledger.bodies import lean_bodies

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

USER_AGENT = f"Botocore/{botocore.__version__} Python/{platform.python_version()} lib/intake-ledger"
# A claim whose answer was lost is recognised by its owner, so that retries are safe; a call that hangs must not
# outlast the time that was left for it.
RETRIES: Any = {"mode": "standard", "total_max_attempts": 4}
CONNECT_SECONDS, READ_SECONDS, STREAM_SECONDS = 2, 5, 20
SERVICES = ("dynamodb", "lambda", "s3", "sqs")
"""Those that the consumer may make clients of."""
POOL = 10
"""Connections that a client keeps open at most, as botocore has it; several threads need more."""


def ledger_client(pool: int = POOL) -> "DynamoDBClient":
    """DynamoDB for the ledger's table. Parameters are checked where the team has written some of them: in transactions.

    A transaction that is not DynamoDB's typed form raises botocore's ParamValidationError, as ever.
    """
    client: DynamoDBClient = make_client(
        "dynamodb",
        Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries=RETRIES,
            max_pool_connections=pool,
            parameter_validation=False,
            user_agent=USER_AGENT,
        ),
    )
    client.meta.events.register("provide-client-params.dynamodb.TransactWriteItems", _checked)
    lean_bodies(client)
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
    client: S3Client = make_client("s3", config)
    return client


def make_client(service: str, config: Config) -> Any:
    """A client of one of `SERVICES`. Not for several threads at once."""
    return _session().create_client(service, config=config)


@cache
def _session() -> botocore.session.Session:
    """One for all clients: it keeps what it has read of their services' descriptions."""
    session = botocore.session.get_session()
    # Before botocore reads a description it looks through the folders of all some four hundred services, whether there
    # is one of that name: half of what a first client takes.
    session.get_component("data_loader").list_available_services = lambda _: SERVICES
    return session


def _checked(params: dict[str, Any], model: Any, **_: Any) -> None:
    validate_parameters(params, model.input_shape)
