"""The audit in parts, as it is deployed."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import AuditOptions, AuditScale, IntakeConfigurationError, IntakePipeline
from intake_ledger.audit.in_parts import Step
from tests.synth.build import (
    Json,
    actions,
    new_stack,
    only,
    processor,
    resources,
    statements,
    template_of,
)
from tests.synth.test_security import spelt


def pipeline(scale: AuditScale, **options: Any) -> Json:
    stack = new_stack()
    made = IntakePipeline(stack, "Orders", processor=processor(), audit=AuditOptions(scale=scale), **options)
    assert (made.audit_state_machine is not None) is scale.in_parts
    return template_of(stack)


def definition(template: Json) -> Json:
    """The state machine's, with the names of what it refers to."""
    content = only(template, "AWS::StepFunctions::StateMachine")["DefinitionString"]
    found: Json = json.loads(spelt(content))
    return found


@pytest.fixture(scope="module")
def sharded() -> Json:
    return pipeline(AuditScale.shards(100, concurrency=8))


def test_one_function_is_the_default_and_has_no_state_machine() -> None:
    """What most pipelines need."""
    template = pipeline(AuditScale.one())
    assert not resources(template, "AWS::StepFunctions::StateMachine")
    given = {action for one in statements(template, "OrdersAuditRole") for action in actions(one)}
    assert "dynamodb:BatchWriteItem" not in given


def test_rows_are_read_before_shards_are_listed_and_looked_through_after_them(sharded: Json) -> None:
    """Each part is called until it is done, at most so many at the same time, and one that fails stops no other."""
    states = definition(sharded)["States"]
    maps = ("Rows", "Known", "Shards", "Shown", "Gone")
    assert states["Anything to do?"]["Default"] == maps[0]
    assert [states[name]["Next"] for name in maps] == [*maps[1:], "Sum up"]
    assert [states[name]["ItemSelector"]["step"] for name in maps] == list(Step)
    for name in maps:
        state = states[name]
        assert state["ItemProcessor"]["ProcessorConfig"] == {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
        assert state["ItemsPath"] == ("$.parts" if name == "Shards" else "$.segments")
        assert (state["MaxConcurrency"], state["ToleratedFailurePercentage"]) == (8, 100)
        assert state["Catch"][0]["Next"] == "Sum up"
        inner = state["ItemProcessor"]["States"]
        assert inner[f"{name}: done?"]["Default"] == f"{name}: work"
        assert inner[f"{name}: work"]["Retry"][0]["ErrorEquals"] == ["States.ALL"]
        # Thousands of results would not fit into one state.
        assert inner[f"{name}: done"]["OutputPath"] is None
        assert state["ResultPath"] is None


def test_the_planner_is_told_of_the_execution_and_of_the_lease(sharded: Json) -> None:
    """The lease outlasts whatever the machine may take, so that nothing overlaps an execution that still runs."""
    machine = definition(sharded)
    told = machine["States"]["Plan"]["Parameters"]
    assert told == {
        "step": "plan", "run.$": "$$.Execution.Name", "input.$": "$", "leaseSeconds": machine["TimeoutSeconds"],
        "parts": 100, "segments": 8,
    }  # fmt: skip


def test_the_scheduler_starts_the_machine_and_nothing_else(sharded: Json) -> None:
    """With the interval, as it calls the function."""
    (machine,) = resources(sharded, "AWS::StepFunctions::StateMachine")
    target = only(sharded, "AWS::Scheduler::Schedule")["Target"]
    assert spelt(target["Arn"]) == f"<{machine}>"
    assert json.loads(target["Input"]) == {"everySeconds": 86_400}
    (statement,) = statements(sharded, "OrdersAuditScheduleRole")
    assert (actions(statement), spelt(statement["Resource"])) == (["states:StartExecution"], f"<{machine}>")


def test_the_machine_may_call_the_audit_and_run_itself(sharded: Json) -> None:
    """A Distributed Map starts executions of its own machine; no other function is called."""
    (function,) = resources(sharded, "AWS::Lambda::Function", "OrdersAudit")
    found = {tuple(sorted(actions(one))): one["Resource"] for one in statements(sharded, "OrdersAuditParts")}
    assert set(found) == {
        ("lambda:InvokeFunction",),
        ("states:StartExecution",),
        ("states:DescribeExecution", "states:StopExecution"),
        ("states:RedriveExecution",),
    }
    assert spelt(found[("lambda:InvokeFunction",)]) == f"{function}.Arn"


def test_a_part_has_a_virtual_cpu_and_may_keep_its_place(sharded: Json) -> None:
    """1,769 MB are one virtual CPU (Lambda developer guide, "Configure Lambda function memory")."""
    assert only(sharded, "AWS::Lambda::Function", "OrdersAudit")["MemorySize"] == 1_769
    given = {action for one in statements(sharded, "OrdersAuditRole") for action in actions(one)}
    assert given >= {"dynamodb:Query", "dynamodb:BatchWriteItem"}


@pytest.mark.parametrize("prefix", ["", "inventories", "inventories/"])
def test_inventory_reads_its_own_reports_alone(prefix: str) -> None:
    """Listing under their prefix, reading under it, and the key if there is one."""
    stack = new_stack()
    reports = s3.Bucket(stack, "Reports", encryption_key=kms.Key(stack, "Key"))
    layer = lambda_.LayerVersion.from_layer_version_arn(stack, "Pyarrow", "arn:aws:lambda:eu-central-1:1:layer:p:1")
    scale = AuditScale.inventory(reports, prefix=prefix, id="all", parquet_layer=layer)
    IntakePipeline(stack, "Orders", processor=processor(), audit=AuditOptions(scale=scale))
    template = template_of(stack)
    (bucket,) = resources(template, "AWS::S3::Bucket", "Reports")
    (source,) = resources(template, "AWS::S3::Bucket", "OrdersBucket")
    folder = f"inventories/<{source}>/all/" if prefix else f"<{source}>/all/"
    told = definition(template)["States"]["Plan"]["Parameters"]
    assert told["inventory"] == {"bucket": f"<{bucket}>", "prefix": folder}
    about = [one for one in statements(template, "OrdersAuditRole") if bucket in spelt(one["Resource"])]
    listing, reading = sorted(about, key=lambda one: actions(one) == ["s3:GetObject"])
    assert (actions(listing), spelt(listing["Resource"])) == (["s3:ListBucket"], f"{bucket}.Arn")
    assert spelt(listing["Condition"]["StringLike"]["s3:prefix"]) == f"{folder}*"
    assert (actions(reading), spelt(reading["Resource"])) == (["s3:GetObject"], f"{bucket}.Arn/{folder}*")
    assert any(
        "kms:Decrypt" in actions(one) and "Key" in spelt(one["Resource"])
        for one in statements(template, "OrdersAuditRole")
    )
    layers = only(template, "AWS::Lambda::Function", "OrdersAudit")["Layers"]
    assert "arn:aws:lambda:eu-central-1:1:layer:p:1" in layers


@pytest.mark.parametrize(
    ("scale", "problem"),
    [
        (AuditScale.shards(1), "the audit's number of shards is 1: it must be 2 to 2,000"),
        (AuditScale.shards(2_001), "the audit's number of shards is 2,001: it must be 2 to 2,000"),
        (AuditScale.shards(concurrency=0), "the audit's concurrency is 0: it must be 1 to 1,000"),
        (AuditScale.shards(concurrency=1_001), "the audit's concurrency is 1,001: it must be 1 to 1,000"),
    ],
)
def test_numbers_that_cannot_work_are_refused(scale: AuditScale, problem: str) -> None:
    """With the range and the way out."""
    with pytest.raises(IntakeConfigurationError, match=problem):
        pipeline(scale)


def test_an_inventory_without_an_id_is_refused() -> None:
    """Its reports would be looked for in another one's folder."""
    reports = s3.Bucket.from_bucket_name(new_stack(), "Reports", "reports")
    with pytest.raises(IntakeConfigurationError, match="inventory has an empty id: give the one of"):
        pipeline(AuditScale.inventory(reports, id=""))


def test_what_the_parts_of_a_run_call_is_what_the_role_may(sharded: Json) -> None:
    """Every call to DynamoDB in the modules of a run in parts has its action."""
    folder = Path(__file__).resolve().parents[2] / "lambda_src" / "intake_ledger" / "audit"
    source = "".join((folder / name).read_text() for name in ("items.py", "parts.py", "handed.py"))
    calls = {"put_item": "PutItem", "get_item": "GetItem", "update_item": "UpdateItem"}
    calls |= {"batch_write_item": "BatchWriteItem", "batch_get_item": "BatchGetItem", 'get_paginator("query")': "Query"}
    used = {f"dynamodb:{action}" for call, action in calls.items() if f"client.{call}" in source}
    given = {action for one in statements(sharded, "OrdersAuditRole") for action in actions(one)}
    assert len(used) == len(calls)
    assert used <= given
