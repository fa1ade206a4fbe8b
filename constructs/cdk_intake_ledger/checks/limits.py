"""Limits of AWS services and of the library that the rules compare with and name in their messages."""

MAX_FILTERS = 25
"""S3 takes 100 notification entries for one bucket, and each filter needs four of them."""

MAX_FILTER_BYTES = 1_024
"""S3's limit for prefix and suffix together, in bytes of UTF-8."""

MAX_NAME = 64
"""Characters of the name of a pipeline or a ledger."""

MIN_MESSAGE_BYTES = 64 * 1_024
"""An S3 event with the longest key, form-encoded, has about ten KB."""

MAX_MESSAGE_BYTES = 1_024 * 1_024
"""SQS's limit, and the `MaximumMessageSize` of a queue whose template does not set it."""

AWS_MANAGED_KEY = "alias/aws/sqs"
"""The AWS managed key for SQS. Its policy cannot be changed, so services cannot send (SQS developer guide, "Configure
KMS permissions for AWS services")."""

MIN_SHARDS, MAX_SHARDS = 2, 2_000
"""The planner finds the largest number within its time limit. A shard needs about 1.5 requests to the bucket."""

MAX_CONCURRENCY = 1_000
"""Lambda's default quota of concurrent executions in a region. The consumers share it."""

MIN_MEMORY, MAX_MEMORY = 1_769, 10_240
"""MB: 1 virtual CPU, and 6 (Lambda developer guide, "Configure Lambda function memory")."""

MIN_SCAN_LIMIT = 10 * 2**20
"""Athena's minimum, in bytes
(https://docs.aws.amazon.com/athena/latest/APIReference/API_WorkGroupConfiguration.html)."""

LONGEST_WATCH_DAYS = 7
"""Days that an alarm with a period of an hour or more can evaluate."""

DEFAULT_STORAGE = 512
"""MiB of `/tmp`: Lambda's default."""

MAX_ENVIRONMENT = 4_096
"""Bytes of all environment variables of a function
(https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html)."""

MEMORY = (128, 10_240)
"""MiB of a Lambda function."""

MANAGED_MEMORY = (2_048, 32_768)
"""MiB of a function on Lambda Managed Instances. The smallest size has 2 GB and 1 vCPU, and the API names the
largest."""

MAX_STREAM_BATCH = 10_000
"""Records of a batch from a stream (Lambda API, `BatchSize` of CreateEventSourceMapping)."""
