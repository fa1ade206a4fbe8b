"""The runtime layer stands alone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import jmespath  # type: ignore[import-untyped]
import pytest
from aws_cdk import App, Stack

from cdk_intake_ledger.functions import layer as layers
from cdk_intake_ledger.functions.layer import archive


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Each test makes the archive itself, and leaves nothing of it to others."""
    archive.cache_clear()
    yield
    archive.cache_clear()


@pytest.fixture(scope="module")
def packed() -> ZipFile:
    return ZipFile(BytesIO(archive()))


@pytest.fixture(scope="module")
def layer(packed: ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("layer")
    packed.extractall(target)
    return target / "python"


def alone(layer: Path, code: str) -> str:
    """Run code with the standard library and the layer, and nothing else of this environment."""
    start = f"import sys; sys.path.insert(0, {str(layer)!r})\n"
    # -I and -S: neither the working directory, nor the environment's variables, nor its site-packages.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", start + code], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_powertools_logs_and_counts_from_the_layer_alone(layer: Path, tmp_path: Path) -> None:
    """A pruned copy of Powertools failed at import, so this is looked at on its own; jmespath is Lambda's."""
    shutil.copytree(Path(jmespath.__file__).parent, tmp_path / "jmespath")
    output = alone(
        layer,
        f"sys.path.append({str(tmp_path)!r})\n"
        "from aws_lambda_powertools import Logger, Metrics\n"
        "from aws_lambda_powertools.metrics import MetricUnit\n"
        "metrics = Metrics(namespace='N', service='s')\n"
        "metrics.add_metric(name='Accepted', unit=MetricUnit.Count, value=1)\n"
        "metrics.flush_metrics()\n"
        "Logger(service='s').info('verdict', extra={'key': 'a'})\n"
        "import aws_lambda_powertools; print(aws_lambda_powertools.__file__)",
    )
    assert '"Accepted":[1.0]' in output
    assert '"message":"verdict"' in output
    assert str(layer) in output


def test_the_team_finds_what_it_imports_in_the_layer(layer: Path) -> None:
    """`from intake_ledger import ...`, without boto3 or the CDK in sight."""
    output = alone(
        layer, "from intake_ledger import Commit, ObjectChange, Unprocessable; print(ObjectChange.__module__)"
    )
    assert output.startswith("intake_ledger")


def test_the_layer_holds_python_and_the_audits_query_and_nothing_else(layer: Path, packed: ZipFile) -> None:
    """An allow-list: neither caches, nor metadata, nor compiled modules."""
    others = [name for name in packed.namelist() if not name.endswith(".py")]
    sources = Path(__file__).parents[2] / "lambda_src"
    assert others == [f"python/{path.relative_to(sources)}" for path in sources.rglob("*.sql")]
    assert sorted(path.name for path in layer.iterdir()) == [
        "aws_lambda_powertools",
        "intake_ledger",
        "typing_extensions.py",
    ]


def test_nothing_of_the_machine_is_in_the_archive(packed: ZipFile) -> None:
    """Modes, times, the order of a folder's entries and the release of zlib are the same everywhere; and Lambda's own
    user may read all of it.
    """
    infos = packed.infolist()
    assert {info.external_attr >> 16 for info in infos} == {0o100644}
    assert {(info.date_time, info.create_system, info.compress_type) for info in infos} == {
        ((1980, 1, 1, 0, 0, 0), 3, ZIP_STORED)
    }
    names = [info.filename for info in infos]
    assert names == sorted(set(names))


def test_what_lies_about_does_not_change_the_layer(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches, editors' droppings and file modes are the machine's, not the layer's: not a byte is different."""
    expected = archive()
    copy = tmp_path / "intake_ledger"
    for path in sorted((layer / "intake_ledger").rglob("*.[ps][yq]*"), reverse=True):
        target = copy / path.relative_to(layer / "intake_ledger")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(0o600)
        os.utime(target, (0, 0))
    (copy / ".DS_Store").write_text("x")
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "ledger.cpython-313.pyc").write_bytes(b"x")
    origin = layers._origin
    monkeypatch.setattr(layers, "_origin", lambda module: str(copy) if module == layers.PACKAGE else origin(module))
    archive.cache_clear()
    assert archive() == expected


@pytest.mark.parametrize("staging", [True, False], ids=["staged", "not staged"])
def test_all_pipelines_of_an_app_share_one_asset(tmp_path: Path, staging: bool) -> None:
    """However many there are, the runtime is uploaded once, and as it was packed; `--no-staging` finds it too."""
    context = {} if staging else {"aws:cdk:disable-asset-staging": True}
    app = App(outdir=str(tmp_path), context=context, builtin_cloud_formation_validation=False)
    for name in ("One", "Two"):
        for id_ in ("A", "B"):
            layers.runtime_layer(Stack(app, f"{name}{id_}"))
    app.synth()
    (asset,) = tmp_path.glob("asset.*")
    assert asset.suffix == ".zip"
    assert asset.read_bytes() == archive()
    manifest = json.loads((tmp_path / "OneA.assets.json").read_text())
    assert [
        tmp_path / file["source"]["path"] for file in manifest["files"].values() if "zip" in file["source"]["path"]
    ] == [asset]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without dependencies fails at synthesis, with the way out, and not in Lambda."""
    monkeypatch.setattr(layers, "MODULES", (*layers.MODULES, "no_such_module"))
    with pytest.raises(ModuleNotFoundError, match=r"no_such_module is not installed .* with its dependencies"):
        archive()
