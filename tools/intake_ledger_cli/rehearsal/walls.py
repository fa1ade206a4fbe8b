"""Keeps a process from all that cannot be captured: the network, other programs, and files of others.

Two walls, each for itself. Python's audit events name the thing that was tried. A filter of the kernel also stops code
that is written in C, such as drivers of databases: the process dies, and the trace names the line. Neither can be taken
down again.
"""

import ctypes
import faulthandler
import os
import platform
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

SHARED = Path("/tmp")  # noqa: S108 - the place that Lambda gives to processors
NO_KERNEL_FILTER = (
    "it needs Linux on x86_64 or arm64, whose kernel can keep the code from the network: run it in a container or in "
    "AWS CloudShell"
)
_ADDRESS, _HOST, _PROGRAM = "connect to {}", "look up the host {}", "start the program {}"
_EVENTS: dict[str, tuple[str, int | None]] = {
    "socket.connect": (_ADDRESS, 1),
    "socket.bind": ("listen at {}", 1),
    "socket.sendto": ("send to {}", 1),
    "socket.sendmsg": ("send to {}", 1),
    "socket.getaddrinfo": (_HOST, 0),
    "socket.gethostbyname": (_HOST, 0),
    "socket.gethostbyaddr": (_HOST, 0),
    "socket.getnameinfo": (_HOST, 0),
    "subprocess.Popen": (_PROGRAM, 0),
    "os.system": (_PROGRAM, 0),
    "os.exec": (_PROGRAM, 0),
    "os.posix_spawn": (_PROGRAM, 0),
    "os.spawn": (_PROGRAM, 1),
    "pty.spawn": (_PROGRAM, 0),
    "os.fork": ("start a process", None),
    "os.forkpty": ("start a process", None),
    "os.kill": ("send a signal to process {}", 0),
    "os.killpg": ("send a signal to process {}", 0),
}
"""Audit events that are refused: the words for each, and the place of its object among the arguments."""
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
"""Audit events of changed files: the places of each path and of the descriptor of its folder."""
_NO_FILES: dict[str, tuple[str | bytes, ...]] = {"sqlite3.connect": (":memory:", b":memory:", "", b"")}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Refused(BaseException):
    """The code has tried a thing that cannot be captured. This is no Exception, because retries would swallow one."""


class Walls:
    """The walls of a process. `raise_audit` and `raise_kernel` put them up for good."""

    def __init__(self, scratch: Path, code: Path) -> None:
        """Make them.

        Args:
            scratch: the folder in which the code may write.
            code: the folder of the code, for the positions in texts.

        """
        self._scratch, self._code = scratch.resolve(), code.resolve()
        self._made: set[Path] = set()
        self.tried: list[str] = []
        """Each refused thing, also if the code has caught the error."""

    def raise_audit(self) -> None:
        """Refuse what Python reports."""
        sys.addaudithook(self._audit)

    def raise_kernel(self, trace: IO[str]) -> None:
        """Let the kernel end this process if it tries the network or another program.

        Args:
            trace: gets the line of the code then.

        Raises:
            OSError: The kernel has no such filter.

        """
        faulthandler.register(signal.SIGSYS, file=trace, all_threads=False, chain=True)
        _install_filter()

    def clear(self) -> None:
        """Remove all that the last call has left on the disk, so that no call sees the files of another one."""
        made, self._made = self._made, set()
        for path in sorted(made, key=lambda one: len(one.parts)):
            self._made |= {path}
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self._made = set()

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            words, place = _EVENTS[event]
            named = None if place is None else arguments[place]
            if event == "os.kill" and named == os.getpid():
                return
            self._refuse(words.format(_shown(named)))
        elif event == "socket.__new__" and arguments[1] == _AF_UNIX and not _is_pair():
            self._refuse("open a Unix socket")
        elif event == "open":
            path, mode, flags = arguments
            is_write = (flags or 0) & _WRITES or (isinstance(mode, str) and set(mode) & set("wax+"))
            # A folder gets a temporary file without a name, or one that another event reports.
            if is_write and not (isinstance(path, str | bytes | os.PathLike) and Path(os.fsdecode(path)).is_dir()):
                self._check(path, None)
        elif event in _CHANGES and arguments[0] not in _NO_FILES.get(event, ()):
            for place, folder in _CHANGES[event]:
                at = arguments[folder] if folder is not None and folder < len(arguments) else None
                self._check(arguments[place], at)

    def _check(self, path: Any, folder: int | None) -> None:
        """Refuse the change of a file, unless it is in the scratch folder, or a file in /tmp that this call made."""
        if isinstance(path, int):
            return  # it was opened before
        base = Path(f"/proc/self/fd/{folder}").readlink() if folder is not None and folder >= 0 else Path.cwd()
        full = base / os.fsdecode(path)
        full = full.parent.resolve() / full.name
        if str(full) == os.devnull:
            return
        own = self._scratch in full.parents
        if own or (SHARED in full.parents and self._code not in full.parents):
            is_new = not os.path.lexists(full)
            mine = full in self._made or not self._made.isdisjoint(full.parents)
            if is_new:
                self._made.add(full)
            if own or is_new or mine:
                return
        self._refuse(f"write to {full}")

    def _refuse(self, what: str) -> None:
        text = f"{what}{self._position()}"
        self.tried.append(text)
        raise Refused(f"the code tried to {text}")

    def _position(self) -> str:
        frame = sys._getframe(1)  # noqa: SLF001 - the only way to know the caller's frame
        for one in _outwards(frame):
            path = Path(one.f_code.co_filename)
            if self._code in path.parents:
                return f" ({path.relative_to(self._code)}:{one.f_lineno})"
        return ""


_AF_UNIX = 1


def _outwards(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_pair() -> bool:
    """True if `socket.socketpair` makes the socket. Event loops wake themselves by one, which leads nowhere else."""
    return any(one.f_code.co_name == "socketpair" for one in _outwards(sys._getframe(2)))  # noqa: SLF001 - as above


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) >= 2:
        return f"{value[0]}:{value[1]}"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_shown, value))
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)


class _Machine(NamedTuple):
    """The numbers of a kernel's calls."""

    architecture: int
    seccomp: int
    socket: int
    sendto: int
    clone: int
    forbidden: tuple[int, ...]
    """connect, bind, sendmsg, sendmmsg, execve, execveat, io_uring_setup, ptrace; and fork and vfork."""


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, 41, 44, 56, (42, 49, 46, 307, 59, 322, 425, 101, 57, 58)),
    "aarch64": _Machine(0xC00000B7, 277, 198, 206, 220, (203, 200, 211, 269, 221, 281, 425, 117)),
}
_CLONE3 = 435
_TRAP, _ALLOW, _KILL, _ERRNO = 0x00030000, 0x7FFF0000, 0x80000000, 0x00050000
_ENOSYS, _EACCES = 38, 13
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT_0, _ARGUMENT_4 = 0, 4, 16, 48
"""Places in the kernel's description of a call (struct seccomp_data)."""
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1


def has_kernel_filter() -> bool:
    """True if this machine can have the kernel's filter."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def _program(machine: _Machine) -> list[bytes]:
    """The filter, as instructions of the kernel's packet filter: code, jumps if true and if false, value."""

    def do(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    lines = [do(_LOAD, _ARCHITECTURE), do(_EQUAL, machine.architecture, 1), do(_RETURN, _KILL), do(_LOAD, _NUMBER)]
    lines += [do(_AT_LEAST, _X32, 0, 1), do(_RETURN, _KILL)]
    for number in machine.forbidden:
        lines += [do(_EQUAL, number, 0, 1), do(_RETURN, _TRAP)]
    # Its arguments are in memory, which a filter cannot read. The library tries `clone` then.
    lines += [do(_EQUAL, _CLONE3, 0, 1), do(_RETURN, _ERRNO | _ENOSYS)]
    lines += [do(_EQUAL, machine.clone, 0, 4), do(_LOAD, _ARGUMENT_0), do(_HAS, _CLONE_THREAD, 1), do(_RETURN, _TRAP)]
    lines += [do(_RETURN, _ALLOW)]
    # A look-up of a user asks a daemon by a Unix socket, and goes on without it.
    lines += [do(_EQUAL, machine.socket, 0, 4), do(_LOAD, _ARGUMENT_0), do(_EQUAL, _AF_UNIX, 0, 1)]
    lines += [do(_RETURN, _ERRNO | _EACCES), do(_RETURN, _ALLOW)]
    # Without an address, it writes to a pair of sockets.
    lines += [do(_EQUAL, machine.sendto, 0, 6), do(_LOAD, _ARGUMENT_4), do(_EQUAL, 0, 0, 3)]
    lines += [do(_LOAD, _ARGUMENT_4 + 4), do(_EQUAL, 0, 0, 1), do(_RETURN, _ALLOW), do(_RETURN, _TRAP)]
    return [*lines, do(_RETURN, _ALLOW)]


class _Program(ctypes.Structure):
    _fields_: ClassVar[Any] = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]


def _install_filter() -> None:
    """Give this process and its threads the filter. Raises OSError."""
    if not has_kernel_filter():
        raise OSError(NO_KERNEL_FILTER)
    machine = _MACHINES[platform.machine()]
    lines = _program(machine)
    content = ctypes.create_string_buffer(b"".join(lines))
    library = ctypes.CDLL(None, use_errno=True)
    call: Callable[..., int] = library.syscall
    program = _Program(len(lines), ctypes.addressof(content))
    refused = library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    refused = refused or call(machine.seccomp, _SET_FILTER, _ALL_THREADS, ctypes.byref(program))
    if refused:
        raise OSError(ctypes.get_errno(), f"the kernel has no filter of calls: {NO_KERNEL_FILTER}")
