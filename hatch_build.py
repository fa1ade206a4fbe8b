"""Builds the runtime layer into the wheel: sources, byte code of Lambda's default Python, and licences. A software bill
of materials (SBOM) in the wheel's metadata lists the layer and the distributions in it.

Another Python builds a wheel without the layer. Synthesis then assembles the layer, as in a checkout.
"""

import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PYTHON = (3, 13)
"""The default runtime of the functions: `TESTED_RUNTIME`. Other runtimes ignore its byte code, and compile."""
DISTRIBUTIONS = ("aws-lambda-powertools", "typing_extensions")
NAME = "cdk_intake_ledger/functions/runtime_layer.zip"
_KINDS = (".py", ".sql", ".typed")
_MACHINES_NOTES = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
# Lambda mounts the layer read-only under /opt. Byte code that is never compared with its source needs no file access.
_COMPILE = """
import py_compile, sys
for line in sys.stdin.read().splitlines():
    source, shown, target = line.split("\\t")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(source, target, dfile=shown, doraise=True, invalidation_mode=mode)
"""


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the layer to a wheel, and not to an editable installation, whose edits must count."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the layer before the wheel."""
        if version == "editable" or sys.version_info[:2] != PYTHON:
            return
        self._folder = tempfile.TemporaryDirectory()
        target = Path(self._folder.name, "runtime_layer.zip")
        build(Path(self.root), target)
        build_data["force_include"][str(target)] = NAME
        # PEP 770: hatchling writes it into the folder `sboms` of the wheel's metadata.
        bill = Path(self._folder.name, "runtime_layer.cdx.json")
        bill.write_text(json.dumps(bill_of_materials(self.metadata.version, target), indent=2) + "\n")
        build_data["sbom_files"].append(str(bill))


def contents(root: Path) -> dict[str, Path]:
    """The sources, notices and licences of the layer: name in its `python` folder, and file."""
    ours = root / "lambda_src"
    found = {path.relative_to(ours).as_posix(): path for path in sorted(ours.rglob("*")) if path.name.endswith(_KINDS)}
    found["intake_ledger/LICENSE"] = root / "LICENSE"
    for name in DISTRIBUTIONS:
        installed = distribution(name)
        for file in installed.files or ():
            about = ".dist-info/" in file.as_posix() and file.name not in _MACHINES_NOTES
            if (about or file.name.endswith(_KINDS)) and ".." not in file.parts:
                found[file.as_posix()] = Path(str(installed.locate_file(file)))
    return found


def build(root: Path, target: Path) -> None:
    """Write the layer as an archive that is the same on each machine."""
    found = contents(root)
    with tempfile.TemporaryDirectory() as folder:
        found |= compiled(found, Path(folder))
        with ZipFile(target, "w") as out:
            for name, path in sorted(found.items()):
                info = ZipInfo(f"python/{name}", (1980, 1, 1, 0, 0, 0))
                info.create_system, info.compress_type = 3, ZIP_STORED
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                out.writestr(info, path.read_bytes())


def bill_of_materials(version: str, layer: Path) -> dict[str, Any]:
    """Describe the layer in CycloneDX 1.6. It has no time, so the same layer has the same bill.

    Args:
        version: the version of the wheel.
        layer: the archive of the layer.

    """
    wheel = f"pkg:pypi/cdk-intake-ledger@{version}"
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    parts = [component(name) for name in DISTRIBUTIONS]
    about = {"type": "library", "bom-ref": wheel, "name": "cdk-intake-ledger", "version": version, "purl": wheel}
    archive = {
        "type": "file",
        "bom-ref": NAME,
        "name": NAME,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "components": parts,
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid5(NAMESPACE_URL, f"{wheel}#{digest}").urn,
        "version": 1,
        "metadata": {"component": about | {"licenses": [{"expression": "Apache-2.0"}]}},
        "components": [archive],
        "dependencies": [
            {"ref": wheel, "dependsOn": [NAME]},
            {"ref": NAME, "dependsOn": [part["bom-ref"] for part in parts]},
        ],
    }


def component(name: str) -> dict[str, Any]:
    """Describe an installed distribution, as its metadata do."""
    installed = distribution(name)
    about = installed.metadata
    # Before metadata 2.4, a short licence was the field `License`.
    licence = about["License-Expression"] if "License-Expression" in about else about["License"]
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{installed.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": installed.version,
        "licenses": [{"expression": licence}],
        "purl": purl,
    }


def compiled(sources: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Compile the sources into the folder: name in the layer, and file."""
    found = {}
    lines = []
    for name, path in sources.items():
        if name.endswith(".py"):
            where = Path(name)
            byte_code = f"{where.stem}.cpython-{PYTHON[0]}{PYTHON[1]}.pyc"
            target = where.parent / "__pycache__" / byte_code
            found[target.as_posix()] = folder / target
            lines.append(f"{path}\t/opt/python/{name}\t{folder / target}")
    # The byte code has the members of sets in the order of their hashes.
    subprocess.run(
        [sys.executable, "-c", _COMPILE],
        input="\n".join(lines),
        env=os.environ | {"PYTHONHASHSEED": "0"},
        text=True,
        check=True,
    )
    return found
