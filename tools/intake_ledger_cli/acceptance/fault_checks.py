"""Checks that kill workers, throttle functions and take permissions away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from intake_ledger_cli.acceptance.checking import Check
from intake_ledger_cli.acceptance.deployment import TAG
from intake_ledger_cli.acceptance.service_checks import NO_POLICIES
from intake_ledger_cli.acceptance.world import Order, World
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.consumer_log import group_name

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


def kill(world: World) -> str:
    """A worker that dies in its first attempt."""
    world.object_once("Plain", "killed.json", world.put("Plain", "killed.json", {"kill": True}), seconds=600)
    return "an object whose first worker was killed had one effect"


def throttle(world: World) -> str:
    """No concurrency for a while."""
    functions, name = world.aws.functions, world.pipeline("Plain").consumer_function
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    try:
        versions = {f"throttled/{n}": world.put("Plain", f"throttled/{n}") for n in range(5)}
        world.pause(5 if world.local else 30)
    finally:
        functions.delete_function_concurrency(FunctionName=name)
    for key, version in versions.items():
        world.object_once("Plain", key, version, seconds=600)
    return "five objects that Lambda throttled had one effect each"


def denials(world: World) -> str:
    """Each of five permissions is taken away, and given back."""
    for one in DENIALS:
        with _without(world, one):
            key, since = f"denied/{one.name}", now_ms()
            version = world.put("OwnKey", key, one.order)
            if one.removed:
                world.aws.s3.delete_object(Bucket=world.pipeline("OwnKey").bucket, Key=key)
            if not world.local:
                _await_denial(world, one, since)
        if one.order.get("reject"):
            _await_dead_letter(world)
        elif not one.removed:
            world.object_once("OwnKey", key, version, seconds=900)
        world.drained(world.pipeline("OwnKey").queue_url, seconds=900)
    names = ", ".join(one.name for one in DENIALS)
    return f"taken away in turn, and done afterwards: {names}{'' if world.local else '. Each denial is in the log'}"


def _await_dead_letter(world: World) -> None:
    url = world.pipeline("OwnKey").dead_letter_url
    world.until(lambda: world.depth(url), "the rejected object is a dead letter", seconds=900)


@contextmanager
def _without(world: World, denial: Denial) -> Iterator[None]:
    """Deny actions to the consumer's role."""
    iam: Any = world.client("iam")
    function = world.pipeline("OwnKey").consumer_function
    arn: str = world.aws.functions.get_function_configuration(FunctionName=function)["Role"]
    role = arn.rpartition("/")[2]
    statement = {"Effect": "Deny", "Action": list(denial.actions), "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_role_policy(RoleName=role, PolicyName=TAG, PolicyDocument=document)
    try:
        # IAM is slow to follow.
        world.pause(0 if world.local else 20)
        yield
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName=TAG)


def _await_denial(world: World, denial: Denial, since: int) -> None:
    """Wait for a line about it in the log. The object is uploaded again until IAM follows."""
    logs, group = world.aws.logs, group_name(world.aws, world.pipeline("OwnKey"))

    def logged() -> bool:
        if logs.filter_log_events(logGroupName=group, startTime=since, filterPattern=_DENIED)["events"]:
            return True
        again = f"denied/{denial.name}-again"
        world.put("OwnKey", again, denial.order)
        if denial.removed:
            world.aws.s3.delete_object(Bucket=world.pipeline("OwnKey").bucket, Key=again)
        world.pause(10)
        return False

    world.until(logged, f"a denial of {', '.join(denial.actions)} is in the log", seconds=300)


CHECKS = (
    Check(name="kill", shows="A killed worker costs nothing but time.", run=kill, assumptions=("LAM-11",)),
    Check(name="throttle", shows="Throttled invocations lose nothing, and count no attempt.", run=throttle, changes=5),
    Check(
        name="denials",
        shows="Each of five permissions is needed. Without it, work waits, and goes on when it is back.",
        run=denials,
        assumptions=("IAM-02", "DDB-10", "S3-21"),
        changes=50,
        not_local=NO_POLICIES,
    ),
)
