"""The bill of materials in the wheel is CycloneDX. checkov's environment has the validator, with the schema."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import hatch_build
import pytest

PYTHON = Path(__file__).parents[2] / "build" / "checkov" / "bin" / "python"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""


def errors(bill: bytes) -> str:
    """Return the errors that the validator finds."""
    done = subprocess.run([PYTHON, "-c", VALIDATE], input=bill, check=True, capture_output=True)
    return done.stdout.decode()


@pytest.mark.thorough
@pytest.mark.skipif(sys.version_info[:2] != hatch_build.PYTHON, reason="only Python 3.13 builds the layer")
def test_the_bill_of_materials_is_valid_cyclonedx(wheel: Path) -> None:
    """The names of the licences too are those of the schema."""
    if not PYTHON.exists():
        pytest.fail("checkov has an environment of its own: make build/checkov/.ready")
    archive = ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
    bill = archive.read(name)
    assert errors(bill) == "None\n"
    assert "'a' is not of type 'integer'" in errors(bill.replace(b'"version": 1,', b'"version": "a",'))
