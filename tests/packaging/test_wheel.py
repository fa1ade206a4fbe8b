"""The wheel has the packages of the checkout, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from hashlib import sha256
from importlib.util import MAGIC_NUMBER, cache_from_source
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import hatch_build
import pytest
from packaging.utils import canonicalize_name

from cdk_intake_ledger.functions.layer import archive

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
    """The wheel has no examples, no tests but those for an account, and no folder of another package."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    packages = {
        "cdk_intake_ledger",
        "intake_ledger",
        "intake_ledger_cli",
        "intake_ledger_suite",
        "intake_ledger_testing",
    }
    assert {top for top in tops if not top.endswith(".dist-info")} == packages
    assert {"cdk_intake_ledger/__init__.py", "cdk_intake_ledger/py.typed", "intake_ledger/py.typed"} <= set(names)
    queries = {str(path.relative_to(ROOT / "lambda_src")) for path in (ROOT / "lambda_src").rglob("*.sql")}
    assert queries
    assert queries <= set(names)
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
        "intake_ledger_suite": "suite",
        "intake_ledger_testing": "tools",
    }
    for package, root in sources.items():
        for path in (ROOT / root / package).rglob("*.py"):
            assert path.relative_to(ROOT / root).as_posix() in names


@pytest.fixture(scope="module")
def layer(wheel: Path) -> ZipFile:
    """The runtime layer in the wheel."""
    if sys.version_info[:2] != hatch_build.PYTHON:
        pytest.skip("only a wheel that Python 3.13 builds has the layer")
    return ZipFile(BytesIO(ZipFile(wheel).read(hatch_build.NAME)))


@pytest.mark.failure_mode("F215")
def test_the_layer_of_the_wheel_has_byte_code_that_python_uses(layer: ZipFile, tmp_path: Path) -> None:
    """Python compiles nothing at a cold start, and does not compare the byte code with its source."""
    layer.extractall(tmp_path)
    names = layer.namelist()
    sources = [name for name in names if name.endswith(".py")]
    codes = {cache_from_source(name) for name in sources}
    assert codes == {name for name in names if name.endswith(".pyc")}
    for name in codes:
        head = layer.read(name)[:8]
        assert head[:4] == MAGIC_NUMBER
        assert int.from_bytes(head[4:], "little") == 1, "byte code with a hash that is not checked"
    for path in (tmp_path / "python" / "intake_ledger").rglob("*.py"):
        path.write_text("raise SystemExit('compiled')")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from intake_ledger import protocol; print(protocol.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "python")], check=True, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


@pytest.mark.failure_mode("F218")
def test_the_wheel_lists_what_its_layer_contains(wheel: Path, layer: ZipFile) -> None:
    """Each distribution in the layer is in the bill of materials, with its version and licence."""
    archive = ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
    bill = json.loads(archive.read(name))
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/cdk-intake-ledger@{name.split('-')[1].split('.dist')[0]}"
    (file,) = bill["components"]
    assert file["name"] == hatch_build.NAME
    assert file["hashes"] == [{"alg": "SHA-256", "content": sha256(archive.read(hatch_build.NAME)).hexdigest()}]
    listed = {(one["purl"], one["licenses"][0]["expression"]) for one in file["components"]}
    found = set()
    for path in layer.namelist():
        if path.endswith(".dist-info/METADATA"):
            about = message_from_bytes(layer.read(path))
            licence = about["License-Expression"] or about["License"]
            found.add((f"pkg:pypi/{canonicalize_name(about['Name'])}@{about['Version']}", licence))
    assert listed == found
    tops = {Path(path).parts[1].removesuffix(".py") for path in layer.namelist() if ".dist-info" not in path}
    assert tops == {"__pycache__", "intake_ledger", "aws_lambda_powertools", "typing_extensions"}


def test_the_layer_of_the_wheel_has_the_sources_of_a_checkout_and_licences(layer: ZipFile) -> None:
    """A deployment from a checkout runs the same code."""
    checkout = ZipFile(BytesIO(archive()))
    added = set(layer.namelist()) - set(checkout.namelist())
    for name in checkout.namelist():
        assert layer.read(name) == checkout.read(name), name
    others = sorted(name for name in added if not name.endswith(".pyc"))
    assert [name.rpartition("/")[2] for name in others if "typed" not in name] == [
        "METADATA", "WHEEL", "LICENSE", "LICENSE", "METADATA", "WHEEL", "LICENSE"
    ]  # fmt: skip
    assert "python/intake_ledger/LICENSE" in others
    infos = layer.infolist()
    assert {(info.external_attr >> 16, info.date_time, info.compress_type) for info in infos} == {
        (0o100644, (1980, 1, 1, 0, 0, 0), ZIP_STORED)
    }


def test_the_layer_of_the_wheel_is_the_same_from_each_folder(layer: ZipFile, tmp_path: Path) -> None:
    """Another hash would be another deployment."""
    root = tmp_path / "another" / "checkout"
    shutil.copytree(ROOT / "lambda_src", root / "lambda_src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", root / "LICENSE")
    hatch_build.build(root, tmp_path / "layer.zip")
    built = ZipFile(tmp_path / "layer.zip")
    assert built.namelist() == layer.namelist()
    assert [name for name in layer.namelist() if built.read(name) != layer.read(name)] == []


def test_checkout_and_wheel_give_the_same_assets(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """Another hash would be another deployment. The layer of the wheel is deployed as it was built."""

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

    assets = synthesise(installed)
    checkout = synthesise(ROOT / "constructs", ROOT / "lambda_src", ROOT / "tools")
    assert all(Path(origin).is_relative_to(installed) for origin in assets.pop("from"))
    assert all(Path(origin).is_relative_to(ROOT) for origin in checkout.pop("from"))
    assert assets["code"] == checkout["code"]
    if sys.version_info[:2] == hatch_build.PYTHON:
        digest = sha256(ZipFile(wheel).read(hatch_build.NAME)).hexdigest()
        assert assets["layers"] == [f"{sha256(digest.encode()).hexdigest()}.zip"]
    else:
        assert assets["layers"] == checkout["layers"]
