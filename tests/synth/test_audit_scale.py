"""The audit in parts, as it is deployed."""

import json
import re
from typing import Any

import pytest
from aws_cdk import Size
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import AuditOptions, AuditScale, Engine, Existing, IntakePipeline
from cdk_intake_ledger.audit.athena import PARTITION, TABLES
from cdk_intake_ledger.audit.join import ORC
from cdk_intake_ledger.bundling.wheels import install, parse_requirements
from intake_ledger.audit.join import athena
from intake_ledger.audit.relations import COLUMNS
from intake_ledger.protocol.settings_audit import audit_settings
from tests.synth.build import (
    Json,
    actions,
    new_stack,
    only,
    processor,
    refused,
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


@pytest.fixture(scope="module")
def by_athena() -> Json:
    stack = new_stack()
    key = kms.Key(stack, "Key")
    scale = AuditScale.shards(100, concurrency=8, engine=Engine.ATHENA, scan_limit=Size.gibibytes(200))
    IntakePipeline(stack, "Orders", processor=processor(), encryption_key=key, audit=AuditOptions(scale=scale))
    return template_of(stack)


def test_one_function_is_the_default_and_has_no_state_machine() -> None:
    """The needs of most pipelines."""
    template = pipeline(AuditScale.one())
    assert not resources(template, "AWS::StepFunctions::StateMachine")
    assert len(resources(template, "AWS::Lambda::Function", "OrdersAudit")) == 1


def test_shards_and_segments_are_read_side_by_side_then_joined_then_looked_at(sharded: Json) -> None:
    """Each part is called until it is done. Concurrency is limited, and a failure stops no other part."""
    states = definition(sharded)["States"]
    assert states["Anything to do?"]["Default"] == "Read"
    assert [states[name]["Next"] for name in ("Read", "Join", "Look")] == ["Join", "Look", "Sum up"]
    for name, step, begin in (("Read", "write", {"slice": 0, "after": ""}), ("Look", "look", {})):
        state = states[name]
        assert state["ItemProcessor"]["ProcessorConfig"] == {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
        given = {"run.$": "$.run", "part.$": "$$.Map.Item.Value"}
        assert (state["ItemsPath"], state["ItemSelector"]) == ("$.parts", {"step": step, **given, **begin})
        # Two functions send the 100 messages in a second that are the default.
        most = {"Read": 8, "Look": 2}
        assert (state["MaxConcurrency"], state["ToleratedFailurePercentage"]) == (most[name], 100)
        inner = state["ItemProcessor"]["States"]
        assert inner[f"{name}: done?"]["Default"] == f"{name}: work"
        assert set(inner[f"{name}: work"]["Parameters"]) == {f"{one}.$" for one in ("step", "run", "part", *begin)}
        assert inner[f"{name}: work"]["Retry"][0]["ErrorEquals"] == ["States.ALL"]
        # Thousands of results would not fit into one state.
        assert inner[f"{name}: done"]["OutputPath"] is None
        assert state["ResultPath"] is None
    for name in ("Read", "Join", "Look"):
        (caught,) = states[name]["Catch"]
        assert (caught["Next"], caught["ResultPath"]) == ("Sum up", None)


@pytest.mark.failure_mode("F41")
def test_a_backfill_in_parts_is_a_run_of_the_machine() -> None:
    """At the rate of the team, with as many functions as it needs; the machine's own schedule begins it."""
    scale = AuditScale.shards(100, concurrency=30)
    options = AuditOptions(scale=scale, existing=Existing.BACKFILL, backfill_rate=2_000)
    stack = new_stack()
    IntakePipeline(
        stack, "Orders", processor=processor(), bucket=s3.Bucket(stack, "Full", versioned=True), audit=options
    )
    template = template_of(stack)
    states = definition(template)["States"]
    assert (states["Look"]["MaxConcurrency"], states["Plan"]["Parameters"]["looks"]) == (30, 30)
    functions = resources(template, "AWS::Lambda::Function", "OrdersAudit").values()
    told = [one["Properties"]["Environment"]["Variables"] for one in functions]
    (environment,) = [one for one in told if "INTAKE_SKIP_EXISTING" in one]
    settings = audit_settings({name: value if isinstance(value, str) else "?" for name, value in environment.items()})
    assert (settings.backfills, settings.backfill_rate, settings.skips_existing) == (True, 2_000, True)
    assert [AuditScale.shards(concurrency=30).looks(rate) for rate in (1, 50, 51, 5_000)] == [1, 1, 2, 30]


def test_the_join_may_touch_its_files_and_nothing_else(sharded: Json) -> None:
    """Neither the bucket that is audited, nor the table, nor the queue."""
    (files,) = resources(sharded, "AWS::S3::Bucket", "OrdersAuditJoinFiles")
    found = {
        tuple(sorted(actions(one))): spelt(one["Resource"])
        for one in statements(sharded, "OrdersAuditJoinRole")
        if not any(action.startswith("logs:") for action in actions(one))
    }
    assert found == {("s3:ListBucket",): f"{files}.Arn", ("s3:GetObject", "s3:PutObject"): f"{files}.Arn/*"}
    function = only(sharded, "AWS::Lambda::Function", "OrdersAuditJoin")
    assert (function["MemorySize"], function["EphemeralStorage"], function["Timeout"]) == (
        10_240,
        {"Size": 10_240},
        900,
    )
    assert len(function["Layers"]) == 2


def test_the_files_of_a_run_are_private_and_expire(sharded: Json) -> None:
    """They are copies of keys."""
    bucket = only(sharded, "AWS::S3::Bucket", "OrdersAuditJoinFiles")
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]
    assert (rule["ExpirationInDays"], rule["Status"]) == (3, "Enabled")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    denied = [
        one
        for policy in resources(sharded, "AWS::S3::BucketPolicy", "OrdersAuditJoinFiles").values()
        for one in policy["Properties"]["PolicyDocument"]["Statement"]
        if one["Effect"] == "Deny"
    ]
    assert {"Bool": {"aws:SecureTransport": "false"}} in [one["Condition"] for one in denied]


def test_the_files_of_a_run_are_encrypted_as_the_table_is() -> None:
    """With the team's own key, which both functions may use."""
    stack = new_stack()
    key = kms.Key(stack, "Key")
    IntakePipeline(
        stack, "Orders", processor=processor(), encryption_key=key, audit=AuditOptions(scale=AuditScale.shards())
    )
    template = template_of(stack)
    bucket = only(template, "AWS::S3::Bucket", "OrdersAuditJoinFiles")
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    given = [sorted(actions(one)) for one in statements(template, "OrdersAuditJoinRole")]
    assert ["kms:Decrypt", "kms:GenerateDataKey"] in given


def test_the_planner_is_told_of_the_execution_and_of_the_lease(sharded: Json) -> None:
    """The lease is longer than the longest run of the machine, so that nothing overlaps a running execution."""
    machine = definition(sharded)
    told = machine["States"]["Plan"]["Parameters"]
    assert told == {
        "step": "plan", "run.$": "$$.Execution.Name", "input.$": "$", "leaseSeconds": machine["TimeoutSeconds"],
        "parts": 100, "segments": 8, "looks": 2,
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
    functions = resources(sharded, "AWS::Lambda::Function", "OrdersAudit")
    found = {tuple(sorted(actions(one))): one["Resource"] for one in statements(sharded, "OrdersAuditParts")}
    assert set(found) == {
        ("lambda:InvokeFunction",),
        ("states:StartExecution",),
        ("states:DescribeExecution", "states:StopExecution"),
        ("states:RedriveExecution",),
    }
    called = found[("lambda:InvokeFunction",)]
    assert sorted(spelt(one) for one in called) == sorted(f"{function}.Arn" for function in functions)


def test_a_part_has_a_virtual_cpu_and_writes_files(sharded: Json) -> None:
    """1,769 MB are one virtual CPU (Lambda developer guide, "Configure Lambda function memory")."""
    function = only(sharded, "AWS::Lambda::Function", "OrdersAuditFunction")
    (files,) = resources(sharded, "AWS::S3::Bucket", "OrdersAuditJoinFiles")
    assert (function["MemorySize"], len(function["Layers"])) == (1_769, 2)
    assert function["EphemeralStorage"] == {"Size": 4_096}
    assert spelt(function["Environment"]["Variables"]["INTAKE_AUDIT_FILES"]) == f"<{files}>"
    about = [one for one in statements(sharded, "OrdersAuditRole") if files in spelt(one["Resource"])]
    assert sorted(action for one in about for action in actions(one)) == [
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutObject",
    ]


def test_the_layer_is_duckdb_for_the_functions_machine() -> None:
    """Wheels that are installed at synthesis are for arm64 by default."""
    template = pipeline(AuditScale.shards(architecture=lambda_.Architecture.X86_64, join_memory=3_008))
    layer = only(template, "AWS::Lambda::LayerVersion", "IntakeLedgerDuckDB")
    assert layer["CompatibleArchitectures"] == ["x86_64"]
    functions = resources(template, "AWS::Lambda::Function", "OrdersAudit").values()
    assert [one["Properties"]["Architectures"] for one in functions] == [["x86_64"], ["x86_64"]]
    assert only(template, "AWS::Lambda::Function", "OrdersAuditJoin")["MemorySize"] == 3_008


def test_the_work_group_bounds_what_a_query_reads_and_where_its_result_is(by_athena: Json) -> None:
    """No query can change that: encrypted, in the bucket of the files, where results expire too."""
    (files,) = resources(by_athena, "AWS::S3::Bucket", "OrdersAuditJoinFiles")
    (key,) = resources(by_athena, "AWS::KMS::Key")
    group = only(by_athena, "AWS::Athena::WorkGroup")
    settings = group["WorkGroupConfiguration"]
    assert (settings["EnforceWorkGroupConfiguration"], settings["BytesScannedCutoffPerQuery"]) == (True, 200 * 2**30)
    result = settings["ResultConfiguration"]
    assert spelt(result["OutputLocation"]) == f"s3://<{files}>/results/"
    encryption = result["EncryptionConfiguration"]
    assert (encryption["EncryptionOption"], spelt(encryption["KmsKey"])) == ("SSE_KMS", f"{key}.Arn")
    assert group["RecursiveDeleteOption"]


@pytest.mark.parametrize("relation", list(COLUMNS))
def test_the_tables_are_the_files_that_the_parts_write(by_athena: Json, relation: str) -> None:
    """Parquet by lists of files, and the partition of a run wherever the run is."""
    types = {"VARCHAR": "string", "BIGINT": "bigint", "BOOLEAN": "boolean"}
    (files,) = resources(by_athena, "AWS::S3::Bucket", "OrdersAuditJoinFiles")
    table = only(by_athena, "AWS::Glue::Table", f"OrdersAuditJoinAthena{relation.title()}")
    (database,) = resources(by_athena, "AWS::Glue::Database")
    assert (spelt(table["DatabaseName"]), table["TableInput"]["Name"]) == (f"<{database}>", relation)
    storage = table["TableInput"]["StorageDescriptor"]
    columns = {one["Name"]: one["Type"] for one in storage["Columns"]}
    assert columns == TABLES[relation] == {name: types[kind] for name, kind in COLUMNS[relation].items()}
    assert list(columns) == list(COLUMNS[relation])
    assert storage["InputFormat"].endswith(".SymlinkTextInputFormat")
    assert storage["SerdeInfo"]["SerializationLibrary"].endswith(".ParquetHiveSerDe")
    assert [one["Name"] for one in table["TableInput"]["PartitionKeys"]] == [PARTITION] == [athena.PARTITION]
    parameters = table["TableInput"]["Parameters"]
    assert (parameters["projection.enabled"], parameters["projection.run.type"]) == ("true", "injected")
    # As the function writes it: <run>/<relation>/symlink.txt.
    assert spelt(parameters["storage.location.template"]) == f"s3://<{files}>/${{run}}/{relation}/"


def test_the_function_that_asks_athena_may_touch_its_tables_and_files_and_nothing_else(by_athena: Json) -> None:
    """Athena reads and writes with the caller's permissions."""
    (files,) = resources(by_athena, "AWS::S3::Bucket", "OrdersAuditJoinFiles")
    (key,) = resources(by_athena, "AWS::KMS::Key")
    name = only(by_athena, "AWS::Athena::WorkGroup")["Name"]
    place = ":<AWS::Region>:<AWS::AccountId>:"
    found = [
        (tuple(sorted(actions(one))), one["Resource"] if isinstance(one["Resource"], list) else [one["Resource"]])
        for one in statements(by_athena, "OrdersAuditJoinRole")
        if not any(action.startswith("logs:") for action in actions(one))
    ]
    allowed = {given: [spelt(one).replace("arn:<AWS::Partition>:", "") for one in where] for given, where in found}
    assert allowed == {
        ("s3:ListBucket",): [f"{files}.Arn"],
        ("s3:GetObject", "s3:PutObject"): [f"{files}.Arn/*"],
        ("kms:Decrypt", "kms:GenerateDataKey"): [f"{key}.Arn"],
        ("athena:GetQueryExecution", "athena:StartQueryExecution"): [f"athena{place}workgroup/{name}"],
        ("glue:GetDatabase",): [f"glue{place}database/default"],
        ("glue:GetDatabase", "glue:GetPartitions", "glue:GetTable"): [
            f"glue{place}catalog",
            f"glue{place}database/{name}",
            f"glue{place}table/{name}/listed",
            f"glue{place}table/{name}/held",
        ],
        ("s3:GetBucketLocation", "s3:ListBucketMultipartUploads"): [f"{files}.Arn"],
        ("s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"): [f"{files}.Arn/results/*"],
    }


def test_the_function_that_asks_athena_joins_nothing_itself(by_athena: Json) -> None:
    """It takes DuckDB's layer along, to read the metadata of the files; it needs neither its memory nor its disk."""
    function = only(by_athena, "AWS::Lambda::Function", "OrdersAuditJoin")
    assert "join.athena_parts" in function["Code"]["ZipFile"]
    assert (function["MemorySize"], function["EphemeralStorage"], len(function["Layers"])) == (
        1_769,
        {"Size": 4_096},
        2,
    )
    name = only(by_athena, "AWS::Athena::WorkGroup")["Name"]
    variables = function["Environment"]["Variables"]
    assert variables["INTAKE_AUDIT_WORK_GROUP"] == variables["INTAKE_AUDIT_DATABASE"] == name
    assert re.fullmatch("[a-z][a-z0-9_]{1,127}", name)


def test_the_machine_waits_for_athena_and_no_function_does(by_athena: Json) -> None:
    """Until the join is done; what fails for good is summed up all the same."""
    states = definition(by_athena)["States"]
    assert [states[name]["Next"] for name in ("Read", "Join", "Wait for the join", "Joined?", "Look")] == [
        "Join", "Join: done?", "Joined?", "Join: done?", "Sum up",
    ]  # fmt: skip
    choice = states["Join: done?"]
    assert choice["Choices"] == [{"Variable": "$.done", "BooleanEquals": True, "Next": "Look"}]
    assert choice["Default"] == "Wait for the join"
    assert states["Wait for the join"]["Seconds"] == 20
    assert states["Joined?"]["Parameters"] == {"run.$": "$.run", "asked.$": "$.asked"}
    assert states["Joined?"]["Resource"] == states["Join"]["Resource"]
    for name in ("Join", "Joined?"):
        (caught,) = states[name]["Catch"]
        assert (caught["Next"], caught["ResultPath"]) == ("Sum up", None)
        assert states[name]["Retry"][0]["ErrorEquals"] == ["States.ALL"]


def test_duckdb_needs_nothing_of_athena(sharded: Json) -> None:
    """Neither tables nor a work group."""
    types = {one["Type"] for one in sharded["Resources"].values()}
    assert not [one for one in types if "Glue" in one or "Athena" in one]


@pytest.mark.parametrize("prefix", ["", "inventories", "inventories/"])
def test_inventory_reads_its_own_reports_alone(prefix: str) -> None:
    """Listing under their prefix, reading under it, and the key if there is one."""
    stack = new_stack()
    reports = s3.Bucket(stack, "Reports", encryption_key=kms.Key(stack, "Key"))
    scale = AuditScale.inventory(reports, prefix=prefix, id="all")
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


@pytest.mark.parametrize(
    ("scale", "rule", "text"),
    [
        (AuditScale.shards(1), "shard-count", "the audit's number of shards is 1: it must be 2 to 2,000"),
        (AuditScale.shards(2_001), "shard-count", "the audit's number of shards is 2,001: it must be 2 to 2,000"),
        (AuditScale.shards(concurrency=0), "audit-concurrency", "the audit's concurrency is 0: it must be 1 to 1,000"),
        (
            AuditScale.shards(join_memory=1_024),
            "join-memory",
            "the audit's join_memory is 1,024 MB: it must be 1,769 to 10,240",
        ),
        (AuditScale.shards(scan_limit=Size.gibibytes(1)), "scan-limit-needs-athena", "the audit has a scan_limit"),
        (
            AuditScale.shards(engine=Engine.ATHENA, join_memory=3_008),
            "join-memory-needs-duckdb",
            "the audit has a join_memory",
        ),
        (
            AuditScale.shards(engine=Engine.ATHENA, scan_limit=Size.mebibytes(9)),
            "scan-limit-minimum",
            "the audit's scan_limit is 9,437,184 bytes: Athena takes at least 10,485,760",
        ),
        (
            AuditScale.shards(concurrency=1_001),
            "audit-concurrency",
            "the audit's concurrency is 1,001: it must be 1 to 1,000",
        ),
    ],
)
def test_numbers_that_cannot_work_are_refused(scale: AuditScale, rule: str, text: str) -> None:
    """With the range and the way out."""
    with refused(rule, text):
        pipeline(scale)


def test_an_inventory_in_orc_is_read_with_a_layer_of_its_own() -> None:
    """The time zones are where the variable says: the library below pyorc refuses every timestamp without them."""
    reports = s3.Bucket.from_bucket_name(new_stack(), "Reports", "reports")
    template = pipeline(AuditScale.inventory(reports, id="all"))
    function = only(template, "AWS::Lambda::Function", "OrdersAuditFunction")
    layer = install(parse_requirements(ORC), python="3.13", architecture="arm64")
    place = function["Environment"]["Variables"]["TZDIR"].removeprefix("/opt/python/")
    assert (layer / place / "GMT").is_file()
    assert (layer / "pyorc").is_dir()
    assert "pyorc" in only(template, "AWS::Lambda::LayerVersion", "IntakeLedgerDuckDB")["Description"]


def test_a_listing_needs_nothing_that_reads_orc(sharded: Json) -> None:
    """Its layer has DuckDB alone."""
    assert "TZDIR" not in only(sharded, "AWS::Lambda::Function", "OrdersAuditFunction")["Environment"]["Variables"]
    assert "pyorc" not in only(sharded, "AWS::Lambda::LayerVersion", "IntakeLedgerDuckDB")["Description"]


def test_an_inventory_without_an_id_is_refused() -> None:
    """Its reports would be looked for in another one's folder."""
    reports = s3.Bucket.from_bucket_name(new_stack(), "Reports", "reports")
    with refused("inventory-id", "inventory has an empty id"):
        pipeline(AuditScale.inventory(reports, id=""))
