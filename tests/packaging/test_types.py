"""Type checkers of users accept the app of the start page, with the annotations that the wheel has."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.test_stranger import FILES

ROOT = Path(__file__).parents[2]
PYRIGHT = ROOT / "build" / "pyright" / "node_modules" / "pyright" / "index.js"
CONCRETE = """
from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kinesis as kinesis
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger import (
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MessageIntake,
    MessageSource,
    MonitoringOptions,
    NetworkOptions,
    Processor,
)


def uses_classes_of_the_cdk(
    stack: Stack, action: actions.SnsAction, bucket: s3.Bucket, bus: events.EventBus, function: lambda_.Function,
    group: ec2.SecurityGroup, imported: sns.ITopic, key: kms.Key, layer: lambda_.LayerVersion, logs: logs.LogGroup,
    machine: sfn.StateMachine, queue: sqs.Queue, role: iam.Role, stream: kinesis.Stream, table: dynamodb.Table,
    tables: dynamodb.TableV2, topic: sns.Topic, vpc: ec2.Vpc, alias: lambda_.Alias, calls: actions.LambdaAction,
) -> None:
    pipeline = IntakePipeline(
        stack, "Orders", processor=Processor.from_asset("a", entrypoint="a:b", layers=[layer]), bucket=bucket,
        queue=IntakeQueue(stack, "Q", queue=queue, dead_letter_queue=queue, encryption_key=key),
        ledger=IntakeLedger(stack, "L", table=table, encryption_key=key), encryption_key=key,
        monitoring=MonitoringOptions(alarm_actions=[action, topic, imported, calls], log_group=logs),
        network=NetworkOptions(vpc=vpc, security_groups=[group]), processing_timeout=Duration.minutes(1),
    )
    IntakeLedger(stack, "V2", table=tables)
    table.grant_read_data(pipeline)
    pipeline.grant_put(role)
    pipeline.grant_read(function)
    pipeline.grant_output(bucket, "out/")
    Processor.from_function(function)
    Processor.from_function(alias)
    Processor.from_state_machine(machine)
    for source in (
        MessageSource.sqs(queue, dead_letter_queue=queue),
        MessageSource.kinesis(stream),
        MessageSource.dynamodb(table),
        MessageSource.event_bridge(events.EventPattern(source=["shop"]), event_bus=bus),
    ):
        MessageIntake(
            stack, "M", source=source, key="k", identity="i", processor=Processor.from_function(function),
            encryption_key=key,
        )
"""
"""A type checker that compares the names of parameters finds that some of these are not their interfaces."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The start page's app and its processor."""
    folder = tmp_path_factory.mktemp("app")
    for name in ("app.py", "processors/invoices/invoices.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(FILES[name])
    (folder / "concrete.py").write_text(CONCRETE)
    return folder


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and the other distributions of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Python reads no `.pth` of a folder that a `.pth` names, so the sources of this checkout are not found.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def checked(app: Path, *command: str | Path) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(command, cwd=app, env=variables, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.failure_mode("F450")
def test_mypy_accepts_the_app_of_the_start_page(app: Path, python: Path) -> None:
    """In strict mode."""
    # With the settings and the cache of `make types`, it does not read the whole CDK again.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    codes = [f"--enable-error-code={code}" for code in settings["enable_error_code"]]
    options = ["--strict", f"--python-version={settings['python_version']}", *codes]
    cache = app.parent / "cache"
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", cache)
    options += [f"--cache-dir={cache}", f"--python-executable={python}"]
    output = checked(app, sys.executable, "-m", "mypy", *options, ".")
    assert output == "Success: no issues found in 3 source files\n"


@pytest.mark.thorough
@pytest.mark.failure_mode("F450")
def test_pyright_accepts_the_app_of_the_start_page(app: Path, python: Path) -> None:
    """In strict mode, and with it the language server of editors."""
    if not PYRIGHT.exists():
        pytest.fail("pyright has a folder of its own: make build/pyright/.ready")
    (app / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    output = checked(app, "node", PYRIGHT, "--pythonpath", python)
    assert output.splitlines()[-1] == "0 errors, 0 warnings, 0 informations", output
