"""The AWS clients of one call, created on first use."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.exceptions import UnknownRegionError

from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_stepfunctions import SFNClient

LONGEST_INVOCATION_SECONDS = 900  # Lambda's limit


class Aws:
    """Clients with the default region, profile and endpoint of the AWS SDK, unless the caller gives others."""

    def __init__(self, *, region: str | None = None, profile: str | None = None) -> None:
        # It takes as long as all other imports, and the help needs none of it.
        import boto3  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415

        self._session = boto3.Session(region_name=region, profile_name=profile)
        self._config = Config(connect_timeout=5, retries={"mode": "standard", "total_max_attempts": 5})

    @property
    def region(self) -> str:
        """The region's name, or an empty text if it is unknown."""
        return self._session.region_name or ""

    @property
    def partition(self) -> str:
        """The partition of the region in ARNs. `aws` for a region that the SDK does not know."""
        try:
            return self._session.get_partition_for_region(self.region) if self.region else "aws"
        except UnknownRegionError:
            return "aws"

    def client(self, service: str) -> Any:
        """Return a new client of a service that has no attribute here."""
        session: Any = self._session
        return _made(lambda: session.client(service, config=self._config))

    @cached_property
    def cloudformation(self) -> "CloudFormationClient":
        return _made(lambda: self._session.client("cloudformation", config=self._config))

    @cached_property
    def cloudwatch(self) -> Any:  # the development dependencies have no type stubs for it
        return self.client("cloudwatch")

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        return _made(lambda: self._session.client("dynamodb", config=self._config))

    @cached_property
    def functions(self) -> "LambdaClient":
        from botocore.config import Config  # noqa: PLC0415 - as above

        # A synchronous invocation lasts as long as its function. A retry would start the function a second time.
        patient = Config(
            connect_timeout=5, read_timeout=LONGEST_INVOCATION_SECONDS + 10, retries={"total_max_attempts": 1}
        )
        return _made(lambda: self._session.client("lambda", config=self._config.merge(patient)))

    @cached_property
    def logs(self) -> Any:
        return self.client("logs")

    @cached_property
    def s3(self) -> "S3Client":
        return _made(lambda: self._session.client("s3", config=self._config))

    @cached_property
    def sqs(self) -> "SQSClient":
        return _made(lambda: self._session.client("sqs", config=self._config))

    @cached_property
    def sts(self) -> Any:
        return self.client("sts")

    @cached_property
    def tagging(self) -> Any:
        return self.client("resourcegroupstaggingapi")

    @cached_property
    def machines(self) -> "SFNClient":
        return _made(lambda: self._session.client("stepfunctions", config=self._config))


def _made[Client](make: Callable[[], Client]) -> Client:
    """Make a client.

    Raises:
        CliError: The endpoint of the environment or of the profile is not a URL.

    """
    try:
        return make()
    except ValueError as error:
        if "ndpoint" not in str(error):
            raise
        raise CliError(f"{error}: check AWS_ENDPOINT_URL and endpoint_url of the profile") from None
