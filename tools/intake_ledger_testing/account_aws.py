"""An AWS account for tests, with the interface of `LocalAws`.

    with AccountAws("111122223333") as aws:
        outputs = aws.deploy(f"python app.py {aws.prefix}Catalogue")[f"{aws.prefix}Catalogue"]

CloudFormation reads template and code from a bucket of the run. So the account needs no bootstrap, and the machine no
CDK CLI. The end of the block deletes everything.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, override

from intake_ledger_testing import account_cleanup
from intake_ledger_testing.account_cleanup import TAG, AccountAwsError, name_of
from intake_ledger_testing.aws_environment import AwsEnvironment
from intake_ledger_testing.pytest_plugin import TESTED_NODE_RELEASES, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["AccountAws", "AccountAwsError"]

_RUN = re.compile("[0-9a-f]{8}")
_DEPLOY_SECONDS = 1_800.0
_POLL_SECONDS = 5.0
_CREATED = "CREATE_COMPLETE"
_OF_THE_BOOTSTRAP = {"Parameters": "BootstrapVersion", "Rules": "CheckBootstrapVersion"}
Json = dict[str, Any]


class AccountAws(AwsEnvironment):
    """An AWS account. It is used inside a `with` block, or between `start` and `stop`.

    Region and credentials are those of the AWS SDK (`AWS_PROFILE`, `AWS_DEFAULT_REGION`).
    """

    def __init__(
        self, account: str, *, run: str = "", keep: bool = False, say: Callable[[str], None] | None = None
    ) -> None:
        """Create the environment without a request.

        Args:
            account: the ID of the account, which STS must confirm.
            run: the ID of a kept run whose stacks are used as they are; a new run when omitted. `stop` keeps them.
            keep: whether `stop` keeps stacks and bucket, for someone to delete later; it deletes them when omitted.
            say: gets each line about the progress; standard error when omitted.

        Raises:
            AccountAwsError: `run` is no ID of a run, or no region is configured.

        """
        import boto3  # noqa: PLC0415 - most tests need no AWS

        if run and not _RUN.fullmatch(run):
            raise AccountAwsError(f"{run!r} is no ID of a run: it has eight hexadecimal digits")
        # The client's type is only known at run time.
        self._session: Any = boto3.Session()
        if not self._session.region_name:
            raise AccountAwsError("no region is configured: set AWS_DEFAULT_REGION")
        self.account = account
        """The account of all clients and deployments."""
        self.region = self._session.region_name
        """The region of all clients and deployments."""
        self.run = run or secrets.token_hex(4)
        """The ID of the run. It is in the names of stacks and bucket, and the value of the tag `intake-run`."""
        self.prefix = f"{name_of(self.run)}-"
        """The beginning of the names of all stacks."""
        self._resumed, self._keep = bool(run), keep or bool(run)
        self._say = say or (lambda line: print(line, file=sys.stderr))  # noqa: T201
        self._clients: dict[str, Any] = {}
        self._lock = Lock()
        self._folder: Path | None = None
        self._stacks: dict[str, list[_Stack]] = {}
        self._begun = False
        self.is_deleting = False
        """True while `stop` deletes the run."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Check the account.

        Raises:
            AccountAwsError: STS tells no account or another one, or the run to go on with has no stack.

        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as boto3

        try:
            found = self.client("sts").get_caller_identity()["Account"]
        except (BotoCoreError, ClientError) as error:
            raise AccountAwsError(f"STS does not tell the account: {error}") from None
        if found != self.account:
            raise AccountAwsError(f"the credentials are of the account {found}, and not of {self.account}")
        if self._resumed and not any(account_cleanup.stacks(self.client, self.run)):
            raise AccountAwsError(f"there is no stack of the run {self.run} in {self.account}, {self.region}")

    def stop(self) -> None:
        """Delete everything that the run has made, or say how to go on with a run that is kept.

        Raises:
            AccountAwsError: A resource could not be deleted. The message names it.

        """
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if not self._begun:
            return
        options = f"--aws-account {self.account} --run {self.run}"
        if self._keep:
            self._say(f"the run {self.run} is kept. Go on with {options}. Delete it with {options} --cleanup")
            return
        self.is_deleting = True
        try:
            self.remove(self.run)
        except BaseException:
            self._say(f"the run {self.run} is not deleted: use {options} --cleanup")
            raise

    def runs(self) -> list[str]:
        """Return the IDs of all runs of which something is left in account and region."""
        return list(account_cleanup.runs(self.client))

    def remove(self, run: str) -> None:
        """Delete stacks, bucket and log groups of a run.

        Args:
            run: its ID.

        Raises:
            AccountAwsError: A resource could not be deleted. The message names it.

        """
        self._say(f"deleting the run {run}")
        if left := account_cleanup.remove(self.client, run):
            raise AccountAwsError(f"not deleted: {', '.join(left)}. Read the events of the stack, and use --cleanup")

    @property
    @override
    def is_local(self) -> bool:
        """True if the endpoint is not AWS."""
        host = self.client("sqs").meta.endpoint_url.partition("://")[2].partition("/")[0].partition(":")[0]
        return not host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))

    @override
    def client(self, service: str) -> Any:
        """Return the boto3 client of a service, which is created once. Requests to Lambda are not repeated.

        Args:
            service: its name in boto3, such as `sqs`.

        """
        from botocore.config import Config  # noqa: PLC0415 - as boto3

        # A synchronous invocation lasts as long as its function. A repetition would start the function again.
        config: dict[str, Any] = {"read_timeout": 910} if service == "lambda" else {"connect_timeout": 5}
        retries: Any = {"mode": "standard", "total_max_attempts": 1 if service == "lambda" else 5}
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._session.client(service, config=Config(retries=retries, **config))
            return self._clients[service]

    def templates(self, app: str, *, cwd: Path | None = None) -> list[Json]:
        """Synthesize an app, once, and return its templates without the parts for a bootstrapped account.

        Args:
            app: as for `deploy`.
            cwd: as for `deploy`, also when omitted.

        Raises:
            AccountAwsError: Node.js is not installed, or the app fails.

        """
        if app not in self._stacks:
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="account-aws-"))
            assembly = self._folder / str(len(self._stacks))
            self._synthesise(app, assembly, cwd)
            self._stacks[app] = list(_stacks(assembly))
        return [stack.template for stack in self._stacks[app]]

    @override
    def deploy(self, app: str, *, cwd: Path | None = None) -> dict[str, dict[str, str]]:
        """Deploy the stacks of an app, and return their outputs by stack name. A stack of a kept run stays as it is.

        Args:
            app: the command that synthesizes, as in `cdk --app`. The names of its stacks begin with `prefix`. `python`
                is this interpreter.
            cwd: its working directory; the current directory when omitted.

        Raises:
            AccountAwsError: The app fails, or CloudFormation could not create a stack. The text has its first reason.

        """
        self.templates(app, cwd=cwd)
        stacks = self._stacks[app]
        if wrong := [one.name for one in stacks if not one.name.startswith(self.prefix)]:
            raise AccountAwsError(f"the name of the stack {wrong[0]} does not begin with {self.prefix}")
        self._begun = True
        if new := [one for one in stacks if not account_cleanup.status(self.client, one.name)]:
            self._make_bucket()
        for stack in new:
            self._say(f"creating the stack {stack.name}")
            self._create(stack)
        return {one.name: self._outputs(one.name) for one in stacks}

    def _synthesise(self, app: str, assembly: Path, cwd: Path | None) -> None:
        node = os.environ.get("JSII_NODE", "node")
        if shutil.which(node) is None:
            raise AccountAwsError(f"the CDK needs Node.js 20 or later, and there is no {node} on the PATH")
        environment = dict.fromkeys(VARIABLES, TESTED_NODE_RELEASES) | os.environ
        environment |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "CDK_OUTDIR": str(assembly),
            "CDK_DEFAULT_ACCOUNT": self.account,
            "CDK_DEFAULT_REGION": self.region,
            # The name of the bucket for the code follows from it.
            "CDK_CONTEXT_JSON": json.dumps({"@aws-cdk/core:bootstrapQualifier": account_cleanup.qualifier(self.run)}),
        }
        done = subprocess.run(shlex.split(app), env=environment, cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = "\n".join(done.stderr.strip().splitlines()[-30:]) or "no output"
            raise AccountAwsError(f"`{app}` failed with exit code {done.returncode}:\n{lines}")

    @property
    def _bucket(self) -> str:
        return account_cleanup.bucket_of(self.run, self.account, self.region)

    @property
    def _tags(self) -> list[Json]:
        """The tags of stacks and bucket. CloudFormation gives those of a stack to its resources."""
        return [{"Key": TAG, "Value": self.run}]

    def _make_bucket(self) -> None:
        where = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
        s3 = self.client("s3")
        if not any(one["Name"] == self._bucket for one in s3.list_buckets()["Buckets"]):
            s3.create_bucket(Bucket=self._bucket, **({"CreateBucketConfiguration": where} if where else {}))
            s3.put_bucket_tagging(Bucket=self._bucket, Tagging={"TagSet": self._tags})

    def _create(self, stack: _Stack) -> None:
        s3, key = self.client("s3"), f"{stack.name}.template.json"
        for path, object_key in stack.files():
            s3.upload_file(str(path), self._bucket, object_key)
        s3.put_object(Bucket=self._bucket, Key=key, Body=json.dumps(stack.template))
        url = s3.generate_presigned_url("get_object", Params={"Bucket": self._bucket, "Key": key})
        self.client("cloudformation").create_stack(
            StackName=stack.name,
            TemplateURL=url.partition("?")[0],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
            OnFailure="DO_NOTHING",
            Tags=self._tags,
        )

    def _outputs(self, stack: str) -> dict[str, str]:
        """Wait until a stack is created, and return its outputs."""
        cloudformation, ends = self.client("cloudformation"), time.monotonic() + _DEPLOY_SECONDS
        while True:
            [found] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
            if found["StackStatus"] == _CREATED:
                return {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}
            if found["StackStatus"] != "CREATE_IN_PROGRESS" or time.monotonic() > ends:
                reason = self._first_failure(stack)
                raise AccountAwsError(f"the stack {stack} is {found['StackStatus']}: {reason}")
            time.sleep(_POLL_SECONDS)

    def _first_failure(self, stack: str) -> str:
        pages = self.client("cloudformation").get_paginator("describe_stack_events").paginate(StackName=stack)
        failed = [
            f"{event.get('LogicalResourceId', '')}: {event.get('ResourceStatusReason', '')}"
            for page in pages
            for event in page["StackEvents"]
            if event.get("ResourceStatus", "").endswith("_FAILED")
        ]
        return failed[-1] if failed else "no reason is given"


class _Stack:
    """A stack of a cloud assembly."""

    def __init__(self, assembly: Path, id_: str, artifacts: Mapping[str, Json]) -> None:
        about = artifacts[id_]
        self.name: str = about["properties"].get("stackName", id_)
        self.template: Json = json.loads((assembly / about["properties"]["templateFile"]).read_text())
        for section, name in _OF_THE_BOOTSTRAP.items():
            found = self.template.get(section, {})
            found.pop(name, None)
            if not found:
                self.template.pop(section, None)
        self._assembly = assembly
        self._own = about["properties"]["templateFile"]
        needed = (artifacts[name] for name in about.get("dependencies", ()))
        self._manifests = [one["properties"]["file"] for one in needed if one["type"] == "cdk:asset-manifest"]

    def files(self) -> Iterator[tuple[Path, str]]:
        """Yield the files that the template refers to, and their keys in the bucket."""
        for manifest in self._manifests:
            for file in json.loads((self._assembly / manifest).read_text())["files"].values():
                path = self._assembly / file["source"]["path"]
                [place] = file["destinations"].values()
                if file["source"]["packaging"] == "zip":
                    path = Path(shutil.make_archive(str(path), "zip", path))
                if path.name != self._own:
                    yield path, place["objectKey"]


def _stacks(assembly: Path) -> Iterator[_Stack]:
    artifacts: dict[str, Json] = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    for id_, about in artifacts.items():
        if about["type"] == "aws:cloudformation:stack":
            yield _Stack(assembly, id_, artifacts)
