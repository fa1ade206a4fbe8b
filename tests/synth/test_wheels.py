"""Wheels for Lambda are installed at synthesis, without Docker: the right ones, once, or with a reason why not."""

import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cdk_intake_ledger.bundling.wheels import MACHINES, WheelError, _tidy, cache_folder, install, parse_requirements
from tests.synth.build import rules_in
from tests.wheel_maker import MACHINES as ELF_MACHINES
from tests.wheel_maker import WheelFolder, only_index

# uv runs once or more in each test. `tests/synth/test_processor_folder.py` has what `make test` needs of it.
pytestmark = pytest.mark.thorough

OTHER = "arm64" if platform.machine() in ("x86_64", "AMD64") else "x86_64"
"""Not the architecture of this machine."""
MAC = "cp313-cp313-macosx_11_0_arm64"
NO_WHEEL = "cannot be installed for Python 3.13 on Linux arm64"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelFolder:
    return only_index(tmp_path, monkeypatch)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run."""
    seen: list[list[str]] = []
    run = subprocess.run

    def counted(command: list[str], **options: Any) -> Any:
        seen.append(command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    return seen


def uv_runs(commands: list[list[str]]) -> int:
    return sum("--python-platform" in command for command in commands)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".dist-info"))


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def installed(*lines: str, python: str = "3.13", architecture: str = "arm64") -> Path:
    return install(parse_requirements(lines), python=python, architecture=architecture)


def refused(*lines: str, python: str = "3.13", architecture: str = "arm64") -> tuple[str, ...]:
    with pytest.raises(WheelError) as caught:
        installed(*lines, python=python, architecture=architecture)
    return caught.value.problems


def test_a_missing_wheel_of_a_dependency_is_named(index: WheelFolder) -> None:
    """No line is at fault; the dependency is."""
    index.add("top", "1.0", requires=["below==1.0"])
    index.add("below", "1.0", tag="cp313-cp313-win_amd64")
    (problem,) = refused("top==1.0")
    assert problem.startswith(f"requirements {NO_WHEEL}: No solution found")
    assert "below==1.0 has no" in problem
    assert "win_amd64" in problem
    assert rules_in(problem) == ["wheels-missing"]


def test_an_index_that_cannot_be_reached_is_no_missing_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team without a network would look for a wrong name."""
    only_index(tmp_path, monkeypatch)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    # Port 1 is reserved, and nothing listens there.
    (problem,) = refused("--index-url http://127.0.0.1:1/simple", "one==1.0")
    assert "http://127.0.0.1:1/simple/one/" in problem
    assert rules_in(problem) == ["wheels-missing"]


def test_versions_that_exclude_each_other_are_named(index: WheelFolder) -> None:
    """With uv's own reason."""
    index.add("top", "1.0", requires=["below==2.0"])
    index.add("below", "1.0")
    index.add("below", "2.0")
    (problem,) = refused("top==1.0", "below==1.0")
    assert "Because all versions of top depend on below==2.0 and you require top==1.0" in problem
    assert rules_in(problem) == ["wheels-missing"]


def test_a_compiled_wheel_of_the_real_index_is_for_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the index that pip is configured with, and not made by hand."""
    monkeypatch.setenv("CDK_INTAKE_LEDGER_CACHE", str(tmp_path))
    for architecture in ("arm64", "x86_64"):
        (library,) = installed("markupsafe==3.0.3", architecture=architecture).rglob("*.so")
        assert int.from_bytes(library.read_bytes()[18:20], "little") == ELF_MACHINES[architecture]


def test_a_home_that_cannot_be_written_to_is_no_obstacle(index: WheelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build servers have such users."""
    index.add("one", "1.0")
    file = index.folder / "file"
    file.write_text("")
    monkeypatch.delenv("CDK_INTAKE_LEDGER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert names(installed("one==1.0")) == ["one.py"]


def test_a_faster_synthesis_beside_this_one_is_no_failure(
    index: WheelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have installed the same."""
    index.add("one", "1.0")
    original = Path.rename

    def beaten(self: Path, target: Path) -> Path:
        target.mkdir()
        (target / "one.py").write_text("theirs")
        return original(self, target)

    monkeypatch.setattr(Path, "rename", beaten)
    assert (installed("one==1.0") / "one.py").read_text() == "theirs"


def test_versions_that_are_left_open_are_named(index: WheelFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Another machine, or next month, may get others."""
    index.add("top", "1.0", requires=["below"])
    index.add("below", "1.0")
    installed("top==1.0")
    assert "requirements leaves these versions open, pin them: below==1.0\n" in capsys.readouterr().err
    installed("top==1.0", "below==1.0")
    assert "open" not in capsys.readouterr().err


@pytest.mark.failure_mode("F423")
def test_the_same_pins_are_installed_once(index: WheelFolder, runs: list[list[str]]) -> None:
    """Not again for another order of the lines, and again for another machine. Console scripts with this machine's path
    in them, and uv's notes about this machine, are left out.
    """
    index.add("one", "1.0", {"one.py": "", "one-1.0.data/scripts/one": "#!python\n"})
    index.add("bins", "1.0", {"bin/__init__.py": ""})
    first = installed("one==1.0")
    about = [f"one-1.0.dist-info/{name}" for name in ("INSTALLER", "METADATA", "RECORD", "REQUESTED", "WHEEL")]
    assert files_in(first) == [*about, "one.py"]
    assert installed("# again", "ONE == 1.0") == first
    assert uv_runs(runs) == 1
    both = installed("one==1.0", "bins==1.0", architecture="x86_64")
    assert names(both) == ["bin", "one.py"]
    assert (both / "bin" / "__init__.py").exists()
    assert installed("bins==1.0", "one==1.0", architecture="x86_64") == both
    assert uv_runs(runs) == 2


def test_each_machine_and_python_gets_its_own_wheel(index: WheelFolder) -> None:
    """The machine that runs uv does not count. An old tag of the C library is as good as a new one."""
    for python in ("312", "313"):
        for tag in (
            "manylinux_2_28_aarch64",
            "manylinux1_x86_64",
            "macosx_11_0_arm64",
            "win_amd64",
            "musllinux_1_2_x86_64",
        ):
            index.add("fast", "1.0", {f"fast_{python}_{tag}.py": ""}, tag=f"cp{python}-cp{python}-{tag}")
    assert names(installed("fast==1.0", architecture="x86_64")) == ["fast_313_manylinux1_x86_64.py"]
    assert names(installed("fast==1.0", python="3.12")) == ["fast_312_manylinux_2_28_aarch64.py"]


@pytest.mark.failure_mode("F421")
def test_the_newest_release_for_lambdas_c_library_is_chosen(index: WheelFolder) -> None:
    """Amazon Linux 2023 has version 2.34. With an older one, a dependency without a pin would be an older release."""
    index.add("top", "1.0", requires=["below"])
    for version, glibc in (("1.0", 17), ("2.0", 34), ("3.0", 35)):
        index.add("below", version, tag=f"cp313-cp313-manylinux_2_{glibc}_aarch64")
    assert (installed("top==1.0") / "below-2.0.dist-info").is_dir()


def test_a_line_that_has_no_wheel_is_named_in_the_words_of_uv(index: WheelFolder) -> None:
    """A later synthesis tries again: nothing is kept."""
    index.add("compiled", "1.0", tag=MAC)
    index.source("sources", "1.0")
    index.add("there", "1.0")
    for line, text in {
        "compiled==1.0": "macosx_11_0_arm64",
        "sources==1.0": "no usable wheels",
        "there==2.0": "no version of there==2.0",
        "nowhere==1.0": "nowhere was not found",
    }.items():
        (problem,) = refused(line)
        assert problem.startswith(f"requirements {NO_WHEEL}: ")
        assert text in problem
        assert rules_in(problem) == ["wheels-missing"]
    assert list(cache_folder().iterdir()) == []


def test_markers_are_evaluated_for_lambda_and_not_for_this_machine(index: WheelFolder) -> None:
    """A Mac would leave out what Lambda needs."""
    index.add("top", "1.0", requires=["arm; platform_machine == 'aarch64'", "intel; platform_machine == 'x86_64'"])
    index.add("arm", "1.0", requires=["below; python_version == '3.11'"])
    index.add("intel", "1.0", requires=["below; python_version == '3.11'"])
    index.add("below", "1.0")
    expected = {"arm64": "arm.py", "x86_64": "intel.py"}[OTHER]
    assert names(installed("top==1.0", python="3.11", architecture=OTHER)) == sorted([expected, "below.py", "top.py"])


@pytest.mark.failure_mode("F422")
def test_with_hashes_nothing_without_one_is_installed(index: WheelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not what only another platform needs. uv's variable against hashes does not count."""
    wheel = index.add("top", "1.0", requires=[f"below; platform_machine == '{MACHINES[OTHER]}'"])
    index.add("below", "1.0")
    line = f"top==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"
    constraints = index.folder.parent / "constraints.txt"
    constraints.write_text("other<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    monkeypatch.setenv("UV_NO_VERIFY_HASHES", "1")
    (problem,) = refused(line, architecture=OTHER)
    assert "requirements cannot be installed" in problem
    assert "below" in problem
    this = "x86_64" if OTHER == "arm64" else "arm64"
    assert names(installed(line, architecture=this)) == ["top.py"]
    (problem,) = refused(f"top==1.0 --hash=sha256:{'0' * 64}", architecture=this)
    assert "Hash mismatch for `top==1.0`" in problem
    assert rules_in(problem) == ["wheels-missing"]


def test_a_python_without_uv_is_named(index: WheelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without dependencies has none."""
    index.add("one", "1.0")
    monkeypatch.setitem(sys.modules, "uv", None)
    (problem,) = refused("one==1.0")
    assert f"requirements cannot be installed: {sys.executable} has no uv" in problem
    assert rules_in(problem) == ["uv-missing"]


def test_settings_for_other_installations_and_the_working_directory_do_not_count(
    index: WheelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip may install for the user, uv into the system's Python, and the app's own project may need another uv."""
    index.add("one", "1.0")
    monkeypatch.setenv("PIP_USER", "1")
    for name in ("UV_SYSTEM_PYTHON", "UV_NO_BINARY", "UV_COMPILE_BYTECODE", "UV_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UV_PYTHON", "3.9")
    (tmp_path / "pyproject.toml").write_text("[tool.uv]\nrequired-version = '<0.1'\n")
    monkeypatch.chdir(tmp_path)
    assert names(installed("one==1.0")) == ["one.py"]


def test_what_lambda_has_needs_no_pin(index: WheelFolder) -> None:
    """It is left to Lambda. What a distribution needs is installed with it, in the version that it needs."""
    index.add("boto3", "1.40")
    index.add("user", "1.0", requires=["boto3>=1.20"])
    index.add("alone", "1.0")
    assert names(installed("alone==1.0", "boto3")) == ["alone.py"]
    assert names(installed("user==1.0", "boto3")) == ["boto3.py", "user.py"]


def test_what_nobody_uses_leaves_the_cache(index: WheelFolder) -> None:
    """A month after its last use."""
    index.add("one", "1.0")
    used, unused = installed("one==1.0"), cache_folder() / "unused"
    unused.mkdir()
    month = time.time() - 31 * 86_400
    for folder in (unused, used):
        os.utime(folder, (month, month))
    assert installed("one==1.0") == used
    _tidy(cache_folder())
    assert list(cache_folder().iterdir()) == [used]
