"""Killed workers, throttled functions, and permissions that are taken away."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from intake_ledger_suite.deployed import Deployed, Order
from intake_ledger_suite.test_services import NO_POLICIES
from intake_ledger_testing.account_cleanup import TAG

pytestmark = pytest.mark.thorough
_DENIED = '?AccessDenied ?"not authorized" ?Forbidden'


@dataclass(frozen=True, slots=True)
class Denial:
    """Permissions that are taken away together, and an object that needs them."""

    name: str
    actions: tuple[str, ...]
    order: Order
    removed: bool = False
    """True if the object is removed at once."""


DENIALS = (
    Denial("claims", ("dynamodb:PartiQLInsert", "dynamodb:PutItem", "dynamodb:UpdateItem"), {}),
    Denial("objects", ("s3:GetObject", "s3:GetObjectVersion"), {}),
    Denial("missing-keys", ("s3:ListBucket",), {}, removed=True),
    Denial("dead-letters", ("sqs:SendMessage",), {"reject": True}),
    Denial("returns", ("sqs:ChangeMessageVisibility",), {"hops": 1, "seconds": 1}),
)


@pytest.mark.assumptions("LAM-11")
def test_kill_of_a_worker_costs_only_time(checks: Deployed) -> None:
    """An object whose first worker is killed has one effect."""
    checks.object_once("Plain", "killed/a.json", checks.put("Plain", "killed/a.json", {"kill": True}), seconds=600)


@pytest.mark.changes(5)
def test_throttle_of_the_function_loses_nothing(checks: Deployed) -> None:
    """Objects that Lambda throttles have one effect each, and count no attempt."""
    functions, name = checks.aws.client("lambda"), checks.out["PlainFunction"]
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    try:
        versions = {f"throttled/{n}": checks.put("Plain", f"throttled/{n}") for n in range(5)}
        checks.pause(5 if checks.aws.is_local else 30)
    finally:
        functions.delete_function_concurrency(FunctionName=name)
    for key, version in versions.items():
        checks.object_once("Plain", key, version, seconds=600)


@pytest.mark.assumptions("IAM-02", "DDB-10", "S3-21")
@pytest.mark.changes(10)
@pytest.mark.only_on_aws(NO_POLICIES, steps=True)
@pytest.mark.parametrize("denial", DENIALS, ids=lambda denial: denial.name)
def test_denials_make_work_wait(checks: Deployed, evidence: Callable[[str], None], denial: Denial) -> None:
    """A permission is taken away and given back. Without it work waits, and the log has the denial."""
    key = f"denied/{denial.name}"
    with without(checks, denial):
        since = round(time.time() * 1_000)
        version = upload(checks, key, denial)
        if not checks.aws.is_local:
            evidence(await_denial(checks, denial, since))
    if denial.order.get("reject"):
        checks.until(lambda: sum(checks.depth("OwnKeyDeadLetters")), "the object is a dead letter", seconds=900)
    elif not denial.removed:
        checks.object_once("OwnKey", key, version, seconds=900)
    checks.drained("OwnKeyQueue", seconds=900)


def upload(checks: Deployed, key: str, denial: Denial) -> str:
    """Upload the object that needs the permissions, and return its version."""
    version = checks.put("OwnKey", key, denial.order)
    if denial.removed:
        checks.remove("OwnKey", key)
    return version


@contextmanager
def without(checks: Deployed, denial: Denial) -> Iterator[None]:
    """Deny actions to the consumer's role."""
    iam, functions = checks.aws.client("iam"), checks.aws.client("lambda")
    arn: str = functions.get_function_configuration(FunctionName=checks.out["OwnKeyFunction"])["Role"]
    role = arn.rpartition("/")[2]
    statement = {"Effect": "Deny", "Action": list(denial.actions), "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_role_policy(RoleName=role, PolicyName=TAG, PolicyDocument=document)
    try:
        # IAM is slow to follow.
        checks.pause(0 if checks.aws.is_local else 20)
        yield
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName=TAG)


def await_denial(checks: Deployed, denial: Denial, since: int) -> str:
    """Return the log's line about it. The object is uploaded again until IAM follows."""
    logs = checks.aws.client("logs")

    def logged() -> str:
        found = logs.filter_log_events(logGroupName=checks.out["Log"], startTime=since, filterPattern=_DENIED)["events"]
        if not found:
            upload(checks, f"denied/{denial.name}-again", denial)
            checks.pause(10)
        return str(found[0]["message"]) if found else ""

    return checks.until(logged, f"a denial of {', '.join(denial.actions)} is in the log", seconds=300)
