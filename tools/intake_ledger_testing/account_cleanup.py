"""Deletes the stacks of a run on an account with everything that belongs to them, also what an interruption left."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Client = Callable[[str], Any]

TAG = "intake-run"
"""The tag of all resources. Its value is the ID of the run. The names of stacks begin with it too."""
_NAME = re.compile(f"{TAG}-([0-9a-f]{{8}})")
_POLL_SECONDS = 5.0
_DELETE_SECONDS = 1_800.0
_LOG_SECONDS, _QUIET_LOOKS = 180.0, 9
_TRIES = 4
_GONE = ("", "DELETE_COMPLETE")
_LOGS = {"AWS::Lambda::Function": "/aws/lambda/", "AWS::Logs::LogGroup": ""}
"""Types of resources that have a log group, and its name before theirs."""


class AccountAwsError(RuntimeError):
    """A deployment to an account, or its deletion, failed. The message has the reason and the fix."""


def name_of(run: str) -> str:
    """Return the beginning of the names of a run's stacks. It fits into the 24 characters that resources keep of it."""
    return f"{TAG}-{run}"


def qualifier(run: str) -> str:
    """Return the CDK's qualifier of a run, from which the name of its bucket follows."""
    return f"ir{run}"


def bucket_of(run: str, account: str, region: str) -> str:
    """Return the name of a run's bucket, as of a bootstrap with this qualifier."""
    return f"cdk-{qualifier(run)}-assets-{account}-{region}"


def runs(client: Client) -> dict[str, None]:
    """Return each run of which a stack or a bucket is left, by its tag, or a log group, by its name.

    A function that ends after the deletion writes its lines into a new log group, which has no tag.

    Args:
        client: returns the client of a service.

    """
    found = dict.fromkeys(
        tag["Value"]
        for page in client("cloudformation").get_paginator("describe_stacks").paginate()
        for stack in page["Stacks"]
        if stack["StackStatus"] not in _GONE
        for tag in stack.get("Tags", [])
        if tag["Key"] == TAG
    )
    s3 = client("s3")
    for bucket in s3.list_buckets()["Buckets"]:
        if bucket["Name"].startswith(f"cdk-{qualifier('')}"):
            with suppress(s3.exceptions.ClientError):  # of another owner, or gone meanwhile
                tags = s3.get_bucket_tagging(Bucket=bucket["Name"])["TagSet"]
                found |= dict.fromkeys(tag["Value"] for tag in tags if tag["Key"] == TAG)
    named = (_NAME.search(name) for name in _groups(client, f"{TAG}-"))
    return found | dict.fromkeys(name[1] for name in named if name)


def remove(client: Client, run: str) -> list[str]:
    """Delete stacks, bucket and log groups of a run, and return the names of the resources that are still there.

    Objects that arrive during the deletion make CloudFormation fail, so it is tried several times.

    Args:
        client: returns the client of a service.
        run: the ID of the run.

    """
    groups: set[str] = set()
    names = list(stacks(client, run))
    for _ in range(_TRIES):
        for stack in names:
            groups |= set(_prepared(client, stack))
        for stack in names:
            client("cloudformation").delete_stack(StackName=stack)
        # A list, so that all are awaited.
        if all([_is_deleted(client, stack) for stack in names]):  # noqa: C419
            break
    s3 = client("s3")
    for bucket in _buckets(client, run):
        _empty(s3, bucket)
        s3.delete_bucket(Bucket=bucket)
    _remove_groups(client, run, groups)
    left = [f"stack {one}" for one in names if status(client, one) not in _GONE]
    return left + [f"bucket {one}" for one in _buckets(client, run)]


def status(client: Client, stack: str) -> str:
    """Return the status of a stack, or an empty text if there is none."""
    cloudformation = client("cloudformation")
    try:
        found = str(cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])
    except cloudformation.exceptions.ClientError as error:
        if "does not exist" in str(error):
            return ""
        raise
    return "" if found in _GONE else found


def stacks(client: Client, run: str) -> Iterator[str]:
    """Yield the names of the stacks of a run that exist."""
    for page in client("cloudformation").get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            if {"Key": TAG, "Value": run} in stack.get("Tags", []) and stack["StackStatus"] not in _GONE:
                yield stack["StackName"]


def _buckets(client: Client, run: str) -> list[str]:
    found = (one["Name"] for one in client("s3").list_buckets()["Buckets"])
    return [name for name in found if name.startswith(f"cdk-{qualifier(run)}-")]


def _prepared(client: Client, stack: str) -> Iterator[str]:
    """Make the resources of a stack deletable, and yield the names of its log groups."""
    if not status(client, stack):
        return
    s3, iam = client("s3"), client("iam")
    for page in client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack):
        for one in page["StackResourceSummaries"]:
            name, type_ = one.get("PhysicalResourceId"), one["ResourceType"]
            if not name or one["ResourceStatus"] in _GONE:
                continue
            if type_ in _LOGS:
                yield _LOGS[type_] + name
            if type_ == "AWS::S3::Bucket":
                # The removal of objects is to notify no function.
                with suppress(s3.exceptions.ClientError):
                    s3.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration={})
                _empty(s3, name)
            if type_ == "AWS::IAM::Role":
                # A test that was killed may have left a denial. CloudFormation would not delete its role.
                with suppress(iam.exceptions.ClientError):
                    iam.delete_role_policy(RoleName=name, PolicyName=TAG)


def _is_deleted(client: Client, stack: str) -> bool:
    """Wait for the end of a deletion. True if the stack is gone."""
    ends = time.monotonic() + _DELETE_SECONDS
    while (found := status(client, stack)) and found != "DELETE_FAILED" and time.monotonic() < ends:
        time.sleep(_POLL_SECONDS)
    return not found


def _remove_groups(client: Client, run: str, names: set[str]) -> None:
    """Delete log groups until none was made again for a while: a function may end, and log, after its deletion."""
    logs = client("logs")
    quiet, ends = 0, time.monotonic() + _LOG_SECONDS
    while quiet < _QUIET_LOOKS and time.monotonic() < ends:
        quiet += 1
        # A creation that was interrupted may not have listed all.
        for name in names | set(_groups(client, name_of(run))):
            with suppress(logs.exceptions.ResourceNotFoundException):
                logs.delete_log_group(logGroupName=name)
                quiet = 0
        time.sleep(_POLL_SECONDS)


def _groups(client: Client, part: str) -> Iterator[str]:
    """Yield the log groups whose names have a part."""
    for page in client("logs").get_paginator("describe_log_groups").paginate(logGroupNamePattern=part):
        yield from (one["logGroupName"] for one in page["logGroups"] if part in one["logGroupName"])


def _empty(s3: Any, bucket: str) -> None:
    """Delete all versions and delete markers of a bucket, if it exists."""
    with suppress(s3.exceptions.NoSuchBucket):
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            if found := [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                gone = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
                s3.delete_objects(Bucket=bucket, Delete={"Objects": gone, "Quiet": True})
