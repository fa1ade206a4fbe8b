"""Starts the process that runs the code of one folder, and reads S3 for it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from intake_ledger_cli.errors import CliError
from intake_ledger_cli.rehearsal.channel import Channel, ChannelEnded, TimeOver, WrongFrame

GRACE_SECONDS = 10
"""The time for which the process may outlast the limit of the processor. A call into C is interrupted by nothing."""
START_SECONDS = 120
"""The time for the import of the code."""
_MOST_READ = 1024 * 1024
_HEADERS = ("ContentLength", "ETag", "VersionId", "ChecksumType", "ContentType", "Metadata")
_KEPT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Variables of the command that its processes have too."""


class VersionLost(Exception):  # noqa: N818 - a fact about S3
    """S3 does not give the version any more. The text says why, and the cause is S3's answer."""


type Outcome = dict[str, Any]
"""All that a run would have done; see `intake_ledger_cli.rehearsal.child`."""
_NOTHING: Outcome = {"outputs": [], "lost": ""}
type Opens = Callable[[], Mapping[str, Any]]
"""Requests the content of the file that is rehearsed: the answer to GetObject."""


@dataclass(slots=True, kw_only=True)
class Side:
    """The code of one folder: the old or the new one. `with` ends its process."""

    name: str
    """`new` or `old`."""
    code: Path
    entrypoint: str
    """Empty: that of the variables."""
    variables: Mapping[str, str]
    """Of the deployed function."""
    region: str
    seconds: int
    """The time limit of the processor."""
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _channel: Channel | None = field(default=None, init=False)
    _folder: "TemporaryDirectory[str] | None" = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, given: Mapping[str, Any], opens: Opens) -> Outcome:
        """Run the processor on one file. A process that has died is replaced before the next file.

        Args:
            given: the claim; see `intake_ledger_cli.rehearsal.child`.
            opens: requests the version.

        Returns:
            the outcome.

        Raises:
            CliError: The code cannot be imported, or this machine has no walls.
            ClientError: S3 refuses the read, but not because the version is lost.

        """
        if self._channel is None:
            self._start(int(given["now"]))
        assert self._channel is not None
        try:
            self._channel.send(given)
            outcome = self._serve(self._channel, opens)
        except TimeOver:
            self._end()
            return {"end": f"still runs after {self.seconds} s", "error": "it was ended", "tried": []} | _NOTHING
        except WrongFrame:
            self._end()
            return {"end": "dies", "error": "what it sent is no answer", "tried": []} | _NOTHING
        except ChannelEnded:
            return self._death()
        except BaseException:
            self._end()
            raise
        if outcome["end"].startswith("still"):
            self._end()
        return outcome

    def _serve(self, channel: Channel, opens: Opens) -> Outcome:
        """Answer the requests of the process. None of them has a name: it gets this version, and nothing else."""
        until = time.monotonic() + self.seconds + GRACE_SECONDS
        streams: dict[int, Any] = {}
        numbers, lost = count(), ""
        while True:
            match channel.receive(until):
                case {"open": True}:
                    try:
                        answer = opens()
                    except VersionLost as gone:
                        lost = str(gone)
                        channel.send({"error": _error(gone.__cause__)}, until)
                        continue
                    number = next(numbers)
                    streams[number] = answer["Body"]
                    channel.send({"number": number, "head": _head(answer)}, until)
                case {"read": [int() as number, int() as size]} if number in streams:
                    channel.send_bytes(streams[number].read(min(max(size, 0), _MOST_READ)), until)
                case {"close": int() as number} if number in streams:
                    streams.pop(number).close()
                case {"done": {"end": str(), "tried": list(), "outputs": list()} as outcome}:
                    for stream in streams.values():
                        stream.close()
                    return dict(outcome) | {"lost": lost}
                case _:
                    raise WrongFrame("unknown")

    def _start(self, now: int) -> None:
        self._folder = TemporaryDirectory(prefix="rehearse-")
        scratch = Path(self._folder.name, "tmp")
        scratch.mkdir()
        errors = Path(self._folder.name, "errors").open("wb")  # noqa: SIM115 - the process has its own descriptor
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-B", "-P", "-m", "intake_ledger_cli.rehearsal.child", str(to_child), str(from_child)],
                cwd=self.code,
                env=self._environment(scratch),
                pass_fds=(to_child, from_child),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        finally:
            errors.close()
            os.close(to_child)
            os.close(from_child)
            self._channel = Channel(to_parent, from_parent)
        start = {"code": str(self.code), "entrypoint": self.entrypoint, "scratch": str(scratch), "trace": self._trace}
        try:
            self._channel.send(start | {"now": now})
            answer = self._channel.receive(time.monotonic() + START_SECONDS)
        except (ChannelEnded, TimeOver):
            # A process that hangs has no exit code, and `_death` ends it.
            lines = Path(self._folder.name, "errors").read_text(errors="replace").splitlines()
            why = f"{self._death()['error']}; {lines[-1] if lines else ''}".removesuffix("; ")
            raise CliError(f"the {self.name} code in {self.code} cannot be imported: {why}") from None
        if answer == {"ready": True}:
            return
        self._end()
        if "noWalls" in answer:
            raise CliError(f"rehearse cannot run here: {answer['noWalls']}")
        tried = "tried at its import to " if answer.get("tried") else "cannot be imported: "
        fix = "move it into the function" if answer.get("tried") else "install what it needs into this Python"
        raise CliError(f"the {self.name} code in {self.code} {tried}{answer.get('problem')}: {fix}")

    @property
    def _trace(self) -> str:
        return str(Path(self._folder.name, "trace")) if self._folder else ""

    def _environment(self, scratch: Path) -> dict[str, str]:
        """The variables of the function, and none that lead to credentials."""
        own = {name: os.environ[name] for name in _KEPT if name in os.environ}
        theirs = {name: value for name, value in self.variables.items() if not name.startswith(("PYTHON", "AWS_"))}
        nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
        named = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "rehearsal")
        places = dict.fromkeys(("HOME", "TMPDIR"), str(scratch))
        region = dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), self.region)
        fixed = {"AWS_EC2_METADATA_DISABLED": "true", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "USER": "sandbox"}
        return {"TZ": "UTC"} | own | theirs | nowhere | named | places | region | fixed

    def _death(self) -> Outcome:
        """The outcome of a process that has ended by itself."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        code = self._process.poll()
        where = _position(Path(self._trace), self.code)
        self._end()
        if code == -signal.SIGSYS:
            tried = f"connect or start a program in code that is not Python{where}"
            return {"end": "refused", "error": f"the code tried to {tried}", "tried": [tried]} | _NOTHING
        return {"end": "dies", "error": f"exit code {code}", "tried": []} | _NOTHING

    def _end(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        if self._channel is not None:
            self._channel.close()
        if self._folder is not None:
            shutil.rmtree(self._folder.name, ignore_errors=True)
            self._folder.cleanup()
        self._process = self._channel = self._folder = None


def _head(answer: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in answer if name in _HEADERS or name.startswith("Checksum")]
    return {name: answer[name] for name in names}


def _error(error: Any) -> dict[str, Any]:
    told: Any = error.response
    status = told.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return {"Error": dict(told["Error"]), "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}


def _position(trace: Path, code: Path) -> str:
    """The first line of the code in the trace."""
    with suppress(OSError):
        for line in trace.read_text().splitlines():
            name, _, rest = line.strip().removeprefix('File "').partition('", line ')
            if rest and code.resolve() in Path(name).resolve().parents:
                return f" ({Path(name).resolve().relative_to(code.resolve())}:{rest.partition(' ')[0]})"
    return ""
