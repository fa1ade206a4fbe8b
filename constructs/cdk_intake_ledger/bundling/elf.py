"""Reads the machine of a shared object from its header."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# e_machine of the ELF header: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
_ELF_MACHINES = {3: "32-bit x86", 40: "32-bit ARM", 62: "x86_64", 183: "arm64"}
_MACH_O = {b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe"}


@dataclass(frozen=True)
class WrongObject:
    """A shared object that the function cannot load."""

    path: Path
    machine: str
    """The machine that it was built for."""


def machine_of(head: bytes) -> str | None:
    """The machine that a shared object was built for.

    Args:
        head: the first bytes of a file, at least 20.

    Returns:
        the machine; None if the file is not a shared object.

    """
    if head[:4] in _MACH_O:
        return "macOS"
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return _ELF_MACHINES.get(number, f"ELF machine {number}")


def wrong_objects(files: Iterable[Path], architecture: str, *, compiled: bool) -> Iterator[WrongObject]:
    """Shared objects that the function cannot load, although its modules need them.

    Some distributions have shared objects for several machines and load the right one. Therefore, an extension module
    is wrong if no other of the same name is for the function's machine. Another shared object is wrong if it is in a
    wheel for one platform, and nothing in that wheel is for the function's machine.

    Args:
        files: the files of one distribution, or of a folder.
        architecture: `arm64` or `x86_64`.
        compiled: whether the files are from a wheel for one platform.

    Yields:
        one wrong object for each module.

    """
    wrong_by_stem: dict[tuple[Path, str], list[WrongObject]] = defaultdict(list)
    right: set[tuple[Path, str]] = set()
    for path in files:
        if ".so" not in path.name or not path.is_file():
            continue
        with path.open("rb") as file:
            machine = machine_of(file.read(20))
        stem = (path.parent, path.name.partition(".")[0])
        if machine == architecture:
            right.add(stem)
        elif machine:
            wrong_by_stem[stem].append(WrongObject(path, machine))
    for stem, wrong in sorted(wrong_by_stem.items()):
        if stem not in right and ((compiled and not right) or _is_extension(wrong[0].path)):
            yield wrong[0]


def _is_extension(path: Path) -> bool:
    """True if Python can import the file: it has the function that makes the module."""
    return f"PyInit_{path.name.partition('.')[0]}".encode() in path.read_bytes()
