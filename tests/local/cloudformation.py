"""Synthesise a stack in this process, and deploy it by plain CloudFormation."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import aws_cdk as cdk

from cdk_intake_ledger.testing import LocalAws

ASSETS = "upgrade-assets"
"""The bucket in which the templates look for code."""
Json = dict[str, Any]


def new_stack(folder: Path, name: str) -> cdk.Stack:
    """Make the stack of a new app, whose assembly is below the folder."""
    app = cdk.App(outdir=str(folder / "cdk.out"), builtin_cloud_formation_validation=False)
    synthesizer = cdk.DefaultStackSynthesizer(file_assets_bucket_name=ASSETS, generate_bootstrap_version_rule=False)
    return cdk.Stack(app, name, synthesizer=synthesizer)


def synthesise(stack: cdk.Stack) -> tuple[Json, dict[str, Path]]:
    """Return the template, and the archives and folders that it needs, by their keys in `ASSETS`."""
    app = stack.node.root
    assert isinstance(app, cdk.App)
    assembly, name = Path(app.synth().directory), stack.stack_name
    files = json.loads((assembly / f"{name}.assets.json").read_text())["files"].values()
    assets = {
        destination["objectKey"]: assembly / file["source"]["path"]
        for file in files
        for destination in file["destinations"].values()
        if destination["objectKey"].endswith(".zip")
    }
    return json.loads((assembly / f"{name}.template.json").read_text()), assets


def deploy(
    aws: LocalAws, what: Literal["create", "update"], stack: str, template: Json, assets: Mapping[str, Path]
) -> dict[str, str]:
    """Upload the assets, create or update the stack, and return its outputs, whose names end in `Output`."""
    for key, path in assets.items():
        body = path.read_bytes() if path.is_file() else zipped(path)
        aws.client("s3").put_object(Bucket=ASSETS, Key=key, Body=body)
    cloudformation = aws.client("cloudformation")
    put = getattr(cloudformation, f"{what}_stack")
    put(StackName=stack, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
    waiter = cloudformation.get_waiter(f"stack_{what}_complete")
    waiter.wait(StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 240})
    [found] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    return {one["OutputKey"].removesuffix("Output"): one["OutputValue"] for one in found.get("Outputs", ())}


def zipped(folder: Path) -> bytes:
    """Return a folder's Python files in the archive that Lambda takes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*.py")):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()
