"""The AWS clients of one call, created on first use."""

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

_PATIENT = {"read_timeout": 910, "retries": {"total_max_attempts": 1}}
"""A synchronous invocation lasts as long as its function: 900 seconds. A retry would start it a second time."""


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

    def client(self, service: str, **more: Any) -> Any:
        """Return a new client of a service. `more` are fields of its configuration.

        Raises:
            CliError: The endpoint of the environment or of the profile is not a URL.

        """
        from botocore.config import Config  # noqa: PLC0415 - as above

        session: Any = self._session
        try:
            return session.client(service, config=self._config.merge(Config(**more)))
        except ValueError as error:
            if "ndpoint" not in str(error):
                raise
            raise CliError(f"{error}: check AWS_ENDPOINT_URL and endpoint_url of the profile") from None

    cloudformation: "cached_property[CloudFormationClient]" = cached_property(lambda aws: aws.client("cloudformation"))
    dynamodb: "cached_property[DynamoDBClient]" = cached_property(lambda aws: aws.client("dynamodb"))
    functions: "cached_property[LambdaClient]" = cached_property(lambda aws: aws.client("lambda", **_PATIENT))
    machines: "cached_property[SFNClient]" = cached_property(lambda aws: aws.client("stepfunctions"))
    s3: "cached_property[S3Client]" = cached_property(lambda aws: aws.client("s3"))
    sqs: "cached_property[SQSClient]" = cached_property(lambda aws: aws.client("sqs"))
    # The development dependencies have no types of the others.
    cloudwatch = cached_property[Any](lambda aws: aws.client("cloudwatch"))
    logs = cached_property[Any](lambda aws: aws.client("logs"))
    sts = cached_property[Any](lambda aws: aws.client("sts"))
    tagging = cached_property[Any](lambda aws: aws.client("resourcegroupstaggingapi"))
