"""The wheel has the packages of the checkout, and nothing else."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A stack in a new process, with our packages from one place. It prints the assets' hashes and the packages' files.
SYNTH = """
import json, sys
import cdk_intake_ledger, intake_ledger
from aws_cdk import App, Stack
from cdk_intake_ledger import IntakePipeline, Processor
app = App(builtin_cloud_formation_validation=False)
stack = Stack(app, "Stack")
IntakePipeline(stack, "Orders", processor=Processor.from_asset(sys.argv[1], entrypoint="orders:process"))
resources = app.synth().get_stack_by_name("Stack").template["Resources"].values()
layers = [one["Properties"]["Content"]["S3Key"] for one in resources if one["Type"] == "AWS::Lambda::LayerVersion"]
code = [one["Properties"]["Code"].get("S3Key") for one in resources if one["Type"] == "AWS::Lambda::Function"]
print(json.dumps({"layers": layers, "code": code, "from": [cdk_intake_ledger.__file__, intake_ledger.__file__]}))
"""


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in a folder, which comes before the editable installation on the path."""
    target = tmp_path_factory.mktemp("site")
    offline = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(wheel)], check=True)
    return target


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    """The wheel has no tests, no examples, and no folder of another package."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    packages = {"cdk_intake_ledger", "intake_ledger", "intake_ledger_cli", "intake_ledger_testing"}
    assert {top for top in tops if not top.endswith(".dist-info")} == packages
    ours = ("cdk_intake_ledger/pipeline.py", "cdk_intake_ledger/py.typed", "intake_ledger/py.typed")
    for expected in (*ours, "intake_ledger/audit/audit.sql"):
        assert expected in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_wheel_brings_the_command(wheel: Path) -> None:
    """The wheel has the command `intake-ledger`. Its dependencies are in the extra `cli`."""
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "intake-ledger = intake_ledger_cli:main" in archive.read(about).decode()


def test_every_module_of_the_sources_is_in_the_wheel(wheel: Path) -> None:
    """Each module of the checkout is installed."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {
        "cdk_intake_ledger": "constructs",
        "intake_ledger": "lambda_src",
        "intake_ledger_cli": "tools",
        "intake_ledger_testing": "tools",
    }
    for package, root in sources.items():
        for path in (ROOT / root / package).rglob("*.py"):
            assert path.relative_to(ROOT / root).as_posix() in names


def test_checkout_and_wheel_give_the_same_assets(installed: Path, tmp_path: Path) -> None:
    """Another hash would be another deployment."""

    def synthesise(*path: Path) -> dict[str, list[str]]:
        processors = ROOT / "tests" / "synth" / "processors" / "orders"
        done = subprocess.run(
            [sys.executable, "-c", SYNTH, str(processors)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    wheel = synthesise(installed)
    checkout = synthesise(ROOT / "constructs", ROOT / "lambda_src", ROOT / "tools")
    assert all(Path(origin).is_relative_to(installed) for origin in wheel.pop("from"))
    assert all(Path(origin).is_relative_to(ROOT) for origin in checkout.pop("from"))
    assert wheel == checkout
