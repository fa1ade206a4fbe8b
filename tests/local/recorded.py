"""The processor that most local tests deploy, and the table of its effects."""

import shutil
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from cdk_intake_ledger import Processor

ROOT = Path(__file__).resolve().parents[2]


def effects_table(scope: Construct) -> dynamodb.Table:
    return dynamodb.Table(
        scope,
        "Effects",
        partition_key=dynamodb.Attribute(name="place", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )


def recording(code: Path, effects: dynamodb.Table, **environment: str) -> Processor:
    return Processor.from_asset(
        code, entrypoint="recording:process", environment={"EFFECTS_TABLE": effects.table_name, **environment}
    )


def put_code(code: Path) -> None:
    """Put the processor's code into this folder."""
    shutil.copytree(ROOT / "examples" / "catalogue", code / "examples" / "catalogue", dirs_exist_ok=True)
    for name in ("recording.py", "probing.py", "working.py"):
        shutil.copy(ROOT / "tests" / "local" / "processors" / name, code)
