"""Wheels made by hand, in a folder that pip and uv take for their only package index."""

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email import message_from_bytes
from html import escape
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MACHINES = {"arm64": 183, "x86_64": 62}
"""e_machine of an ELF header."""


class WheelFolder:
    """A folder of wheels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        tag: str = "py3-none-any",
        requires: Sequence[str] = (),
        python: str = "",
    ) -> Path:
        """A wheel with these files; without any, with a module of the distribution's name."""
        about = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
        metadata += f"Requires-Python: {python}\n" if python else ""
        content: dict[str, str | bytes] = dict(files or {f"{name}.py": f"VERSION = {version!r}\n"})
        content[f"{about}/METADATA"] = metadata
        content[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
        made = self.folder / f"{name}-{version}-{tag}.whl"
        with zipfile.ZipFile(made, "w") as archive:
            record = ""
            for path, text in content.items():
                data = text.encode() if isinstance(text, str) else text
                archive.writestr(path, data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record += f"{path},sha256={digest},{len(data)}\n"
            archive.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
        return made

    def source(self, name: str, version: str) -> None:
        """A source distribution, of which uv needs no more than the name here."""
        (self.folder / f"{name}-{version}.tar.gz").write_bytes(b"")


def only_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> WheelFolder:
    """Let pip and uv see nothing but this folder, and use an empty cache."""
    wheels = folder / "index"
    wheels.mkdir(parents=True)
    for name, value in (
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(wheels)),
        ("PIP_CONFIG_FILE", "/dev/null"),
        ("CDK_INTAKE_LEDGER_CACHE", str(folder / "cache")),
    ):
        monkeypatch.setenv(name, value)
    return WheelFolder(wheels)


def repack(installed: Distribution, folder: Path) -> Path:
    """The wheel that a distribution was installed from: its files without the notes of pip."""
    made = folder / f"{installed.metadata['Name'].replace('-', '_')}-{installed.version}-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(made, "w") as archive:
        for file in installed.files or ():
            written = file.suffix == ".pyc" or file.name in {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"}
            if written or file.name in installed.entry_points.names:  # pip makes the commands from the entry points
                continue
            # Such as the program of uv.
            name = f"{made.stem.removesuffix('-py3-none-any')}.data/scripts/{file.name}"
            name = name if ".." in file.parts else file.as_posix()
            archive.write(str(installed.locate_file(file)), name)
            record += f"{name},,\n"
        about = next(file.parts[0] for file in installed.files or () if file.name == "METADATA")
        archive.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
    return made


def write_simple_index(folder: Path) -> str:
    """Write the pages of an index as PyPI's for the wheels of a folder (PEP 503), and return its address."""
    pages: dict[str, str] = {}
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            python = message_from_bytes(archive.read(about)).get("Requires-Python", "")
        with wheel.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        name = canonicalize_name(wheel.name.partition("-")[0])
        required = f'data-requires-python="{escape(python)}"'
        link = f'<a href="../../{wheel.name}#sha256={digest}" {required}>{wheel.name}</a>\n'
        pages[name] = pages.get(name, "<!DOCTYPE html>\n") + link
    for project, page in pages.items():
        (folder / "simple" / project).mkdir(parents=True)
        (folder / "simple" / project / "index.html").write_text(page)
    return (folder / "simple").as_uri()


def needed(requires: Iterable[str], extras: Iterable[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """The installed distributions that these requirements need, at any depth."""
    environments = [{"extra": extra} for extra in ("", *extras)]
    for requirement in map(Requirement, requires):
        marker = requirement.marker
        if marker is None or any(marker.evaluate(one) for one in environments):
            name = canonicalize_name(requirement.name)
            fresh = name not in found
            found[name] = distribution(name)
            if fresh or requirement.extras:
                needed(found[name].requires or (), requirement.extras, found)
    return found
