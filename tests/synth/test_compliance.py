"""The packs of cdk-nag for regulated data: the findings of a plain pipeline, and a hardened pipeline without any."""

import re
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_backup as backup
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import AuditOptions, AuditScale, IntakePipeline
from tests.synth.build import PROCESSORS, new_app, processor
from tests.synth.conftest import Matrix
from tests.synth.test_nag import ALL, OURS, PAGE, REGULATED, Finding, findings, options

HARDENED = re.compile("Hardened/(Uploads/Resource|(Invoices|Loads|Workers|Orders|InParts)/.+)")
"""Paths of the library's resources, and of the bucket, in the stack of the page."""


@pytest.fixture(scope="module")
def hardened() -> App:
    """The snippets of the page."""
    app = new_app()
    stack = Stack(app, "Hardened")
    vpc = ec2.Vpc(stack, "Vpc", nat_gateways=1)
    replica = s3.Bucket.from_bucket_attributes(
        stack,
        "Replica",
        bucket_name="uploads-replica",
        encryption_key=kms.Key.from_key_arn(stack, "There", "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"),
    )
    names: dict[str, Any] = {
        "self": stack,
        "vpc": vpc,
        "access_logs": s3.Bucket.from_bucket_name(stack, "AccessLogs", "access-logs"),
        "replica": replica,
        "cluster": ecs.Cluster(stack, "Cluster", vpc=vpc),
        "image": ecs.ContainerImage.from_registry("example/orders"),
    }
    section = PAGE.read_text().partition("\n## Compliance\n")[2]
    _, *snippets = re.findall("^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    exec("\n".join(snippets).replace('"processors/orders"', repr(str(PROCESSORS / "orders"))), names)
    in_parts(stack, names)
    app.synth()
    return app


def in_parts(stack: Stack, names: dict[str, Any]) -> None:
    """A pipeline with the options of the page whose audit runs in parts."""
    made = IntakePipeline(
        stack,
        "InParts",
        bucket=s3.Bucket(stack, "Theirs", versioned=True),
        encryption_key=names["key"],
        network=names["network"],
        monitoring=names["monitoring"],
        concurrency=names["concurrency"],
        audit=AuditOptions(scale=AuditScale.shards()),
        processor=processor(),
    )
    names["plan"].add_selection("InParts", resources=[backup.BackupResource.from_dynamo_db_table(made.table)])


@pytest.mark.thorough
def test_the_hardened_pipeline_has_no_finding(hardened: App) -> None:
    """The list names what an option no longer satisfies."""
    assert [one for one in findings(hardened, ALL) if HARDENED.fullmatch(one[1])] == []


@pytest.mark.thorough
def test_the_packs_see_the_hardened_pipeline(hardened: App) -> None:
    """They still find the resources of the team."""
    assert any(path.startswith("Hardened/Vpc/") for _, path in findings(hardened, ALL))


def found(matrix: Matrix, beginning: str = "") -> dict[str, set[Finding]]:
    """Findings in the library's resources by the page's name of the pack."""
    return {
        name: {one for one in findings(matrix.app, (pack,)) if OURS.fullmatch(one[1]) and one[1].startswith(beginning)}
        for name, pack in REGULATED.items()
    }


@pytest.mark.thorough
@pytest.mark.failure_mode("F221")
def test_without_options_the_findings_are_those_of_the_table(matrix: Matrix) -> None:
    """The plain pipeline has each of them. No other row of the matrix has any other."""
    table = {(rule, pack) for rule, packs in options().items() for pack in packs}
    for beginning in ("Default/", ""):
        rules = {(rule.rpartition("-")[2], pack) for pack, ones in found(matrix, beginning).items() for rule, _ in ones}
        assert rules == table
    assert len(options()) == 7
