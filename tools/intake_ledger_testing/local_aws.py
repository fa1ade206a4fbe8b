"""A local AWS for tests and demonstrations. The CDK CLI deploys to it, S3 sends events, and Lambda functions run.

    with LocalAws() as aws:
        outputs = aws.deploy("python app.py", "Catalogue")["Catalogue"]
        aws.client("s3").put_object(Bucket=outputs["BucketName"], Key="a.json.gz", Body=...)
        aws.wait_until(lambda: aws.metrics(outputs["ConsumerFunction"])["Committed"] == 1, "the object is processed")

It runs [MiniStack](https://pypi.org/project/ministack/) in a separate process, on a free port of the loopback
interface, with dummy credentials. All state is in one folder. The server and the functions end with the `with` block or
with this process, also if it is killed. MiniStack is a development dependency (`pip install ministack`), which is only
needed when a `LocalAws` starts.

`docs/api.md` lists what it lacks.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, override

from intake_ledger_testing.aws_environment import AwsEnvironment
from intake_ledger_testing.cdk_cli import ALL_STACKS, Command, find_cdk
from intake_ledger_testing.local_server import ACCOUNT, LocalAwsError, LocalServer, create_client, inherited_environment
from intake_ledger_testing.pytest_plugin import TESTED_NODE_RELEASES, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LocalAws", "LocalAwsError"]


class LocalAws(AwsEnvironment):
    """A local AWS. It runs inside a `with` block, or between `start` and `stop`."""

    def __init__(
        self, *, region: str = "us-east-1", directory: Path | None = None, start_timeout: float = 60.0
    ) -> None:
        """Create a local AWS without starting it.

        Args:
            region: of all clients and deployments; `us-east-1` when omitted.
            directory: the folder for state, logs and templates. When omitted it is a temporary folder, which `stop`
                removes. A given folder is kept, so that its logs can be read later.
            start_timeout: seconds after which a start fails; 60 when omitted.

        """
        self.region = region
        """The region of all clients and deployments."""
        self.account = ACCOUNT
        """The account of all clients and deployments."""
        self._server = LocalServer(region=region, directory=directory, start_timeout=start_timeout)
        self._clients: dict[str, Any] = {}
        self._bootstrapped = False
        self._deployments = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            LocalAwsError: MiniStack is not installed or does not start, or this local AWS is already running.

        """
        self._server.start()

    def stop(self) -> None:
        """Stop the server and the functions, and remove the temporary folder. Without a start it does nothing."""
        self._clients.clear()
        self._bootstrapped = False
        self._server.stop()

    @property
    @override
    def is_local(self) -> bool:
        """True: the endpoint is not AWS."""
        return True

    @property
    def endpoint_url(self) -> str:
        """The address of the server, or an empty text before the start."""
        return self._server.endpoint_url

    @property
    def directory(self) -> Path:
        """The folder of state, logs and templates. Without a start it raises `LocalAwsError`."""
        return self._server.directory

    @property
    def log_path(self) -> Path:
        """The server's log file."""
        return self._server.log_path

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the server's log.

        Args:
            lines: their number; 30 when omitted.

        """
        return self._server.log_tail(lines)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which the AWS CLI, the CDK CLI and SDKs use only this local AWS."""
        return inherited_environment() | {
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
            **dict.fromkeys(VARIABLES, TESTED_NODE_RELEASES),
        }

    @override
    def client(self, service: str) -> Any:
        """Return the boto3 client of a service, which is created once. It retries, and ignores proxies.

        Args:
            service: its name in boto3, such as `sqs`.

        """
        if service not in self._clients:
            self._clients[service] = create_client(service, self.endpoint_url, self.region)
        return self._clients[service]

    @override
    def deploy(
        self,
        app: str,
        *stacks: str,
        context: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> dict[str, dict[str, str]]:
        """Deploy with the CDK CLI, and return the outputs by stack name.

        The first call also bootstraps, in parallel with the synthesis. `python` in the app command is this interpreter.

        Args:
            app: the command that synthesizes, as in `cdk --app`.
            stacks: the stacks to deploy; all when omitted.
            context: values for `cdk --context`; none when omitted.
            cwd: the working directory, in which `cdk.json` and `node_modules` are searched; the current directory when
                omitted.
            environment: variables for the app in addition to the property `environment`; none when omitted.

        Raises:
            LocalAwsError: The CDK CLI is not installed or fails. The message ends with its output.

        """
        cwd = (cwd or Path.cwd()).resolve()
        cdk = find_cdk(cwd)
        self._deployments += 1
        assembly = self.directory / f"cdk.out.{self._deployments}"
        outputs = self.directory / f"outputs.{self._deployments}.json"
        env = self.environment | dict(environment or {})
        contexts = [part for key, value in (context or {}).items() for part in ("--context", f"{key}={value}")]
        with contextlib.ExitStack() as running:
            bootstrap = None
            if not self._bootstrapped:
                # Not in the app's directory, where the CLI would synthesize the app to find its environments.
                bootstrap = running.enter_context(
                    Command([cdk, "bootstrap", f"aws://{ACCOUNT}/{self.region}"], env, self.directory)
                )
            synth = [cdk, "synth", "--quiet", "--app", app, "--output", str(assembly), *contexts, *stacks]
            running.enter_context(Command(synth, env, cwd)).finish(self.log_tail(15))
            if bootstrap is not None:
                bootstrap.finish(self.log_tail(15))
                self._bootstrapped = True
            selected = list(stacks) or [ALL_STACKS]
            deploy = [cdk, "deploy", "--app", str(assembly), "--require-approval", "never", "--outputs-file"]
            # The CLI polls a stack every five seconds, so parallel deployments take less time.
            at_once = ["--concurrency", "8"]
            running.enter_context(Command([*deploy, str(outputs), *at_once, *selected], env, cwd)).finish(
                self.log_tail(15)
            )
        return json.loads(outputs.read_text()) if outputs.exists() else {}

    def destroy(self, app: str, *stacks: str, cwd: Path | None = None) -> None:
        """Destroy stacks with the CDK CLI, without confirmation.

        Args:
            app: as for `deploy`.
            stacks: as for `deploy`.
            cwd: as for `deploy`; the current folder when omitted.

        Raises:
            LocalAwsError: As for `deploy`.

        """
        cwd = (cwd or Path.cwd()).resolve()
        command = [find_cdk(cwd), "destroy", "--app", app, "--force", *(stacks or [ALL_STACKS])]
        with Command(command, self.environment, cwd) as running:
            running.finish(self.log_tail(15))
