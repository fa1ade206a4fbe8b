"""Keep releases to upgrade from: `releases` holds the template and the runtime of each.

`python -m tests.local.operations.release 0.1.0` keeps the present one, and is run at each release.
"""

import io
import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from aws_cdk import aws_dynamodb as dynamodb

from cdk_intake_ledger import IntakePipeline, Processor
from cdk_intake_ledger.functions.layer import archive
from tests.local import cloudformation

HERE = Path(__file__).parents[1]
RELEASES = HERE / "releases"
STACK = "Upgraded"
RUNTIME = Path("python", "intake_ledger")
"""Our own part of a layer; the rest is Powertools, as it is installed."""

Json = dict[str, Any]


def synthesise(folder: Path) -> tuple[Json, dict[str, Path]]:
    """Synthesise the present stack. Return its template, and its archives and folders by their keys in `ASSETS`."""
    code = folder / "code"
    code.mkdir()
    shutil.copy(HERE / "processors" / "counting.py", code)
    stack = cloudformation.new_stack(folder, STACK)
    calls = dynamodb.Table(
        stack, "Calls", partition_key=dynamodb.Attribute(name="version", type=dynamodb.AttributeType.STRING)
    )
    orders = IntakePipeline(
        stack,
        "Orders",
        processor=Processor.from_asset(
            code, entrypoint="counting:process", environment={"CALLS_TABLE": calls.table_name}
        ),
    )
    calls.grant(orders, "dynamodb:UpdateItem")
    return cloudformation.synthesise(stack)


def kept(version: str, folder: Path) -> tuple[Json, dict[str, Path]]:
    """The same of a release: its template and its runtime; processor and Powertools are today's."""
    template = json.loads((RELEASES / f"{version}.template.json").read_text())
    layer, code = folder / "layer", folder / "code"
    zipfile.ZipFile(io.BytesIO(archive())).extractall(layer)
    shutil.rmtree(layer / RUNTIME)
    with zipfile.ZipFile(RELEASES / f"{version}.runtime.zip") as released:
        released.extractall(layer / RUNTIME)
    code.mkdir()
    shutil.copy(HERE / "processors" / "counting.py", code)
    keys = {
        one["Type"]: found["S3Key"]
        for one in template["Resources"].values()
        for found in [one["Properties"].get("Content", one["Properties"].get("Code"))]
        if isinstance(found, dict) and "S3Key" in found
    }
    return template, {keys["AWS::Lambda::LayerVersion"]: layer, keys["AWS::Lambda::Function"]: code}


def keep(version: str) -> None:
    """Write the present template and runtime into `releases`."""
    RELEASES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        template, _ = synthesise(Path(directory))
        text = json.dumps(template, indent=1, sort_keys=True)
        (RELEASES / f"{version}.template.json").write_text(f"{text}\n")
        layer = Path(directory, "layer")
        zipfile.ZipFile(io.BytesIO(archive())).extractall(layer)
        shutil.make_archive(str(RELEASES / f"{version}.runtime"), "zip", layer / RUNTIME)


if __name__ == "__main__":
    keep(sys.argv[1])
