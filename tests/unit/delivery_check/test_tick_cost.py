"""F117: a tick costs few requests, and docs/audit.md tells their price."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from intake_ledger.audit import function as audit
from intake_ledger.delivery_check.check import DeliveryCheck
from intake_ledger.delivery_check.looked import Looked
from intake_ledger.protocol.settings_audit import audit_settings
from intake_ledger_testing import prices
from tests.unit.audit.test_function import Context, LiveAudit, deployed  # noqa: F401 - the fixture
from tests.unit.delivery_check.test_delivery import Aws, bridged

LOOK = DeliveryCheck.look
"""The fixture has none."""
PAGE = Path(__file__).resolve().parents[3] / "docs" / "audit.md"
TICKS = 30 * 24 * 4
"""In a month of 30 days."""
SECONDS, GIGABYTES = 1, 1_769 / 1_024
"""Taken for a tick: a start without a warm environment, and some twenty requests, with the audit's 1,769 MB."""
METRIC_MONTH = 0.30
"""A custom metric (https://aws.amazon.com/cloudwatch/pricing/)."""
S3 = ("GetBucketNotificationConfiguration", "GetBucketVersioning", "GetBucketLifecycleConfiguration")
SQS = ("GetQueueAttributes", "GetQueueAttributes of dead letters")
KMS = ("DescribeKey", "GetKeyPolicy")


def around(deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:  # noqa: F811 - the fixture
    """Requests of a tick with no run due, but for those of the check itself."""
    monkeypatch.setattr(DeliveryCheck, "look", lambda _: Looked())
    deployed.audit(everySeconds=86_400)
    counted: Counter[str] = Counter()
    function = audit.AuditFunction(audit_settings(os.environ))
    for client in (function._tools.s3, function._tools.sqs, function._tools.dynamodb):
        client.meta.events.register("before-send", lambda request, **_: counted.update([_operation(request)]))
    monkeypatch.setattr(audit, "AuditFunction", lambda _: function)
    assert "skipped" in audit.handler({"everySeconds": 86_400}, Context())
    return counted


def _operation(request: Any) -> str:
    target: bytes | str = request.headers.get("X-Amz-Target", b"another")
    return (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]


@pytest.mark.failure_mode("F117")
def test_a_tick_costs_what_the_page_says(deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811 - the fixture
    """Requests and dollars of a month, with S3's notifications and a key."""
    rest = around(deployed, monkeypatch)
    monkeypatch.setattr(DeliveryCheck, "look", LOOK)
    aws = Aws()
    assert aws.problems() == []
    # One Query finds the audit of this pipeline, the next one no other, and the last one no request of a person.
    assert rest == {"GetItem": 1, "Query": 3, "UpdateItem": 1}
    check = Counter(aws.called)
    assert set(check) - {*S3, *SQS, *KMS} == {
        "DescribeTimeToLive",
        "GetFunctionConcurrency",
        "GetFunctionConfiguration",
        "ListEventSourceMappings",
    }, "these are free"
    month = {
        "S3": sum(check[operation] for operation in S3) * prices.S3_GET,
        "SQS": sum(check[operation] for operation in SQS) * prices.SQS_REQUEST,
        "KMS": sum(check[operation] for operation in KMS) * prices.KMS_REQUEST,
        # Two consistent reads, two that are not, and a refused write.
        "DynamoDB": (2 + 2 * 0.5) * prices.READ_UNIT + prices.WRITE_UNIT,
        "Lambda": prices.LAMBDA_REQUEST + SECONDS * GIGABYTES * prices.LAMBDA_GB_SECOND,
    }
    dollars = sum(month.values()) * TICKS
    said = (
        f"A tick sends {rest.total() + check.total()} requests, {check.total()} of them for the delivery. In a month "
        f"these and {SECONDS} second of the function for each are ${dollars:.2f} (${month['KMS'] * TICKS:.2f} of it "
        f"for a key), and the metric is ${METRIC_MONTH:.2f}"
    )
    assert said in " ".join(PAGE.read_text().split()), said


@pytest.mark.failure_mode("F117")
def test_a_rule_costs_no_more_than_a_pattern_for_each_filter() -> None:
    """One request for each kind of event, and all of EventBridge's are free."""
    aws = bridged()
    assert aws.problems() == []
    assert Counter(aws.called)["TestEventPattern"] == 3
    assert sum(Counter(aws.called).values()) <= 18
