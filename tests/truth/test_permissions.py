"""Apply IAM's rules to each request of the deployed tests. MiniStack checks no permissions."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.cli_actions import NEEDED
from tests.truth.needs import needs_of
from tests.truth.policies import Need, Statement, Template, granted
from tests.truth.recording import Request, deployed, requests

PERMISSIONS = (
    (Path(__file__).parents[2] / "docs" / "operating.md")
    .read_text()
    .partition("## Permissions")[2]
    .partition("\n## ")[0]
)

_LAMBDA = "Lambda uses it for the function. MiniStack needs no role for that."
_KEY = "S3, SQS and DynamoDB use the key for the function. MiniStack encrypts nothing."
_FORBIDDEN = "After a 403 only, which MiniStack never answers. `tests/unit/aws/test_bucket.py` has the request."
_LOGS = dict.fromkeys(("logs:CreateLogStream", "logs:PutLogEvents"), _LAMBDA)
_NETWORK = dict.fromkeys(
    (
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
    ),
    _LAMBDA,
)
_KEYS = dict.fromkeys(
    ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"), _KEY
)
_POLLING = dict.fromkeys(
    (
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
        "kinesis:DescribeStream",
        "kinesis:DescribeStreamConsumer",
        "kinesis:DescribeStreamSummary",
        "kinesis:GetRecords",
        "kinesis:GetShardIterator",
        "kinesis:ListShards",
        "kinesis:ListStreams",
        "kinesis:SubscribeToShard",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
    ),
    _LAMBDA,
)
UNUSED: dict[str, dict[str, str]] = {
    "AuditJoin": _LOGS,
    "Audit": _LOGS
    | _NETWORK
    | _KEYS
    | {
        "cloudwatch:GetMetricStatistics": "The backlog of a stream. No deployed audit has one.",
        "s3:GetObjectVersion": "HEAD of a removed version, to confirm or to date it. No deployed audit finds one.",
        "sns:GetSubscriptionAttributes": "A filter between bucket and queue. Deployed audits have no topic.",
        "sns:ListSubscriptionsByTopic": "As above.",
        "states:DescribeExecution": "The execution of an audit in parts that does not end.",
    },
    "Consumer": _LOGS
    | _NETWORK
    | _KEYS
    | _POLLING
    | {
        "dynamodb:DescribeTable": "The removal of a key without a row: `tests/unit/consumer/test_removed_twice.py`.",
        "kms:DescribeKey": _KEY,
        "s3:AbortMultipartUpload": "An output above 8 MiB whose upload fails: `tests/unit/outputs/test_outputs.py`.",
        "s3:ListBucketVersions": _FORBIDDEN,
    },
}
"""By kind of function: the actions that no request of the deployed tests used, with their reasons."""
KINDS = ("AuditJoin", "Audit", "Consumer")
"""Parts of the logical IDs of the library's functions. The first part that fits counts."""
OUTSIDE = "table/drills-effects"
"""A table that the drills make outside of their stack, so no role names it."""
UNKNOWN = {
    "BucketNotificationsHandler": "CDK's own function for notifications",
    "Durable-Function": "a template without roles in tests/local/long_work/test_durable_functions.py",
    "Invoices": "the template of `intake-ledger template`, which the test deploys by the AWS CLI's command",
    "NestedStack": "a nested stack has its own template",
}
"""Parts of the names of functions whose templates are not recorded."""

Roles = dict[str, tuple[str, list[Statement]]]


@cache
def templates() -> list[Template]:
    """All deployed templates."""
    exports: dict[str, str] = {}
    found = [Template(one.name, one.template, one.ids, exports) for one in deployed()]
    for template in found:
        for output in template.body.get("Outputs", {}).values():
            if "Export" in output:
                exports[str(template.resolve(output["Export"]["Name"]))] = template.resolve(output["Value"])
    return found


@cache
def roles() -> Roles:
    """By the name of a deployed function: its logical ID, and the statements that its role had in any deployment."""
    found: dict[str, tuple[str, list[Statement]]] = {}
    for template in templates():
        for name, function in template.of_type("AWS::Lambda::Function"):
            if name in template.ids and (role := template.role_of(function)) is not None:
                known = found.setdefault(template.ids[name], (f"{template.name}/{name}", []))
                known[1].extend(template.statements(role))
    return found


def denied(of: Roles, sent: Iterable[Request]) -> Counter[tuple[str, str, str]]:
    """Requests of functions that IAM would deny: function, action and resource."""
    found: Counter[tuple[str, str, str]] = Counter()
    for request in sent:
        if request.function in of:
            name, statements = of[request.function]
            found.update(
                (name, need.action, need.resource) for need in needs_of(request) if not granted(statements, need)
            )
    return found


def unused(of: Roles, sent: Iterable[Request]) -> dict[str, set[str]]:
    """By kind of function: granted actions that no request needed, in any function that sent one."""
    used: dict[str, set[str]] = defaultdict(set)
    for request in sent:
        if request.function in of:
            name, statements = of[request.function]
            used[kind_of(name)].update(action for need in needs_of(request) for _, action in granted(statements, need))
    given: dict[str, set[str]] = defaultdict(set)
    for name, statements in of.values():
        allowed = [statement for statement in statements if statement.document["Effect"] == "Allow"]
        given[kind_of(name)].update(action for statement in allowed for action in statement.actions)
    return {kind: given[kind] - used[kind] for kind in KINDS}


def kind_of(name: str) -> str:
    return next((kind for kind in KINDS if kind in name), "")


@pytest.mark.failure_mode("F410")
def test_each_request_of_a_function_is_allowed_by_its_role() -> None:
    """Each function that sent a request is known, so that none is left out."""
    assert {one for one in denied(roles(), requests()) if not one[2].endswith(OUTSIDE)} == set()
    senders = {one.function for one in requests() if one.function}
    assert not {one for one in senders - set(roles()) if not any(part in one for part in UNKNOWN)}
    assert len(senders & set(roles())) > 40


def test_each_grant_is_used_or_has_a_reason() -> None:
    """A reason for an action that no role has any more is wrong too."""
    found = unused(roles(), requests())
    assert {kind: actions - set(UNUSED[kind]) for kind, actions in found.items() if actions - set(UNUSED[kind])} == {}
    given = unused(roles(), [])
    assert {kind: set(reasons) - given[kind] for kind, reasons in UNUSED.items() if set(reasons) - given[kind]} == {}


@pytest.mark.failure_mode("F410")
def test_a_missing_and_a_superfluous_grant_are_found() -> None:
    """A role that may read an object and write all tables, and a function that looks for an object that is gone."""
    allowed = [
        Statement("Policy", {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::in/*"}),
        Statement("Policy", {"Effect": "Allow", "Action": ["dynamodb:PutItem"], "Resource": "*"}),
    ]
    role = {"f": ("Stack/OrdersConsumer", allowed)}
    look = Request("f", "", [], "s3", "HeadObject", {"Bucket": "in", "Key": "a"}, 404, "404")
    assert denied(role, [look]) == {("Stack/OrdersConsumer", "s3:ListBucket", "arn:aws:s3:::in"): 1}
    assert unused(role, [look])["Consumer"] == {"dynamodb:PutItem"}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"StringEquals": {"aws:SourceAccount": "1"}}, False),
        ({"StringEquals": {"s3:prefix": "in/"}}, True),
        ({"StringLike": {"s3:prefix": ["out/*", "i?/*"]}}, True),
        ({"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["a#*"]}}, False),
        ({"ForAllValues:StringEquals": {"dynamodb:Attributes": ["a"]}}, True),
        ({"StringNotEquals": {"s3:prefix": "in/"}}, False),
        ({"StringEqualsIfExists": {"aws:SourceAccount": "1"}}, True),
        ({"Null": {"aws:SourceAccount": "true"}}, True),
        ({"Bool": {"aws:SecureTransport": "false"}}, False),
    ],
    ids=str,
)
def test_conditions_are_evaluated_as_by_iam(condition: dict[str, object], holds: bool) -> None:
    need = Need("s3:ListBucket", "b", {"s3:prefix": ["in/"], "dynamodb:leadingkeys": ["a#1", "b#1"]})
    document = {"Effect": "Allow", "Action": "s3:List*", "Resource": "*", "Condition": condition}
    assert bool(granted([Statement("", document)], need)) is holds
    assert not granted([Statement("", document), Statement("", document | {"Effect": "Deny"})], need)


def test_each_request_of_a_command_is_on_the_page_of_permissions() -> None:
    """`tests/cli_actions.py` has the actions of most commands. The page names the others."""
    missing = {
        (request.command, need.action)
        for request in requests()
        if request.command and request.callers
        for need in needs_of(request)
        if need.action not in NEEDED.get(request.command, ()) and not _named(need.action)
    }
    assert not missing
    assert {request.command for request in requests()} >= {"list", "inspect", "retry", "status"}


def _named(action: str) -> bool:
    """True if the page has an action, or a list of names after the service: "(`dynamodb:DeleteItem`, `GetItem`)"."""
    service, name = action.split(":")
    return f"{service}:" in PERMISSIONS and re.search(rf"\b{name}\b", PERMISSIONS) is not None
