"""requirements.txt and the lists of the other environments: exact versions, with the hashes of their files."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.wheel_maker import only_index

ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "requirements.txt"
LISTS = [LOCKED, *sorted((ROOT / "scripts").glob("*-requirements.txt"))]


def pins(path: Path) -> dict[str, tuple[Requirement, list[str]]]:
    """The requirements of a list by name, with their hashes. Any other content is an error."""
    lines = re.sub(r"(?m)^#.*\n", "", path.read_text()).replace("\\\n", "").splitlines()
    found: dict[str, tuple[Requirement, list[str]]] = {}
    for line in lines:
        requirement, *hashes = re.split(r"\s+--hash=sha256:", line)
        parsed = Requirement(requirement)
        found[canonicalize_name(parsed.name)] = parsed, hashes
    assert len(found) == len(lines)
    return found


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_each_pin_is_a_version_and_the_hashes_of_its_files(path: Path) -> None:
    """A list names no index, no address and no folder. A project has a wheel and most often a source distribution."""
    for requirement, hashes in pins(path).values():
        assert [one.operator for one in requirement.specifier] == ["=="], requirement
        assert requirement.url is None, requirement
        assert hashes, requirement
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes), requirement


def test_the_pins_are_those_of_the_project() -> None:
    """`make lock` was run after the last change of the requirements in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = pins(LOCKED)
    for requirement in map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["dev"]]):
        (pin,) = locked[requirement.name][0].specifier
        assert pin.version in requirement.specifier, requirement


def test_every_list_is_installed_with_its_hashes() -> None:
    """Without the option, pip would accept a pin that has no hash."""
    text = (ROOT / "Makefile").read_text() + (ROOT / "scripts" / "setup.sh").read_text()
    commands = re.findall(r"pip install .* -r .*", text)
    assert len(commands) == 3
    assert all("--require-hashes" in command for command in commands)


@pytest.mark.failure_mode("F219")
def test_another_file_than_the_locked_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index offers a wheel with the name and the version of a pin. The command is that of `make setup`."""
    requirement, hashes = pins(LOCKED)["six"]
    (pin,) = requirement.specifier
    only_index(tmp_path, monkeypatch).add("six", pin.version)
    (command,) = re.findall(r"-m pip install .* -r requirements.txt", (ROOT / "scripts" / "setup.sh").read_text())
    install = [sys.executable, *shlex.split(command), "--target", "installed"]

    def installed(line: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "requirements.txt").write_text(line)
        return subprocess.run(install, cwd=tmp_path, check=False, capture_output=True, text=True)

    refused = installed(f"{requirement} " + " ".join(f"--hash=sha256:{digest}" for digest in hashes))
    assert refused.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr
    assert "hashes are required" in installed(f"{requirement}\n").stderr.lower()
    assert not (tmp_path / "installed").exists()
