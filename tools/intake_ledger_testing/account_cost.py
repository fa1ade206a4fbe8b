"""Estimates a bound of the cost of a run on an account, from the templates and the changes of the tests."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from intake_ledger.contract import METRICS
from intake_ledger_testing import prices

HOURS = 2
"""The time for which the stacks are there. CloudWatch, KMS and Kinesis bill hours."""
_MONTH = HOURS / 730
_POLLS = 900 * HOURS
"""Requests to SQS that Lambda sends for an idle queue: five pollers, 20 seconds each."""
_REQUESTS = 60
"""At most for a change, with 20 waits or attempts of three requests each. So many units of DynamoDB too."""
_GB_SECONDS = 20 * 0.5
"""Duration of the invocations for a change, and the memory of the consumer."""
_LOG_GB, _QUERIES, _QUERY_TB = 0.02, 4, 10 / 1024 / 1024
"""Athena bills at least 10 MB of each query."""
NEW_KEY_REQUESTS = NEW_KEY_UNITS = 2.0
"""Requests to DynamoDB and write units for a new key, as docs/cost.md has counted them."""


def estimate(templates: Sequence[Mapping[str, Any]], changes: int) -> float:
    """Return a bound of the cost in dollars, by the prices of us-east-1.

    Args:
        templates: of the stacks.
        changes: objects and messages that the tests send.

    """
    number = Counter(one["Type"] for template in templates for one in template["Resources"].values())
    # Each pipeline and each intake has one mapping, and its own metrics.
    pipelines = number["AWS::Lambda::EventSourceMapping"]
    hours = (
        number["AWS::KMS::Key"] * prices.KMS_KEY_MONTH * _MONTH
        + number["AWS::Kinesis::Stream"] * prices.KINESIS_SHARD_HOUR * HOURS
        + number["AWS::CloudWatch::Alarm"] * prices.ALARM_MONTH * _MONTH
        + number["AWS::CloudWatch::CompositeAlarm"] * prices.COMPOSITE_MONTH * _MONTH
        + pipelines * len(METRICS) * prices.METRIC_MONTH * _MONTH
        + pipelines * _POLLS * prices.SQS_REQUEST
    )
    each = (
        _REQUESTS * (prices.SQS_REQUEST + prices.KMS_REQUEST + prices.EVENT + prices.S3_GET + prices.LAMBDA_REQUEST)
        + _REQUESTS * (prices.WRITE_UNIT + prices.READ_UNIT)
        + 10 * (prices.S3_PUT + prices.STATE_TRANSITION)
        + _GB_SECONDS * prices.LAMBDA_GB_SECOND
    )
    return hours + changes * each + _QUERIES * prices.ATHENA_TB * _QUERY_TB + _LOG_GB * prices.LOG_GB
