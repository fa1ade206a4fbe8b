"""Reads from a shared object's header for which machine it was built."""

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
    """The machine of a file that begins with these bytes, 20 at least; None for no shared object.

    Args:
        head: the beginning of a file.

    """
    if head[:4] in _MACH_O:
        return "macOS"
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return _ELF_MACHINES.get(number, f"ELF machine {number}")


def wrong_objects(files: Iterable[Path], architecture: str, *, compiled: bool) -> Iterator[WrongObject]:
    """Shared objects that keep the modules of these files from being loaded.

    Some distributions carry shared objects for several machines and load the right one. So an extension module is wrong
    if there is none of the same name for the function's machine, and another shared object if it comes with a wheel for
    this platform and none in the wheel is for the function's machine.

    Args:
        files: of one distribution, or of a folder.
        architecture: `arm64` or `x86_64`.
        compiled: whether they come from a wheel for one platform.

    """
    found: dict[tuple[Path, str], list[WrongObject]] = defaultdict(list)
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
            found[stem].append(WrongObject(path, machine))
    for stem, wrong in sorted(found.items()):
        if stem not in right and ((compiled and not right) or _is_extension(wrong[0].path)):
            yield wrong[0]


def _is_extension(path: Path) -> bool:
    """True if Python would import it: it has the function that makes the module."""
    return f"PyInit_{path.name.partition('.')[0]}".encode() in path.read_bytes()
