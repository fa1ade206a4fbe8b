"""Implementations of S3 and SQS that are independent of each other, each for all tests of a session."""

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import boto3
from botocore.config import Config
from moto import mock_aws

from cdk_intake_ledger.testing import LocalAws
from intake_ledger_testing import local_server
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import QUEUE_URL, MemorySQS
from tests.local.faults.proxy import Proxy
from tests.protocol.equivalence import TABLE
from tests.truth.facts import Fact, MemoryVersions, Messages, Reads, Uploads

PYTHON = Path(__file__).parents[2] / "build" / "localstack" / "bin" / "python"
_NAMES = count(1)
_START_SECONDS = 120


class Implementation(Protocol):
    """Makes a place for a scenario."""

    def uploads(self, fact: Fact) -> Uploads:
        """A key of a new bucket."""

    def reads(self, fact: Fact) -> Reads:
        """A key of a new bucket."""

    def messages(self) -> Messages:
        """An empty queue."""


class InMemory:
    """The stores of the testing kit."""

    def uploads(self, fact: Fact) -> Uploads:
        """A key of a new bucket. The buckets have no versions, and a removed object is as a delete marker."""
        return Uploads(MemoryOutputs(), fact, memory=True)

    def reads(self, fact: Fact) -> Reads:
        """A key of a new bucket."""
        store = MemoryS3(clock=lambda: 0, versioned=fact.get("versioned", False))
        return Reads(MemoryVersions(store), fact)

    def messages(self) -> Messages:
        """An empty queue."""
        return Messages(MemorySQS(clock=lambda: 0, visibility_seconds=0), QUEUE_URL)


class Server:
    """A server, or moto in this process."""

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = endpoint
        self.s3, self.sqs = self.client("s3"), self.client("sqs")

    def client(self, service: str) -> Any:
        """A client of another service."""
        session: Any = boto3.Session("test", "test", region_name="us-east-1")
        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2}, proxies={})
        return session.client(service, endpoint_url=self._endpoint, config=config)

    def uploads(self, fact: Fact) -> Uploads:
        """A key of a new bucket."""
        return Uploads(self.s3, fact)

    def reads(self, fact: Fact) -> Reads:
        """A key of a new bucket."""
        return Reads(self.s3, fact)

    def messages(self) -> Messages:
        """An empty queue."""
        return Messages(self.sqs, self.queue())

    def queue(self, **attributes: str) -> str:
        """Make a queue, and return its URL."""
        return str(self.sqs.create_queue(QueueName=f"recorded-{next(_NAMES)}", Attributes=attributes)["QueueUrl"])


def with_table(server: Server) -> Server:
    """Make the ledger's table."""
    server.client("dynamodb").create_table(TableName="ledger", **TABLE)
    return server


@contextmanager
def moto() -> Iterator[Server]:
    """The moto of the unit tests."""
    with mock_aws():
        yield with_table(Server())


@contextmanager
def ministack() -> Iterator[Server]:
    """The local AWS."""
    with LocalAws(start_timeout=240) as aws:
        yield with_table(Server(aws.endpoint_url))


@contextmanager
def corrected() -> Iterator[Server]:
    """The local AWS behind the proxy of the fault runs, without faults."""
    with LocalAws(start_timeout=240) as aws, Proxy(lambda: aws.endpoint_url).server() as proxy:
        yield with_table(Server(proxy.url))


@contextmanager
def localstack(folder: Path) -> Iterator[Server]:
    """LocalStack's core in host mode, which needs no container. Its log is in the folder."""
    assert PYTHON.exists(), "no LocalStack: run `make truth`"
    port = local_server.free_port()
    environment = {
        "DISABLE_EVENTS": "1",
        "DNS_ADDRESS": "0",
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "HOME": str(folder),
        "LOCALSTACK_VOLUME_DIR": str(folder / "volume"),
        "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
        "SERVICES": "events,s3,sqs,stepfunctions",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "SKIP_INFRA_DOWNLOADS": "1",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "localstack.runtime.main"], env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        waiter = LocalAws()  # for its loop; it is never started
        waiter.wait_until(lambda: _answers(process, endpoint), "LocalStack answers", timeout=_START_SECONDS)
        yield Server(endpoint)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(process: "subprocess.Popen[bytes]", endpoint: str) -> bool:
    assert process.poll() is None, "LocalStack has ended: see its log"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError), opener.open(f"{endpoint}/_localstack/health", timeout=2) as answer:
        return bool(answer.status == 200)
    return False
