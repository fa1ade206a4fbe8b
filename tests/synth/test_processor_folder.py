"""`Processor.from_asset` with a requirements.txt: wheels in the asset, and problems told together with all others."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Token
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger import IntakeConfigurationError, IntakePipeline, Processor
from cdk_intake_ledger.bundling import processor_folder
from tests.synth.build import new_app, new_stack, rules_in
from tests.wheel_maker import WheelFolder, only_index

SOURCE = "import one\nimport boto3\ndef process(change): ...\n"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WheelFolder]:
    """One index and one cache for all tests, so that uv installs the same wheels once."""
    with pytest.MonkeyPatch.context() as patched:
        made = only_index(tmp_path_factory.mktemp("uv"), patched)
        made.add("one", "1.0")
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "orders"
    made.mkdir()
    (made / "orders.py").write_text(SOURCE)
    (made / "requirements.txt").write_text("one==1.0\n")
    return made


def processor(folder: Path, **options: Any) -> Processor:
    return Processor.from_asset(folder, entrypoint="orders:process", **options)


def synthesised(out: Path, folder: Path, **options: Any) -> tuple[str, Path]:
    """The hash and the folder of the consumer's asset."""
    app = new_app(outdir=str(out))
    stack = new_stack(app=app)
    IntakePipeline(stack, "Orders", processor=processor(folder, **options))
    functions = app.synth().get_stack_by_name("Stack").template["Resources"].items()
    (key,) = (
        one["Properties"]["Code"]["S3Key"]
        for name, one in functions
        if one["Type"] == "AWS::Lambda::Function" and name.startswith("OrdersConsumer")
    )
    digest = key.removesuffix(".zip")
    return digest, out / f"asset.{digest}"


def test_the_wheels_are_in_the_asset_and_installed_once(
    tmp_path: Path, folder: Path, index: WheelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the folder's own files. Neither the same folder nor a change of its code installs anything again."""
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "orders.pyc").write_text("x")
    (folder / ".env").write_text("SECRET=x")
    (folder / "data").mkdir()
    (folder / "data" / "codes.csv").write_text("a;b\n")
    digest, asset = synthesised(tmp_path / "out", folder)
    files = {one.relative_to(asset).as_posix() for one in asset.rglob("*") if one.is_file()}
    assert {one for one in files if ".dist-info/" not in one} == {
        "orders.py",
        "one.py",
        "requirements.txt",
        "data/codes.csv",
    }
    monkeypatch.setattr(subprocess, "run", None)  # from now on, each attempt to run a command fails
    (folder / "__pycache__" / "orders.pyc").write_text("y")
    assert synthesised(tmp_path / "out", folder) == (digest, asset)
    (folder / "orders.py").write_text(SOURCE + "# changed\n")
    changed, asset = synthesised(tmp_path / "other", folder)
    assert changed != digest
    assert (asset / "orders.py").read_text().endswith("# changed\n")
    assert (asset / "one.py").is_file()


def test_uv_is_asked_for_the_functions_python_and_architecture(
    folder: Path, index: WheelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not for those of this machine."""
    seen: list[list[str]] = []
    run = subprocess.run

    def seeing(command: list[str], **options: Any) -> Any:
        seen.append(command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", seeing)
    x86 = lambda_.Architecture.X86_64
    assert processor(folder, runtime=lambda_.Runtime.PYTHON_3_12, architecture=x86).problems == ()
    (command,) = [one for one in seen if "--python-platform" in one]
    assert command[command.index("--python-version") + 1] == "3.12"
    assert command[command.index("--python-platform") + 1] == "x86_64-manylinux_2_34"


def test_all_problems_are_told_at_once(folder: Path, index: WheelFolder) -> None:
    """The folder's, the requirements' and the pipeline's."""
    (folder / "requirements.txt").write_text("pandas\none==1.0\nnumpy>=2\n")
    with pytest.raises(IntakeConfigurationError) as caught:
        IntakePipeline(
            new_stack(),
            "Orders",
            processor=Processor.from_asset(folder, entrypoint="orders:proces", memory_size=64),
        )
    beginnings = [re.split(r"[,:] (?=which|the functions|it must)", problem)[0] for problem in caught.value.problems]
    assert beginnings == [
        f"processor function 'proces' does not exist in '{folder / 'orders.py'}'",
        f"processor path '{folder}': requirements.txt line 1 is 'pandas'",
        f"processor path '{folder}': requirements.txt line 3 is 'numpy>=2'",
        "memory_size is 64",
    ]


def _hide(folder: Path) -> None:
    (folder / "one.py").write_text("")


def _package(folder: Path) -> None:
    (folder / "one").mkdir()
    (folder / "one" / "__init__.py").write_text("")


def _missing(folder: Path) -> None:
    (folder / "orders.py").write_text("import PIL\ndef process(change): ...\n")


def _ours(folder: Path) -> None:
    (folder / "requirements.txt").write_text("one==1.0\nours==1.0\n")


def _this_library(folder: Path) -> None:
    (folder / "requirements.txt").write_text("one==1.0\ncdk-intake-ledger==0.1.0\n")


def _powertools(folder: Path) -> None:
    (folder / "requirements.txt").write_text("one==1.0\naws-lambda-powertools==2.43\n")


@pytest.mark.parametrize(
    ("change", "rule", "text"),
    [
        (_hide, "file-in-folder-and-wheel", "has 'one.py', and requirements.txt installs it too"),
        (_package, "file-in-folder-and-wheel", "has 'one', and requirements.txt installs it too"),
        (
            _missing,
            "import-not-installed",
            "line 1 imports 'PIL': neither the folder, its requirements.txt nor Lambda has this module. Add pillow==",
        ),
        (_this_library, "runtime-hidden", "requirements.txt line 2 has intake_ledger"),
        (_powertools, "powertools-version", "installs aws-lambda-powertools 2.43"),
        (_ours, "runtime-hidden", "requirements.txt has intake_ledger"),
    ],
)
def test_what_would_fail_in_lambda_is_refused(
    folder: Path, index: WheelFolder, change: Callable[[Path], None], rule: str, text: str
) -> None:
    """With the file and the fix."""
    index.add("ours", "1.0", {"intake_ledger/__init__.py": ""})
    index.add("aws_lambda_powertools", "2.43")
    change(folder)
    (problem,) = processor(folder).problems
    assert text in problem
    assert rules_in(problem) == [rule]


def test_more_than_lambda_unpacks_is_refused(folder: Path, index: WheelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda would say so after the upload."""
    monkeypatch.setattr(processor_folder, "MOST_BYTES", 100)
    (problem,) = processor(folder).problems
    assert "Lambda takes 250 MB with all layers" in problem
    assert rules_in(problem) == ["code-size"]


def test_an_import_without_any_requirements_is_refused(folder: Path) -> None:
    """The file was forgotten. Layers, and a path of the team's, may have the module."""
    (folder / "requirements.txt").unlink()
    (problem,) = processor(folder).problems
    assert problem == (
        f"processor module '{folder / 'orders.py'}' line 1 imports 'one': neither the folder nor Lambda has this "
        f"module. Pin it in '{folder / 'requirements.txt'}' (one==<version>), or pass the layer that has it "
        "[intake-ledger:import-without-requirements]"
    )
    assert rules_in(problem) == ["import-without-requirements"]
    arn = "arn:aws:lambda:eu-central-1:111122223333:layer:own:1"
    layer = lambda_.LayerVersion.from_layer_version_arn(new_stack(), "Layer", arn)
    assert processor(folder, layers=[layer]).problems == ()
    assert processor(folder, environment={"PYTHONPATH": "/mnt/modules"}).problems == ()
    (folder / "orders.py").write_text("import sys\nsys.path.append('/mnt/modules')\n" + SOURCE)
    assert processor(folder).problems == ()


def test_a_platform_without_wheels_is_refused_without_uv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv would install something else, or nothing."""
    monkeypatch.setattr(subprocess, "run", None)
    (problem,) = processor(folder, runtime=lambda_.Runtime.PYTHON_3_11).problems
    assert problem.startswith("processor runtime is 'python3.11'")
    later = lambda_.Runtime(Token.as_string({"Ref": "Later"}), lambda_.RuntimeFamily.PYTHON)
    (problem,) = processor(folder, runtime=later).problems
    assert rules_in(problem) == ["wheels-platform"]
