"""Estimates the cost of a run: a bound, from the resources of the template and the checks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from intake_ledger.contract import METRICS
from intake_ledger_cli import prices
from intake_ledger_cli.acceptance.checking import Check
from intake_ledger_cli.acceptance.document import CostLine

HOURS = 2
"""The time for which the stack is there. CloudWatch, KMS and Kinesis bill hours."""
_MONTH_HOURS = 730
_POLLS = 900
"""Requests to SQS that Lambda sends for an idle queue in an hour: five pollers, 20 seconds each."""
_WRITE_UNITS = _READ_UNITS = _REQUESTS = 60
"""At most for a change, with 20 waits or attempts of three requests each."""
_SECONDS, _GIGABYTES = 20, 0.5
"""Duration of the invocations for a change, and the memory of the consumer."""
_LOG_GB, _QUERIES, _QUERY_TB = 0.02, 4, 10 / 1024 / 1024
"""Athena bills at least 10 MB of each query."""


def estimate(template: Mapping[str, Any], checks: Sequence[Check]) -> tuple[CostLine, ...]:
    """Return the lines of the estimate.

    Args:
        template: of the stack.
        checks: the checks that will run.

    """
    return tuple(_lines(Counter(one["Type"] for one in template["Resources"].values()), checks))


def _lines(number: Mapping[str, int], checks: Sequence[Check]) -> Iterator[CostLine]:
    changes = sum(one.changes for one in checks)
    # Each pipeline and each intake has one mapping, and its own metrics.
    pipelines = number["AWS::Lambda::EventSourceMapping"]
    month = HOURS / _MONTH_HOURS
    for what, count, price in (
        ("KMS keys, for hours", number["AWS::KMS::Key"], prices.KMS_KEY_MONTH * month),
        ("shards of Kinesis, for hours", number["AWS::Kinesis::Stream"], prices.KINESIS_SHARD_HOUR * HOURS),
        ("alarms, for hours", number["AWS::CloudWatch::Alarm"], prices.ALARM_MONTH * month),
        ("metrics, for hours", pipelines * len(METRICS), prices.METRIC_MONTH * month),
        ("polls of queues", pipelines * _POLLS * HOURS, prices.SQS_REQUEST),
        ("requests to SQS", changes * _REQUESTS, prices.SQS_REQUEST),
        ("requests to KMS", changes * _REQUESTS, prices.KMS_REQUEST),
        ("events of EventBridge", changes * _REQUESTS, prices.EVENT),
        ("write units of DynamoDB", changes * _WRITE_UNITS, prices.WRITE_UNIT),
        ("read units of DynamoDB", changes * _READ_UNITS, prices.READ_UNIT),
        ("writes and lists of S3", changes * 10, prices.S3_PUT),
        ("reads of S3", changes * _REQUESTS, prices.S3_GET),
        ("invocations of Lambda", changes * _REQUESTS, prices.LAMBDA_REQUEST),
        ("GB-seconds of Lambda", changes * _SECONDS * _GIGABYTES, prices.LAMBDA_GB_SECOND),
        ("transitions of Step Functions", changes * 10, prices.STATE_TRANSITION),
        ("queries of Athena", _QUERIES, prices.ATHENA_TB * _QUERY_TB),
        ("GB of logs", _LOG_GB, prices.LOG_GB),
    ):
        yield CostLine(what=what, count=count, dollars=round(count * price, 6))
