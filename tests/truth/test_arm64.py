"""Compiled wheels that are chosen on this machine run on Lambda's Arm processor: an emulator imports and uses them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cdk_intake_ledger.audit.join import DUCKDB
from cdk_intake_ledger.bundling.wheels import install, parse_requirements

ROOT = Path(__file__).parents[2]
MACHINE = ROOT / "build" / "arm64"
PILLOW = (ROOT / "examples" / "content" / "processor" / "requirements.txt").read_text().split()[0]
pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="Debian's packages bring Python for Arm")


def run(wheels: Path, code: str) -> "subprocess.CompletedProcess[str]":
    python = MACHINE / "root" / "usr" / "bin" / "python3.13"
    emulator = (MACHINE / "host" / "usr" / "bin" / "qemu-aarch64", "-L", MACHINE / "root")
    program = f"import sys\nsys.path.insert(0, {str(wheels)!r})\n{code}"
    return subprocess.run((*emulator, python, "-B", "-I", "-c", program), capture_output=True, text=True, check=False)


USES = {
    DUCKDB: "import duckdb; print(duckdb.sql('SELECT sum(i) FROM range(10) t(i)').fetchall()[0][0])",
    PILLOW: "from PIL import Image; print(sum(Image.new('RGB', (3, 3), (5, 0, 0)).resize((1, 1)).tobytes()) * 9)",
}


@pytest.mark.parametrize("requirement", USES)
def test_a_wheel_for_arm64_runs(requirement: str) -> None:
    """DuckDB is the layer of the scaled audit."""
    done = run(install(parse_requirements([requirement]), python="3.13", architecture="arm64"), USES[requirement])
    assert (done.stdout.strip(), done.returncode) == ("45", 0), done.stderr


def test_a_wheel_for_another_machine_does_not() -> None:
    """Else the emulator would show nothing."""
    wheels = install(parse_requirements([PILLOW]), python="3.13", architecture="x86_64")
    assert "ImportError" in run(wheels, USES[PILLOW]).stderr
