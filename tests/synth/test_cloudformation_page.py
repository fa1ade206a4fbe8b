"""The template of `intake-ledger template`, and the page with its recipes."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk
import constructs
import pytest
import yaml  # type: ignore[import-untyped]
from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]
from typer.main import get_command

from cdk_intake_ledger import Ordering
from cdk_intake_ledger.template.files import TemplateFiles, write_template
from cdk_intake_ledger.template.options import TemplateOptions
from intake_ledger_cli import commands
from tests.synth.build import Json, variables
from tests.synth.test_cfn_lint import ACCEPTED, REGIONS

PAGE = (Path(__file__).parents[2] / "docs" / "template.md").read_text().partition("\n## Without a CDK app")[2]
LIMIT = 51_200
"""Bytes of a template in a request to CloudFormation."""
KEY = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
PLAIN = TemplateOptions(name="Invoices", prefix="in/")
RICH = TemplateOptions(
    name="Invoices",
    prefix="in/",
    suffix=".csv",
    ordering=Ordering.EVERY_VERSION,
    deletes=True,
    processing_timeout=300,
    max_attempts=3,
    retention_days=90,
    existing_bucket="partner-inbox",
    key_arn=KEY,
)


def read(files: TemplateFiles) -> Json:
    return dict(json.loads(files.template.read_text()))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TemplateFiles:
    return write_template(PLAIN, tmp_path_factory.mktemp("plain") / "intake")


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> TemplateFiles:
    return write_template(RICH, tmp_path_factory.mktemp("rich"))


def test_the_template_needs_nothing_of_the_cdk(plain: TemplateFiles, rich: TemplateFiles) -> None:
    """Neither a bootstrapped account, nor metadata, nor an asset except the runtime."""
    for files in (plain, rich):
        template = read(files)
        assert set(template) == {"Description", "Parameters", "Conditions", "Resources", "Outputs"}
        text = files.template.read_text()
        assert not re.search("BootstrapVersion|cdk-hnb659fds|aws:cdk:|aws:asset:", text)
        places = re.findall('"S3Bucket": ({[^}]*})', text)
        assert [json.loads(place) for place in places] == [{"Ref": "CodeBucket"}]


def test_the_same_options_give_the_same_bytes(plain: TemplateFiles, tmp_path: Path) -> None:
    """A difference in version control is a difference of the pipeline."""
    again = write_template(PLAIN, tmp_path)
    assert again.template.read_bytes() == plain.template.read_bytes()
    assert again.archive.read_bytes() == plain.archive.read_bytes()
    assert again.archive_key == plain.archive_key


@pytest.mark.failure_mode("F220")
def test_a_forgotten_key_is_that_of_this_runtime(plain: TemplateFiles) -> None:
    """`aws cloudformation deploy` keeps the former values of parameters, so a default with the hash would be old."""
    template = read(plain)
    assert template["Parameters"]["RuntimeKey"]["Default"] == ""
    [layer] = [one for one in template["Resources"].values() if one["Type"] == "AWS::Lambda::LayerVersion"]
    assert layer["Properties"]["Content"]["S3Key"] == {
        "Fn::If": ["OwnRuntimeKey", {"Ref": "RuntimeKey"}, plain.archive_key]
    }


def test_options_are_in_the_template(rich: TemplateFiles) -> None:
    """Names, numbers, the existing bucket and the key."""
    template = read(rich)
    found = variables(template, "InvoicesConsumer")
    assert {name: found[f"INTAKE_{name}"] for name in ("ORDERING", "DELETES", "KEY_FILTERS", "MAX_ATTEMPTS")} == {
        "ORDERING": "EVERY_VERSION",
        "DELETES": "true",
        "KEY_FILTERS": '[{"prefix":"in/","suffix":".csv"}]',
        "MAX_ATTEMPTS": "3",
    }
    assert (found["INTAKE_PROCESSING_TIMEOUT_SECONDS"], found["INTAKE_RETENTION_SECONDS"]) == ("300", str(90 * 86_400))
    assert found["INTAKE_BUCKET_NAME"] == "partner-inbox"
    types = [one["Type"] for one in template["Resources"].values()]
    assert "AWS::S3::Bucket" not in types
    assert KEY in str([one for one in template["Resources"].values() if one["Type"] == "AWS::DynamoDB::Table"])
    assert any("versioning" in warning for warning in rich.warnings)


def test_a_new_bucket_may_have_a_name(tmp_path: Path) -> None:
    """EventBridge delivers its events."""
    template = read(write_template(TemplateOptions(bucket_name="mine", event_bridge=True), tmp_path))
    [bucket] = [one for one in template["Resources"].values() if one["Type"] == "AWS::S3::Bucket"]
    assert bucket["Properties"]["BucketName"] == "mine"
    assert "AWS::Events::Rule" in [one["Type"] for one in template["Resources"].values()]


def test_cfn_lint_finds_nothing_else_and_the_template_fits_into_a_request(
    plain: TemplateFiles, rich: TemplateFiles
) -> None:
    """Terraform's `template_body` and `aws cloudformation deploy` send it as it is."""
    for files in (plain, rich):
        assert files.template.stat().st_size < LIMIT
    findings = lint(rich.template.read_text(), config=ManualArgs(regions=REGIONS))
    assert [str(one) for one in findings if one.rule.id not in ACCEPTED] == []


def test_the_page_lists_options_parameters_and_outputs(plain: TemplateFiles) -> None:
    """All of them, and no others."""
    commands.load()
    template, command = read(plain), get_command(commands.app)
    options = {option for one in command.commands["template"].params for option in one.opts}  # type: ignore[attr-defined]
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    listed = [name for row in rows for name in re.findall("`([^`]+)`", row)]
    assert {name for name in listed if name.startswith("--")} == options - {"--help"}
    assert {name for name in listed if name.isalpha()} == set(template["Parameters"])
    [outputs] = re.findall("^Outputs: (.*)$", PAGE, re.MULTILINE)
    assert re.findall("`([^`]+)`", outputs) == list(template["Outputs"])


def snippet(language: str) -> str:
    [text] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


class Tags(yaml.SafeLoader):  # type: ignore[misc]
    """Reads CloudFormation's short forms, such as `!GetAtt a.b`, as their texts."""


Tags.add_multi_constructor("!", lambda loader, suffix, node: f"!{suffix} {loader.construct_scalar(node)}")


def check_values(template: Json, values: Mapping[str, object]) -> None:
    """All parameters exist, and all without a default have a value."""
    required = {name for name, one in template["Parameters"].items() if "Default" not in one}
    assert required <= set(values) <= set(template["Parameters"])


def test_the_snippet_of_sam_names_what_the_template_has(plain: TemplateFiles) -> None:
    """Parameters, outputs, and the file."""
    template, sam = read(plain), yaml.load(snippet("yaml"), Tags)
    properties = sam["Resources"]["Intake"]["Properties"]
    assert properties["TemplateURL"] == f"intake/{plain.template.name}"
    check_values(template, properties["Parameters"])
    used = re.findall(r"Intake\.Outputs\.(\w+)", snippet("yaml"))
    assert set(used) <= set(template["Outputs"])
    assert used


def test_the_snippet_of_terraform_names_what_the_template_has(plain: TemplateFiles) -> None:
    template, text = read(plain), snippet("hcl")
    [parameters] = re.findall(r"parameters = \{\n(.*?)\n  \}", text, re.DOTALL)
    check_values(template, dict(re.findall(r"(\w+) += (.+)", parameters)))
    assert set(re.findall(r'outputs\["(\w+)"\]', text)) <= set(template["Outputs"])
    assert f"/intake/{plain.template.name}" in text


@pytest.mark.skipif(not shutil.which("terraform"), reason="Terraform is not on this machine")
def test_terraform_reads_its_snippet() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    command = ["terraform", "fmt", "-check", "-diff", "-"]
    done = subprocess.run(command, input=snippet("hcl"), env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CDK for Node.js, which the package for Python contains."""
    folder = tmp_path_factory.mktemp("typescript") / "node_modules"
    roots = {Path(str(module.__file__)).parent for module in (aws_cdk, constructs)}
    for archive in sorted(path for root in roots for path in root.rglob("_jsii/*.tgz")):
        if archive.name.startswith("asset-"):
            continue
        with tarfile.open(archive) as packed:
            about = packed.extractfile("package/package.json")
            assert about is not None
            target = folder / json.load(about)["name"]
            packed.extractall(target.parent, filter="data")
        (target.parent / "package").rename(target)
    return folder


@pytest.mark.thorough
def test_the_snippet_of_typescript_synthesises(plain: TemplateFiles, node_modules: Path) -> None:
    """It is run without its one mark of TypeScript, since Node.js 20 runs JavaScript only."""
    home: Any = node_modules.parent
    shutil.copytree(plain.template.parent, home / "intake")
    (home / "src").mkdir()
    (home / "src" / "index.js").write_text("exports.handler = async () => ({ commit: null });\n")
    text = (
        snippet("ts")
        .replace("role!.", "role.")
        .replace("new App()", "new App({ builtinCloudFormationValidation: false })")
    )
    (home / "app.mjs").write_text(text)
    out = home / "cdk.out"
    done = subprocess.run(
        ["node", "app.mjs"],
        cwd=home,
        env=os.environ | {"CDK_OUTDIR": str(out)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    included, template = json.loads((out / "Billing.template.json").read_text()), read(plain)
    assert set(template["Resources"]) < set(included["Resources"])
    assert set(template["Parameters"]) & set(included["Parameters"]) == {"AlarmTopicArn"}
    [layer] = [one for one in included["Resources"].values() if one["Type"] == "AWS::Lambda::LayerVersion"]
    chosen = layer["Properties"]["Content"]["S3Key"]["Fn::If"][1]
    files = json.loads((out / "Billing.assets.json").read_text())["files"].values()
    uploaded = [one["objectKey"] for file in files for one in file["destinations"].values()]
    assert chosen in uploaded
