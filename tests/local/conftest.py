"""One local AWS and one deployment for all tests that need AWS."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.support import Catalogue, Pipeline

ROOT = Path(__file__).resolve().parents[2]
Outputs = dict[str, dict[str, str]]


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as local:
        yield local


@pytest.fixture(scope="session")
def outputs(aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    code = tmp_path_factory.mktemp("processors")
    return aws.deploy(f"{sys.executable} -m tests.local.stacks", context={"code": str(code)}, cwd=ROOT)


@pytest.fixture(scope="session")
def pipeline(aws: LocalAws, outputs: Outputs) -> Callable[[str, str], Pipeline]:
    """The pipeline of a stack by its id."""

    def named(stack: str, id: str) -> Pipeline:
        found = outputs[stack]
        return Pipeline(aws, found[f"{id}Bucket"], found[f"{id}Function"], found["EffectsTable"])

    return named


@pytest.fixture(scope="session")
def catalogue(aws: LocalAws, outputs: Outputs, dying_worker: object) -> Catalogue:
    """The example. The worker that dies is started first: its message takes more than a minute to come back."""
    found = outputs["Local"]
    return Catalogue(
        aws,
        found["BucketName"],
        found["ConsumerFunction"],
        found["EffectsTable"],
        queue=found["QueueUrl"],
        dead_letters=found["DeadLetterQueueUrl"],
        ledger=found["LedgerTable"],
        audit_function=found["AuditFunction"],
        table=found["CatalogueTable"],
    )


@pytest.fixture(scope="session")
def dying_worker(pipeline: Callable[[str, str], Pipeline]) -> tuple[Pipeline, str, str]:
    """An upload whose worker is killed; made early, since its message stays hidden for more than a minute."""
    second = pipeline("Local", "Second")
    key = "worker-dies-once.bin"
    return second, key, second.put(key, b"survives")
