"""A whole AWS on this machine, for tests and demonstrations: the real CDK CLI deploys to it, S3 notifies, Lambda runs.

    with LocalAws() as aws:
        outputs = aws.deploy("python app.py", "Catalogue")["Catalogue"]
        aws.client("s3").put_object(Bucket=outputs["BucketName"], Key="a.json.gz", Body=...)
        aws.wait_until(lambda: aws.metrics(outputs["ConsumerFunction"])["Committed"] == 1, "the object is processed")

It is [MiniStack](https://pypi.org/project/ministack/), started as a process of its own and looked after: a free port
on the loopback interface, dummy credentials, no state outside a directory of its own, and nothing left running when
the `with` block or the whole process ends, however it ends. MiniStack is a development dependency
(`pip install ministack`) and is looked for when a `LocalAws` is started, not when this module is imported.

Where it is not AWS: IAM, key and queue policies are not enforced; metrics in logs (EMF) do not become metrics, hence
`LocalAws.metrics`; CloudFormation leaves TTL and point-in-time recovery off, hence `LocalAws.deploy` switches both on
afterwards;
EventBridge's S3 events lack the version id; handlers run in this Python interpreter, with its installed packages
behind the layer's; a worker process is ended after any exception that its handler lets through.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["LocalAws", "LocalAwsError"]

ACCOUNT = "000000000000"
_START_ATTEMPTS = 5
_POLL_SECONDS = 0.05
# What a child process needs of the caller's environment; the rest (AWS_*, proxies, MiniStack's own many switches)
# would only make two machines behave differently.
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "PYTHONPATH", "LD_LIBRARY_PATH")


class LocalAwsError(RuntimeError):
    """The local AWS could not be started, or a deployment to it failed; the message says why and what to do."""


class LocalAws:
    """A local AWS, running inside a `with` block (or between `start` and `stop`)."""

    def __init__(
        self, *, region: str = "us-east-1", directory: Path | None = None, start_timeout: float = 60.0
    ) -> None:
        """Prepare one; nothing runs yet.

        Args:
            region: of every client and deployment; `us-east-1` when omitted.
            directory: where state, logs and synthesised templates go. When omitted it is a temporary directory, removed
                at the end; a directory that was given is kept, so that its logs can be read afterwards.
            start_timeout: seconds until a start that shows no life is given up and reported; 60 when omitted.

        """
        self.region = region
        """Of every client and deployment."""
        self.account = ACCOUNT
        """Of every client and deployment."""
        self.endpoint_url = ""
        """Where it answers; empty until it runs."""
        self._given_directory = directory
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._clients: dict[str, Any] = {}
        self._bootstrapped = False
        self._deployments = 0

    # -- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it answers.

        Raises:
            LocalAwsError: MiniStack is not installed or does not come up, or this one is running already.

        """
        if self._process is not None:
            raise LocalAwsError("this LocalAws is running already")
        if importlib.util.find_spec("ministack") is None:
            raise LocalAwsError("the local AWS needs MiniStack, which is not installed: pip install ministack")
        for _ in range(_START_ATTEMPTS):
            if self._start_once():
                return
        log = self.log_tail()
        self.stop()
        raise LocalAwsError(f"MiniStack did not start on any of {_START_ATTEMPTS} free ports; its log ends:\n{log}")

    def stop(self) -> None:
        """End it and everything it started, and remove the temporary directory. Does nothing when it is not running."""
        process, self._process = self._process, None
        self._clients.clear()
        self._bootstrapped = False
        if process is not None:
            _end(process)
        if self._directory is not None and self._given_directory is None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _start_once(self) -> bool:
        """One attempt on one free port; False when somebody else took the port between looking and binding."""
        directory = self._given_directory or Path(tempfile.mkdtemp(prefix="local-aws-"))
        for sub in ("tmp", "state", "home"):
            (directory / sub).mkdir(parents=True, exist_ok=True)
        if self._directory is not None and self._directory != directory:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = directory.resolve()
        port = _free_port()
        token = uuid.uuid4().hex
        keep = "keep" if self._given_directory else "remove"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", str(Path(__file__).with_name("_supervisor.py"))),
                    *(str(self._directory), keep, sys.executable, "-m", "ministack"),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._server_environment(port, token),
                start_new_session=True,
            )
        self.endpoint_url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + self._start_timeout
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                _end(self._process)
                self._process = None
                return False
            if self._answers(token):
                return True
            time.sleep(_POLL_SECONDS)
        log_tail = self.log_tail()
        self.stop()
        raise LocalAwsError(f"MiniStack gave no answer within {self._start_timeout:.0f} s; its log ends:\n{log_tail}")

    def _answers(self, token: str) -> bool:
        """Whether the server on our port is healthy, and the one that we started: it repeats our token."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.endpoint_url}/_ministack/health", timeout=2) as response:
                return bool(json.load(response).get("edition") == token)
        except (OSError, ValueError, urllib.error.URLError):
            return False

    def _server_environment(self, port: int, token: str) -> dict[str, str]:
        return _inherited() | {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "IOT_MTLS_ENABLED": "0",  # or it opens a second port, on every interface
            "LAMBDA_EXECUTOR": "local",
            "MINISTACK_EDITION": token,
            "MINISTACK_REGION": self.region,
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "STATE_DIR": str(self.directory / "state"),
            "S3_DATA_DIR": str(self.directory / "state" / "s3"),
            "TMPDIR": str(self.directory / "tmp"),
            "HOME": str(self.directory / "home"),
            "PYTHONUNBUFFERED": "1",
        }

    # -- reaching it -------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where state, logs and synthesised templates are. Without a start it raises `LocalAwsError`."""
        if self._directory is None:
            raise LocalAwsError("this LocalAws has not been started")
        return self._directory

    @property
    def log_path(self) -> Path:
        """The server's own log; a Lambda that fails while it is loaded says so only here."""
        return self.directory / "ministack.log"

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the server's own log.

        Args:
            lines: how many; 30 when omitted.

        """
        if self._directory is None or not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which the AWS CLI, the CDK CLI or any SDK talks to this AWS and to no other."""
        return _inherited() | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "HOME": os.environ.get("HOME", str(self.directory / "home")),
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": self.region,
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20,22,24",
            "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "20,22,24",
        }

    def client(self, service: str) -> Any:
        """The boto3 client of a service, made once. It retries, for a busy machine, and ignores proxies.

        Args:
            service: as boto3 calls it, such as `s3`.

        """
        if service not in self._clients:
            import boto3  # noqa: PLC0415 - a development dependency: only needed when one is used
            from botocore.config import Config  # noqa: PLC0415

            # The service is not known before run time, so neither is the client's type.
            session: Any = boto3.Session(
                aws_access_key_id="test",
                aws_secret_access_key="test",  # noqa: S106 - it asks for some, and checks none
                region_name=self.region,
            )
            self._clients[service] = session.client(
                service,
                endpoint_url=self.endpoint_url,
                config=Config(
                    s3={"addressing_style": "path"},
                    retries={"mode": "standard", "total_max_attempts": 5},
                    proxies={},
                    max_pool_connections=32,
                    read_timeout=900,  # a synchronous invocation lasts as long as its function
                ),
            )
        return self._clients[service]

    def wait_until[T](
        self, condition: Callable[[], T], what: str, *, timeout: float = 60.0, interval: float = 0.1
    ) -> T:
        """Poll until a condition returns something true, and return it.

        Args:
            condition: is called again and again.
            what: is waited for, for the error: "the object is processed".
            timeout: seconds until it is given up; 60 when omitted.
            interval: seconds between two calls; 0.1 when omitted.

        Raises:
            TimeoutError: The time is over; it names what was waited for.

        """
        deadline = time.monotonic() + timeout
        while True:
            if result := condition():
                return result
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout:.0f} s still waiting until {what}")
            time.sleep(interval)

    # -- deploying ---------------------------------------------------------------------------------------------------

    def deploy(
        self,
        app: str,
        *stacks: str,
        context: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> dict[str, dict[str, str]]:
        """Deploy with the plain CDK CLI and return each stack's outputs by stack name.

        Bootstraps the first time, while the app is synthesised. `python` in the app command is this interpreter.

        Args:
            app: the command that synthesises, as in `cdk --app`.
            stacks: which stacks; all of them when omitted.
            context: values for `cdk --context`; none when omitted.
            cwd: where the command runs, and where `cdk.json` and `node_modules` are looked for; the current directory
                when omitted.
            environment: variables for the app on top of the property `environment`; none when omitted.

        Raises:
            LocalAwsError: The CDK CLI is missing or fails; the message ends with what it said.

        """
        cwd = (cwd or Path.cwd()).resolve()
        cdk = _cdk_cli(cwd)
        self._deployments += 1
        assembly = self.directory / f"cdk.out.{self._deployments}"
        outputs = self.directory / f"outputs.{self._deployments}.json"
        env = self.environment | dict(environment or {})
        contexts = [part for key, value in (context or {}).items() for part in ("--context", f"{key}={value}")]
        with contextlib.ExitStack() as running:
            bootstrap = None
            if not self._bootstrapped:
                # Outside the app's directory, where it would synthesise the app to find its environments.
                bootstrap = running.enter_context(
                    _Command([cdk, "bootstrap", f"aws://{ACCOUNT}/{self.region}"], env, self.directory)
                )
            synth = [cdk, "synth", "--quiet", "--app", app, "--output", str(assembly), *contexts, *stacks]
            running.enter_context(_Command(synth, env, cwd)).finish(self)
            if bootstrap is not None:
                bootstrap.finish(self)
                self._bootstrapped = True
            selected = list(stacks) or ["--all"]
            deploy = [cdk, "deploy", "--app", str(assembly), "--require-approval", "never", "--outputs-file"]
            # The CLI looks every five seconds whether a stack is deployed, so several stacks at once take less time.
            at_once = ["--concurrency", "8"]
            running.enter_context(_Command([*deploy, str(outputs), *at_once, *selected], env, cwd)).finish(self)
        self._finish_tables(assembly)
        return json.loads(outputs.read_text()) if outputs.exists() else {}

    def destroy(self, app: str, *stacks: str, cwd: Path | None = None) -> None:
        """Destroy stacks with the CDK CLI, without asking.

        Args:
            app: as for `deploy`.
            stacks: as for `deploy`.
            cwd: as for `deploy`; the current directory when omitted.

        Raises:
            LocalAwsError: As for `deploy`.

        """
        cwd = (cwd or Path.cwd()).resolve()
        command = [_cdk_cli(cwd), "destroy", "--app", app, "--force", *(stacks or ["--all"])]
        with _Command(command, self.environment, cwd) as running:
            running.finish(self)

    def _finish_tables(self, assembly: Path) -> None:
        """Do what MiniStack's CloudFormation leaves out: TTL and point-in-time recovery as the templates ask for."""
        dynamodb = self.client("dynamodb")
        artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
        for artifact_id, artifact in artifacts.items():
            if artifact["type"] != "aws:cloudformation:stack":
                continue
            stack = artifact["properties"].get("stackName", artifact_id)
            template = json.loads((assembly / artifact["properties"]["templateFile"]).read_text())
            for logical_id, resource in template.get("Resources", {}).items():
                asked = resource.get("Properties", {})
                ttl, recovery = (asked.get(f"{name}Specification") for name in ("TimeToLive", "PointInTimeRecovery"))
                if not resource["Type"].startswith("AWS::DynamoDB::") or not (ttl or recovery):
                    continue
                table = self.physical_id(stack, logical_id)
                if table is None:
                    continue  # synthesised, but not among the stacks that were deployed
                status = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]["TimeToLiveStatus"]
                if ttl and status == "DISABLED":
                    dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=ttl)
                if recovery:
                    dynamodb.update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=recovery)

    def physical_id(self, stack: str, logical_id: str) -> str | None:
        """The physical id of a resource, or None where the stack or the resource is not deployed.

        Args:
            stack: its name.
            logical_id: the resource's, as in the template.

        """
        cloudformation = self.client("cloudformation")
        try:
            answer = cloudformation.describe_stack_resources(StackName=stack, LogicalResourceId=logical_id)
        except cloudformation.exceptions.ClientError:
            return None
        return next((str(found["PhysicalResourceId"]) for found in answer["StackResources"]), None)

    # -- what a function said ----------------------------------------------------------------------------------------

    def logs(self, function: str) -> list[str]:
        """Everything that a function wrote to its log group so far, line by line, oldest first.

        Args:
            function: its name.

        """
        configuration = self.client("lambda").get_function_configuration(FunctionName=function)
        group = configuration.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{function}"
        # Stream by stream: MiniStack's FilterLogEvents stops after 10,000 events and gives no token to go on with.
        events: list[tuple[int, str]] = []
        for stream in self._log_streams(group):
            events.extend(self._log_events(group, stream))
        events.sort(key=lambda event: event[0])
        return [line for _, message in events for line in message.splitlines()]

    def _log_streams(self, group: str) -> list[str]:
        logs = self.client("logs")
        try:
            pages = list(logs.get_paginator("describe_log_streams").paginate(logGroupName=group))
        except logs.exceptions.ResourceNotFoundException:
            return []  # the function has not run yet
        return [stream["logStreamName"] for page in pages for stream in page["logStreams"]]

    def _log_events(self, group: str, stream: str) -> Iterator[tuple[int, str]]:
        arguments = {"logGroupName": group, "logStreamName": stream}
        while True:
            page = self.client("logs").get_log_events(startFromHead=True, **arguments)
            yield from ((event["timestamp"], event["message"]) for event in page["events"])
            if page["nextForwardToken"] == arguments.get("nextToken") or not page["events"]:
                return
            arguments["nextToken"] = page["nextForwardToken"]

    def records(self, function: str) -> list[dict[str, Any]]:
        """The structured lines among a function's logs: those that are JSON objects, metrics (EMF) not among them.

        Args:
            function: its name.

        """
        return [record for record in _json_objects(self.logs(function)) if "_aws" not in record]

    def metrics(self, function: str) -> Counter[str]:
        """The sums of all metrics that a function wrote to its log in embedded metric format, by metric name.

        Args:
            function: its name.

        """
        sums: Counter[str] = Counter()
        for record in _json_objects(self.logs(function)):
            for directive in record.get("_aws", {}).get("CloudWatchMetrics", ()):
                for metric in directive.get("Metrics", ()):
                    value = record.get(metric["Name"], 0)
                    sums[metric["Name"]] += sum(value) if isinstance(value, list) else value
        return sums


class _Command:
    """A command with its own process group, whose output is kept for the error message."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self._command = command
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _kill_group(self._process)
        self._output.close()

    def finish(self, aws: LocalAws) -> None:
        if self._process.wait() != 0:
            self._output.seek(0)
            said = self._output.read().decode(errors="replace").strip().splitlines()[-60:]
            shown = " ".join(Path(part).name if part.startswith("/") else part for part in self._command)
            raise LocalAwsError(
                f"`{shown}` failed with exit code {self._process.returncode}:\n"
                + "\n".join(said)
                + f"\n--- the local AWS said last:\n{aws.log_tail(15)}"
            )


def _inherited() -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Close the pipe, upon which the supervisor ends its whole group; it does the same when we die without a word."""
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(timeout=10)
    _kill_group(supervisor)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process's own group; it was started as a session leader, so nobody else is in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)


def _cdk_cli(cwd: Path) -> str:
    for folder in (cwd, *cwd.parents):
        candidate = folder / "node_modules" / ".bin" / "cdk"
        if candidate.exists():
            return str(candidate)
    if found := shutil.which("cdk"):
        return found
    raise LocalAwsError("the CDK CLI is missing: npm install aws-cdk@2.1148.1")


def _json_objects(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record
