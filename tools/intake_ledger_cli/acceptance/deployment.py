"""Deploys the stack of the checks, and removes it with everything that belongs to it.

A subprocess synthesises the template with the CDK. CloudFormation deploys it from a bucket of the run. So an account
needs no bootstrap, and the machine no CDK CLI.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from intake_ledger_cli.aws import Aws
from intake_ledger_cli.errors import CliError

TAG = "intake-ledger-acceptance"
"""The tag of all resources. Its value is the run. Names of stack and bucket begin with it too."""
_NAME = re.compile(f"{TAG}-([0-9a-f]{{8}})")
_POLL_SECONDS = 5.0
_DEPLOY_SECONDS = 1_800.0
_LOG_SECONDS, _QUIET_LOOKS = 180.0, 9
_TRIES = 4
_DELETED = "DELETE_COMPLETE"
_LOGS = {"AWS::Lambda::Function": "/aws/lambda/", "AWS::Logs::LogGroup": ""}
"""Types of resources that have a log group, and its name before theirs."""
_MODULE = "cdk_intake_ledger.acceptance"
_SILENCE = ("END_OF_LIFE", "DEPRECATED")


@dataclass(frozen=True, slots=True)
class Run:
    """One run, by its ID. Its stack and its bucket have the same name."""

    id: str

    @property
    def name(self) -> str:
        """The name of the stack and of the bucket."""
        return f"{TAG}-{self.id}"

    @property
    def tags(self) -> list[Any]:
        """The tags of stack and bucket. CloudFormation gives those of a stack to its resources."""
        return [{"Key": TAG, "Value": self.id}]


def is_local(aws: Aws) -> bool:
    """True if the clients' endpoint is not AWS."""
    host = aws.sqs.meta.endpoint_url.partition("://")[2].partition("/")[0].partition(":")[0]
    return not host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))


def synthesise(run: Run, folder: Path, *, local: bool) -> dict[str, Any]:
    """Write template and code into a folder, and return the template.

    Args:
        run: the run, whose bucket has the code.
        folder: a new folder.
        local: whether functions run on this machine.

    Raises:
        CliError: Node.js or the CDK is not installed, or the synthesis failed.

    """
    node = os.environ.get("JSII_NODE", "node")
    if shutil.which(node) is None:
        raise CliError(f"intake-ledger acceptance needs Node.js 20 or later, and there is no {node} on the PATH")
    architecture = "x86_64" if local and platform.machine() in ("x86_64", "AMD64") else "arm64"
    command = [sys.executable, "-m", _MODULE, str(folder), "--assets", run.name, "--architecture", architecture]
    silence = {f"JSII_SILENCE_WARNING_{why}_NODE_VERSION": "20,22,24" for why in _SILENCE}
    done = subprocess.run(command, env=silence | os.environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise CliError(
            f"the stack cannot be synthesised: {last}; pip install 'cdk-intake-ledger[cli]' without --no-deps"
        )
    template: dict[str, Any] = json.loads((folder / "Acceptance.template.json").read_text())
    return template


def deploy(aws: Aws, run: Run, folder: Path) -> dict[str, str]:
    """Create the bucket and the stack, and return the stack's outputs.

    Raises:
        CliError: CloudFormation could not create the stack. The text has its first reason.

    """
    where: Any = {} if aws.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    aws.s3.create_bucket(Bucket=run.name, **where)
    aws.s3.put_bucket_tagging(Bucket=run.name, Tagging={"TagSet": run.tags})
    template_key = _upload(aws, run, folder)
    aws.cloudformation.create_stack(
        StackName=run.name,
        TemplateURL=aws.s3.generate_presigned_url("get_object", Params={"Bucket": run.name, "Key": template_key}).split(
            "?", maxsplit=1
        )[0],
        Capabilities=["CAPABILITY_IAM"],
        OnFailure="DO_NOTHING",
        Tags=run.tags,
    )
    ends = time.monotonic() + _DEPLOY_SECONDS
    while True:
        [stack] = aws.cloudformation.describe_stacks(StackName=run.name)["Stacks"]
        if stack["StackStatus"] == "CREATE_COMPLETE":
            return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
        if stack["StackStatus"] != "CREATE_IN_PROGRESS" or time.monotonic() > ends:
            raise CliError(f"the stack {run.name} is {stack['StackStatus']}: {_first_failure(aws, run.name)}")
        time.sleep(_POLL_SECONDS)


def runs(aws: Aws) -> Iterator[Run]:
    """Yield each run of which a stack or a bucket is left, by its tag, or a log group, by its name.

    A function that ends after the removal writes its lines into a new log group, which has no tag.
    """
    found = dict.fromkeys(
        tag["Value"]
        for page in aws.cloudformation.get_paginator("describe_stacks").paginate()
        for stack in page["Stacks"]
        if stack["StackStatus"] != _DELETED
        for tag in stack.get("Tags", [])
        if tag["Key"] == TAG
    )
    for bucket in aws.s3.list_buckets()["Buckets"]:
        if bucket["Name"].startswith(f"{TAG}-"):
            with suppress(ClientError):  # of another owner, or gone meanwhile
                tags = aws.s3.get_bucket_tagging(Bucket=bucket["Name"])["TagSet"]
                found |= dict.fromkeys(tag["Value"] for tag in tags if tag["Key"] == TAG)
    for page in aws.logs.get_paginator("describe_log_groups").paginate(logGroupNamePattern=f"{TAG}-"):
        named = (_NAME.search(one["logGroupName"]) for one in page["logGroups"])
        found |= dict.fromkeys(name[1] for name in named if name)
    yield from map(Run, found)


def remove(aws: Aws, run: Run) -> tuple[str, ...]:
    """Remove stack, bucket and log groups of a run, and return the names of the resources that are still there.

    Objects that arrive during the removal make CloudFormation fail, so it is tried several times.
    """
    groups: set[str] = set()
    iam = aws.client("iam")
    for _ in range(_TRIES):
        resources = dict(_resources(aws, run.name))
        groups |= {_LOGS.get(type_, "") + name for name, type_ in resources.items() if type_ in _LOGS}
        for name, type_ in resources.items():
            if type_ == "AWS::S3::Bucket":
                _silence(aws, name)
                _empty(aws, name)
            if type_ == "AWS::IAM::Role":
                # A run that was killed may have left it. CloudFormation would not delete its role.
                with suppress(ClientError):
                    iam.delete_role_policy(RoleName=name, PolicyName=TAG)
        if _delete_stack(aws, run.name):
            break
    _empty(aws, run.name)
    with suppress(ClientError):
        aws.s3.delete_bucket(Bucket=run.name)
    _remove_groups(aws, run, groups)
    return tuple(_left(aws, run))


def _left(aws: Aws, run: Run) -> Iterator[str]:
    if _status(aws, run.name) not in ("", _DELETED):
        yield f"stack {run.name}"
    if any(one["Name"] == run.name for one in aws.s3.list_buckets()["Buckets"]):
        yield f"bucket {run.name}"


def _upload(aws: Aws, run: Run, folder: Path) -> str:
    """Upload the files of the template, and return the template's key."""
    manifest = json.loads((folder / "Acceptance.assets.json").read_text())
    template = ""
    for file in manifest["files"].values():
        path = folder / file["source"]["path"]
        [place] = file["destinations"].values()
        if file["source"]["packaging"] == "zip":
            path = Path(shutil.make_archive(str(path), "zip", path))
        aws.s3.upload_file(str(path), run.name, place["objectKey"])
        if path.name == "Acceptance.template.json":
            template = place["objectKey"]
    return template


def _first_failure(aws: Aws, stack: str) -> str:
    pages = aws.cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
    failed = [
        f"{event.get('LogicalResourceId', '')}: {event.get('ResourceStatusReason', '')}"
        for page in pages
        for event in page["StackEvents"]
        if event.get("ResourceStatus", "").endswith("_FAILED")
    ]
    return failed[-1] if failed else "no reason is given"


def _resources(aws: Aws, stack: str) -> Iterator[tuple[str, str]]:
    """Yield physical ID and type of each resource of a stack; none without a stack."""
    if _status(aws, stack) in ("", _DELETED):
        return
    for page in aws.cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack):
        for one in page["StackResourceSummaries"]:
            if one.get("PhysicalResourceId") and one["ResourceStatus"] != _DELETED:
                yield one["PhysicalResourceId"], one["ResourceType"]


def _status(aws: Aws, stack: str) -> str:
    """The stack's status, or an empty text if there is none."""
    try:
        return aws.cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
    except ClientError as error:
        if "does not exist" in str(error):
            return ""
        raise


def _delete_stack(aws: Aws, stack: str) -> bool:
    """Delete the stack. True if it is gone."""
    if (status := _status(aws, stack)) in ("", _DELETED):
        return True
    aws.cloudformation.delete_stack(StackName=stack)
    ends = time.monotonic() + _DEPLOY_SECONDS
    while (status := _status(aws, stack)) not in ("", _DELETED, "DELETE_FAILED") and time.monotonic() < ends:
        time.sleep(_POLL_SECONDS)
    return status in ("", _DELETED)


def _remove_groups(aws: Aws, run: Run, names: set[str]) -> None:
    """Delete log groups until none was made again for a while: a function may end, and log, after its deletion."""
    quiet, ends = 0, time.monotonic() + _LOG_SECONDS
    while quiet < _QUIET_LOOKS and time.monotonic() < ends:
        quiet += 1
        # A creation that was interrupted may not have listed all.
        for name in names | set(_groups(aws, run)):
            try:
                aws.logs.delete_log_group(logGroupName=name)
                quiet = 0
            except ClientError as error:
                if error.response["Error"].get("Code") != "ResourceNotFoundException":
                    raise
        time.sleep(_POLL_SECONDS)


def _groups(aws: Aws, run: Run) -> Iterator[str]:
    """Yield the log groups whose names have the run's name."""
    for page in aws.logs.get_paginator("describe_log_groups").paginate(logGroupNamePattern=run.name):
        yield from (one["logGroupName"] for one in page["logGroups"] if run.name in one["logGroupName"])


def _silence(aws: Aws, bucket: str) -> None:
    """Let the removal of objects notify no function."""
    with suppress(ClientError):
        aws.s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})


def _empty(aws: Aws, bucket: str) -> None:
    """Delete all versions and delete markers of a bucket, if it exists."""
    try:
        for page in aws.s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            found: list[Mapping[str, Any]] = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
            if found:
                gone: Any = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
                aws.s3.delete_objects(Bucket=bucket, Delete={"Objects": gone, "Quiet": True})
    except ClientError as error:
        if error.response["Error"].get("Code") != "NoSuchBucket":
            raise
