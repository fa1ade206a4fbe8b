"""A state machine as the processor, deployed: 20 objects under faults."""

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer

from cdk_intake_ledger.testing import LocalAws
from tests.local.conftest import Outputs
from tests.local.long_work.long_stack import STACK
from tests.local.support import TIMEOUT, Catalogue

read = TypeDeserializer().deserialize
PLAIN = [f"in/plain-{n}.txt" for n in range(6)]
COPIED = [f"in/copied-{n}.txt" for n in range(4)]
OVERWRITTEN = [f"in/overwritten-{n}.txt" for n in range(4)]
BROKEN = [f"in/broken-{n}.txt" for n in range(2)]
DYING = [f"in/dies-{n}.txt" for n in range(2)]
POISON = [f"in/poison-{n}.txt" for n in range(2)]
KEYS = [*PLAIN, *COPIED, *OVERWRITTEN, *BROKEN, *DYING, *POISON]


@dataclass
class Run:
    """Everything that the run left: executions by key, rows, and results."""

    started: list[dict[str, Any]]
    """The input of each execution, with its `name` and `status`."""
    rows: dict[str, dict[str, Any]]
    results: dict[str, dict[str, Any]]
    versions: dict[str, list[str]]
    """The versions of each key, oldest first."""


@pytest.fixture(scope="module")
def texts(aws: LocalAws, outputs: Outputs) -> Catalogue:
    found = outputs[STACK]
    return Catalogue.of(aws, found, effects_table=found["ResultsTable"])


@pytest.fixture(scope="module")
def run(aws: LocalAws, outputs: Outputs, texts: Catalogue) -> Run:
    found, states = outputs[STACK], aws.client("stepfunctions")

    def executions() -> list[dict[str, Any]]:
        pages = states.get_paginator("list_executions").paginate(stateMachineArn=found["MachineArn"])
        described = (
            states.describe_execution(executionArn=one["executionArn"]) for page in pages for one in page["executions"]
        )
        return [json.loads(one["input"]) | {"name": one["name"], "status": one["status"]} for one in described]

    versions: dict[str, list[str]] = {}
    for key in KEYS:
        text = " " if key in POISON else "broken at first" if key in BROKEN else f"the text of {key}"
        versions[key] = [texts.put(key, text.encode())]
    # Their first executions run. A newer version waits for their end.
    aws.wait_until(
        lambda: {one["key"] for one in executions()} >= set(OVERWRITTEN), "they are in work", timeout=TIMEOUT
    )
    for key in OVERWRITTEN:
        versions[key].append(texts.put(key, b"a newer text"))
    texts.send(*(texts.event(key, versions[key][0]) for key in COPIED for _ in range(3)))
    # From now on no event of Step Functions arrives. The waiting messages ask.
    aws.client("events").disable_rule(Name=found["RuleName"])

    def rows() -> dict[str, dict[str, Any]]:
        return {key: texts.ledger_row(key) for key in KEYS}

    def settled() -> bool:
        return all(
            row.get("status") == ("REJECTED" if key in POISON else "PROCESSED")
            and row["version_id"] == versions[key][-1]
            for key, row in rows().items()
        )

    aws.wait_until(settled, "all rows are settled", timeout=TIMEOUT)
    items = aws.client("dynamodb").scan(TableName=found["ResultsTable"])["Items"]
    plain = [{name: read(value) for name, value in item.items()} for item in items]
    return Run(executions(), rows(), {item["key"]: item for item in plain}, versions)


def test_each_state_has_exactly_the_executions_of_its_attempts(run: Run) -> None:
    """A copy of an event starts none, and a failure one more. After a death, the same execution is started."""
    expected: Counter[tuple[str, str, int]] = Counter()
    for key, version in ((key, version) for key, versions in run.versions.items() for version in versions):
        for attempt in range(1, 3 if key in BROKEN else 2):
            expected[key, version, attempt] += 1
    assert Counter((one["key"], one["versionId"], one["attempt"]) for one in run.started) == expected
    assert len({one["name"] for one in run.started}) == len(run.started)


def test_each_result_is_that_of_the_newest_version(run: Run) -> None:
    newest = {key: versions[-1] for key, versions in run.versions.items() if key not in POISON}
    assert {key: item["version"] for key, item in run.results.items()} == newest
    fences = {key: item["fence"] for key, item in run.results.items()}
    assert fences == {key: run.rows[key]["fence"] for key in newest}


def test_the_commit_is_the_output_of_the_execution(run: Run) -> None:
    for key in (*PLAIN, *COPIED, *DYING):
        assert run.rows[key]["commit_id"] == f"{run.results[key]['words']} words"


def test_a_poisonous_object_is_rejected_with_its_reason(run: Run, texts: Catalogue) -> None:
    for key in POISON:
        assert run.rows[key]["reason"] == "the text is empty"
        assert texts.rejected(key)["MessageAttributes"]["reason"]["StringValue"] == "the text is empty"


def test_executions_of_one_object_follow_each_other(run: Run) -> None:
    """Each one has a higher fence than the one before, in the order of the versions."""
    for key in (*OVERWRITTEN, *BROKEN):
        own = sorted((one for one in run.started if one["key"] == key), key=lambda one: one["fence"])
        assert [one["versionId"] for one in own] == sorted(
            (one["versionId"] for one in own), key=run.versions[key].index
        )
        assert all(int(one["fenceText"]) == one["fence"] for one in own)
        assert all(a["fence"] < b["fence"] for a, b in itertools.pairwise(own))


def test_the_audit_finds_nothing_afterwards(run: Run, texts: Catalogue) -> None:
    report = texts.audit(dry_run=True)
    assert sum(report["counts"].values()) == 0, report
    assert len(run.rows) == len(KEYS)
