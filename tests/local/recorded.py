"""The processor that most local tests deploy, and the table of its effects."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from cdk_intake_ledger import IntakePipeline, Processor

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


def recording(code: Path, effects: dynamodb.Table, *, module: str = "recording", **environment: str) -> Processor:
    return Processor.from_asset(
        code, entrypoint=f"{module}:process", environment={"EFFECTS_TABLE": effects.table_name, **environment}
    )


def put_code(code: Path) -> None:
    """Put the processor's code into this folder."""
    folder = Path("examples", "catalogue", "processor")
    shutil.copytree(ROOT / folder, code / folder, dirs_exist_ok=True)
    for name in ("recording.py", "probing.py", "working.py"):
        shutil.copy(ROOT / "tests" / "local" / "processors" / name, code)


def pipeline_with_effects(
    stack: cdk.Stack, code: Path, module: str, *, environment: Mapping[str, str] | None = None, **options: Any
) -> IntakePipeline:
    """A pipeline whose processor writes its effects into a table, and the outputs with both names.

    Args:
        stack: the stack.
        code: a folder for the processor's code.
        module: of the processor, in tests/local/processors.
        environment: further variables of the processor; none when omitted.
        options: of the pipeline.

    """
    shutil.copy(ROOT / "tests" / "local" / "processors" / f"{module}.py", code)
    effects = effects_table(stack)
    made = IntakePipeline(
        stack,
        "Pipeline",
        processor=recording(code, effects, module=module, **environment or {}),
        removal_policy=cdk.RemovalPolicy.DESTROY,
        **options,
    )
    effects.grant_write_data(made)
    cdk.CfnOutput(stack, "Bucket", value=made.bucket.bucket_name)
    cdk.CfnOutput(stack, "EffectsTable", value=effects.table_name)
    return made
