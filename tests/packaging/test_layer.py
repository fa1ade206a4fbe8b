"""The runtime layer stands alone."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from cdk_intake_ledger import runtime_layer
from cdk_intake_ledger.runtime_layer import stage


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("layer")
    # As on a machine that keeps new files to their owner: Lambda's own user has to read them all the same.
    before = os.umask(0o077)
    try:
        stage(target)
    finally:
        os.umask(before)
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


def test_powertools_logs_and_counts_from_the_layer_alone(layer: Path) -> None:
    """A pruned copy of Powertools failed at import, so this is looked at on its own."""
    said = alone(
        layer,
        "from aws_lambda_powertools import Logger, Metrics\n"
        "from aws_lambda_powertools.metrics import MetricUnit\n"
        "metrics = Metrics(namespace='N', service='s')\n"
        "metrics.add_metric(name='Accepted', unit=MetricUnit.Count, value=1)\n"
        "metrics.flush_metrics()\n"
        "Logger(service='s').info('verdict', extra={'key': 'a'})\n"
        "import aws_lambda_powertools; print(aws_lambda_powertools.__file__)",
    )
    assert '"Accepted":[1.0]' in said
    assert '"message":"verdict"' in said
    assert str(layer) in said


def test_the_team_finds_what_it_imports_in_the_layer(layer: Path) -> None:
    """`from intake_ledger import ...`, without boto3 or the CDK in sight."""
    said = alone(layer, "from intake_ledger import Commit, ObjectChange, Unprocessable; print(ObjectChange.__module__)")
    assert said.startswith("intake_ledger")


def test_the_layer_holds_python_and_nothing_else(layer: Path) -> None:
    """An allow-list: neither caches, nor metadata, nor compiled modules; the same modes everywhere."""
    files = [path for path in layer.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".py"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}
    assert sorted(path.name for path in layer.iterdir()) == [
        "aws_lambda_powertools",
        "intake_ledger",
        "jmespath",
        "typing_extensions.py",
    ]


def test_what_lies_about_does_not_change_the_layer(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches, editors' droppings and file modes are the machine's, not the layer's."""
    copy = tmp_path / "intake_ledger"
    for path in (layer / "intake_ledger").rglob("*.py"):
        target = copy / path.relative_to(layer / "intake_ledger")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(0o600)
        os.utime(target, (0, 0))
    (copy / ".DS_Store").write_text("x")
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "ledger.cpython-313.pyc").write_bytes(b"x")
    monkeypatch.setattr(runtime_layer, "_package_root", lambda: copy)
    stage(tmp_path / "again")
    assert contents(tmp_path / "again" / "python") == contents(layer)


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mode) for path in files}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PACKAGE", "intake_ledger_gone", "package intake_ledger_gone is not installed"),
        ("DISTRIBUTIONS", ("no-such-distribution",), "distribution no-such-distribution is not installed"),
    ],
)
def test_what_is_missing_is_named(
    name: str, value: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without dependencies fails at synthesis, with the way out, and not in Lambda."""
    monkeypatch.setattr(runtime_layer, name, value)
    with pytest.raises(ModuleNotFoundError, match=said):
        stage(tmp_path)


def test_a_distribution_that_lists_no_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own editable installation is such a one: it would give an empty layer, silently."""
    monkeypatch.setattr(runtime_layer, "DISTRIBUTIONS", ("cdk-intake-ledger",))
    files = distribution("cdk-intake-ledger").files or []
    if any(file.suffix == ".py" for file in files):
        pytest.skip("installed from a wheel here")
    with pytest.raises(ModuleNotFoundError, match="install it from a wheel"):
        stage(tmp_path)
