"""Writes a template and the runtime's archive."""

import json
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aws_cdk import App

from cdk_intake_ledger.template.options import TemplateOptions, WrongTemplateOptions
from cdk_intake_ledger.template.stack import (
    ALARM_TOPIC,
    CODE_BUCKET,
    HAS_ALARM_TOPIC,
    OWN_RUNTIME_KEY,
    RUNTIME_KEY,
    TemplateStack,
)

ARCHIVE = "runtime.zip"
"""The name of the archive beside the template."""
_STACK = "NAME-OF-THE-STACK"
"""Warnings contain it: the statement for a key of CloudWatch Logs names the stack."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFiles:
    """The files that were written."""

    template: Path
    archive: Path
    """The layer with the runtime."""
    archive_key: str
    """The archive's key in the code bucket, if the parameter `RuntimeKey` is empty. It contains the archive's hash, so
    that a later release updates the layer."""
    warnings: tuple[str, ...]
    """Warnings of the synthesis."""


def write_template(options: TemplateOptions, folder: Path) -> TemplateFiles:
    """Write `NAME.template.json` and `runtime.zip` into a folder. The same options give the same bytes.

    Args:
        options: the pipeline's options.
        folder: it is made if it does not exist. Files of the same names are replaced.

    Returns:
        the files.

    Raises:
        WrongTemplateOptions: some options have values that CloudFormation would refuse.
        IntakeConfigurationError: the pipeline cannot work. It lists all problems.

    """
    if wrong := tuple(options.wrong_values()):
        raise WrongTemplateOptions(wrong)
    with TemporaryDirectory() as directory:
        app = App(outdir=directory, analytics_reporting=False, builtin_cloud_formation_validation=False)
        stack = TemplateStack(app, _STACK, options=options)
        assembly = Path(app.synth().directory)
        template = json.loads((assembly / stack.template_file).read_text())
        source = assembly / _only_archive(json.loads((assembly / f"{_STACK}.assets.json").read_text()))
        digest = sha256(source.read_bytes()).hexdigest()
        key = f"intake-ledger/{digest}.zip"
        folder.mkdir(parents=True, exist_ok=True)
        archive, path = folder / ARCHIVE, folder / f"{options.name}.template.json"
        shutil.copyfile(source, archive)
        path.write_text(json.dumps(with_parameters(template, key), indent=1) + "\n")
        entries = [entry for construct in stack.node.find_all() for entry in construct.node.metadata]
        warnings = tuple(str(entry.data) for entry in entries if entry.type == "aws:cdk:warning")
    return TemplateFiles(template=path, archive=archive, archive_key=key, warnings=warnings)


def with_parameters(template: Json, key: str) -> Json:
    """Let the layer and the alarms of a template follow its parameters. CDK's constructs take neither as a parameter.

    Args:
        template: a synthesised template. It is changed.
        key: the archive's key if `RuntimeKey` is empty.

    """
    content = {
        "S3Bucket": {"Ref": CODE_BUCKET},
        "S3Key": {"Fn::If": [OWN_RUNTIME_KEY, {"Ref": RUNTIME_KEY}, key]},
    }
    actions = {"Fn::If": [HAS_ALARM_TOPIC, [{"Ref": ALARM_TOPIC}], {"Ref": "AWS::NoValue"}]}
    for resource in template["Resources"].values():
        match resource["Type"]:
            case "AWS::Lambda::LayerVersion":
                resource["Properties"]["Content"] = content
            case "AWS::CloudWatch::Alarm" | "AWS::CloudWatch::CompositeAlarm" as kind:
                properties = resource["Properties"]
                if _STACK in (text := properties["AlarmDescription"]):
                    properties["AlarmDescription"] = {"Fn::Sub": text.replace(_STACK, "${AWS::StackName}")}
                if kind == "AWS::CloudWatch::CompositeAlarm":
                    properties["AlarmActions"] = actions
    return template


def _only_archive(manifest: Json) -> str:
    """The path of the only archive in an asset manifest. All other code of the functions is in the template."""
    [path] = (
        file["source"]["path"]
        for file in manifest["files"].values()
        if any(one["objectKey"].endswith(".zip") for one in file["destinations"].values())
    )
    return str(path)
