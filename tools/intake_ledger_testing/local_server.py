"""Starts and stops the MiniStack server of a local AWS."""

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
from pathlib import Path
from typing import Any

ACCOUNT = "000000000000"
_START_ATTEMPTS = 5
_POLL_SECONDS = 0.05
# The variables that child processes inherit. Others (AWS_*, proxies, MiniStack's options) would make machines differ.
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "PYTHONPATH", "LD_LIBRARY_PATH")


class LocalAwsError(RuntimeError):
    """The local AWS did not start, or a deployment to it failed. The message has the reason and the fix."""


class LocalServer:
    """A MiniStack server in its own process."""

    def __init__(self, *, region: str, directory: Path | None, start_timeout: float) -> None:
        self.region = region
        self.endpoint_url = ""
        self._given_directory = directory
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            LocalAwsError: MiniStack is not installed or does not start, or this server is already running.

        """
        if self._process is not None:
            raise LocalAwsError("this LocalAws is already running")
        if importlib.util.find_spec("ministack") is None:
            raise LocalAwsError("the local AWS needs MiniStack, which is not installed: pip install ministack")
        for _ in range(_START_ATTEMPTS):
            if self._start_once():
                return
        log = self.log_tail()
        self.stop()
        raise LocalAwsError(f"MiniStack did not start on any of {_START_ATTEMPTS} free ports; its log ends:\n{log}")

    def stop(self) -> None:
        """Stop the server and the processes that it started, and remove the temporary directory."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)
        if self._directory is not None and self._given_directory is None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @property
    def directory(self) -> Path:
        """The folder of state, logs and templates. Without a start it raises `LocalAwsError`."""
        if self._directory is None:
            raise LocalAwsError("this LocalAws has not been started")
        return self._directory

    @property
    def log_path(self) -> Path:
        """The server's log file."""
        return self.directory / "ministack.log"

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the server's log."""
        if self._directory is None or not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _start_once(self) -> bool:
        """Try one free port. Return False if another process took the port in the meantime."""
        directory = self._given_directory or Path(tempfile.mkdtemp(prefix="local-aws-"))
        for sub in ("tmp", "state", "home"):
            (directory / sub).mkdir(parents=True, exist_ok=True)
        if self._directory is not None and self._directory != directory:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = directory.resolve()
        port = free_port()
        token = uuid.uuid4().hex
        keep = "keep" if self._given_directory else "remove"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", str(Path(__file__).with_name("_supervisor.py"))),
                    # Without this folder on its path, whose modules have names of others.
                    *(str(self._directory), keep, sys.executable, "-P", str(Path(__file__).with_name("_ministack.py"))),
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
        """True if the server on this port is ready and returns the token of this start."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.endpoint_url}/_ministack/health", timeout=2) as response:
                return bool(json.load(response).get("edition") == token)
        except (OSError, ValueError, urllib.error.URLError):
            return False

    def _server_environment(self, port: int, token: str) -> dict[str, str]:
        return inherited_environment() | {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "IOT_MTLS_ENABLED": "0",  # else it opens a second port on all interfaces
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


def create_client(service: str, endpoint_url: str, region: str) -> Any:
    """Create a boto3 client that retries and ignores proxies."""
    import boto3  # noqa: PLC0415 - a development dependency
    from botocore.config import Config  # noqa: PLC0415

    # The client's type is only known at run time.
    session: Any = boto3.Session(
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - MiniStack checks no credentials
        region_name=region,
    )
    return session.client(
        service,
        endpoint_url=endpoint_url,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"mode": "standard", "total_max_attempts": 5},
            proxies={},
            max_pool_connections=32,
            read_timeout=900,  # a synchronous invocation lasts as long as its function
        ),
    )


def inherited_environment() -> dict[str, str]:
    """Return the variables that child processes inherit."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a process that was started as a session leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Close the pipe, so that the supervisor ends its process group. It does the same if this process is killed."""
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(timeout=10)
    kill_group(supervisor)
