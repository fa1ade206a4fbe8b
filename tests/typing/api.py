"""Code of users, which must pass mypy in strict mode. mypy reads this file, and no test runs it.

A line that mypy must refuse has an ignore. mypy reports each ignore that is not needed.
"""

import csv
from decimal import Decimal
from io import TextIOWrapper
from pathlib import Path
from typing import Any, assert_type
from zipfile import ZipFile

import psycopg
from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    Delivery,
    Engine,
    FileSets,
    IntakeConfigurationError,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MessageIntake,
    MessageSource,
    Ordering,
    Processor,
    RetryOptions,
    SetForm,
)
from cdk_intake_ledger.testing import Fault, LocalAws, LocalPipeline, events, logical_ids, stable_template
from intake_ledger import (
    Commit,
    FileSet,
    ObjectChange,
    ObjectGone,
    ObjectReadError,
    ObjectStream,
    Rejects,
    Unprocessable,
)
from intake_ledger.outputs.sql import lock_object, schema
from intake_ledger.protocol.row import Row


def process(change: ObjectChange) -> Commit:
    with change.open() as stream:
        assert_type(stream, ObjectStream)
        assert_type(stream.read(), bytes)
    for row in change.csv_rows(delimiter=";", encoding="cp1252", fieldnames=["account", "amount"]):
        Decimal(row["amount"])
        assert_type(row, dict[str, str])
    typed = {"account": str, "amount": Decimal}
    for converted in change.csv_rows(columns=typed, on_error=Rejects(max_share=0.01, check=lambda one: one["amount"])):
        assert_type(converted, dict[str, Any])
    for line in change.csv_rows(columns=("account", "amount"), on_error=Rejects(max_share=None)):
        assert_type(line, dict[str, str])
    list(change.json_lines(columns={"amount": int}))
    change.csv_rows(on_error=0.01)  # type: ignore[call-overload]
    if change.size is None or change.remaining_seconds < 1:
        raise Unprocessable("no content")
    return Commit(change.idempotency_key, transact=[{"Put": {"TableName": "t", "Item": {"id": {"S": change.key}}}}])


def writes_to_postgresql(change: ObjectChange, files: FileSet) -> None:
    with psycopg.connect("") as connection, connection.cursor() as cursor:
        cursor.execute(schema("intake.objects"))
        lock_object(cursor, change, table="intake.objects", pipeline="orders", paramstyle="pyformat")
        lock_object(cursor, files)
        lock_object(connection, change)  # type: ignore[arg-type] # a connection is no cursor


def returns_text(change: ObjectChange) -> str:
    try:
        return next(change.lines())
    except ObjectGone:
        return change.kind


def returns_nothing(change: ObjectChange) -> None:
    change.key = "another"  # type: ignore[misc] # a change is read-only


def returns_something_else(change: ObjectChange) -> int:
    return change.fence


def use_in_a_stack(stack: Stack, bucket: s3.IBucket, theirs: sqs.IQueue, table: dynamodb.ITable) -> None:
    pipeline = IntakePipeline(
        stack,
        "Orders",
        processor=Processor.from_asset(Path("processors"), entrypoint="orders:process", environment={"TABLE": "t"}),
        ordering=Ordering.EVERY_VERSION,
        bucket=bucket,
        filters=[s3.NotificationKeyFilter(prefix="in/")],
        delivery=Delivery.EXISTING,
        queue=IntakeQueue(stack, "Queue", queue=theirs, dead_letter_queue=theirs, retention=Duration.days(4)),
        ledger=IntakeLedger(stack, "Ledger", table=table),
        processing_timeout=Duration.minutes(5),
        retry=RetryOptions(max_attempts=5),
        audit=AuditOptions(interval=Duration.hours(6), scale=AuditScale.shards(engine=Engine.ATHENA)),
        removal_policy=RemovalPolicy.DESTROY,
    )
    arm = lambda_.Architecture.ARM_64
    assert_type(Processor.from_image("pictures", entrypoint="pictures:process", architecture=arm), Processor)
    image = lambda_.DockerImageCode.from_image_asset("pictures")
    assert_type(Processor.from_image(image, entrypoint="pictures:process", architecture=arm), Processor)
    Processor.from_image("pictures", entrypoint="pictures:process")  # type: ignore[call-arg]
    # The pipeline is a grantee, and its resources are CDK's interfaces.
    table.grant_read_write_data(pipeline)
    assert_type(pipeline.grant_put(iam.AccountRootPrincipal()), iam.Grant)
    assert_type(pipeline.grant_operate(iam.AccountRootPrincipal()), iam.Grant)
    form = SetForm.manifest("loads/*/manifest.json")
    sets = FileSets(stack, "Sets", pipeline=pipeline, form=form, processor=Processor.from_asset("a", entrypoint="a:b"))
    assert_type(sets.grant_operate(iam.AccountRootPrincipal()), iam.Grant)
    own = Processor.from_function(pipeline.function, processor_version="3f2a9c")
    intake = MessageIntake(stack, "Messages", source=MessageSource.sqs(), key="id", identity="version", processor=own)
    assert_type(intake.grant_operate(iam.AccountRootPrincipal()), iam.Grant)
    assert_type(pipeline.bucket, s3.IBucket)
    assert_type(pipeline.queue, sqs.IQueue)
    assert_type(pipeline.table, dynamodb.ITable)
    assert_type(pipeline.function, lambda_.IFunction)
    assert_type(pipeline.metric("Committed", period=Duration.minutes(1), label="done"), cloudwatch.Metric)
    assert_type(pipeline.alarms["Fenced"], cloudwatch.Alarm)
    cloudwatch.Dashboard(stack, "Board").add_widgets(*pipeline.monitoring.widgets())

    pipeline.metric("Committed", colour="red")  # type: ignore[call-arg] # CDK writes `color`
    IntakePipeline(stack, "NoProcessor")  # type: ignore[call-arg]
    IntakePipeline(stack, "Text", processor="orders:process")  # type: ignore[arg-type]
    pipeline.bucket = bucket  # type: ignore[misc] # attributes are read-only


def reads_in_other_ways(change: ObjectChange) -> str:
    with TextIOWrapper(change.open(), encoding="utf-8", newline="") as text:
        rows = list(csv.reader(text))
    with change.download() as file, ZipFile(file) as archive:
        names = archive.namelist()
    try:
        assert_type(change.read(max_bytes=1_000), bytes)
    except ObjectReadError as error:
        return str(error)
    change.read()  # type: ignore[call-arg] # the limit is required
    return f"{rows} {names}"


def use_in_tests(stack: Stack) -> None:
    pipeline = LocalPipeline(process, ordering=Ordering.LATEST, deletes=True, commit_together=True)
    LocalPipeline(returns_text)
    LocalPipeline(returns_nothing)
    LocalPipeline(returns_something_else)  # type: ignore[arg-type]
    LocalPipeline(process, max_rate="5")  # type: ignore[arg-type]
    LocalPipeline(process, max_rates=5)  # type: ignore[call-arg]
    pipeline.next(Fault.TIMED_OUT, None, Fault.OVERTAKEN, Fault.CONNECTION_CUT)
    pipeline.send(events.s3_notification("bucket", "key", version_id="1"))
    pipeline.run(seed=1)
    assert_type(pipeline.row("key"), Row | None)
    assert_type(pipeline.dead_letters[0].reason, str)
    assert_type(logical_ids(stack, "AWS::S3::Bucket"), dict[str, list[str]])
    stable_template(stack)["Resources"]
    with LocalAws() as aws:
        assert_type(aws.deploy("python app.py"), dict[str, dict[str, str]])
        assert_type(aws.wait_until(lambda: 1, "it is one"), int)


def read_problems(error: IntakeConfigurationError) -> tuple[str, ...]:
    assert_type(error.path, str)
    return error.problems
