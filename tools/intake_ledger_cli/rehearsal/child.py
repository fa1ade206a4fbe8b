"""The process that runs a processor's code on files, behind walls: `python -m intake_ledger_cli.rehearsal.child`.

It has no credentials and no network. Its parent reads S3 for it, and chooses the version: no frame can name another
one. The consumer's own code makes the change, runs the processor and checks what it returns. Outputs and the table of
`once` are in memory, and empty for each file.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, override

from botocore.exceptions import ClientError

from intake_ledger import once
from intake_ledger.consumer.composition import Platform, make_parts, make_runner
from intake_ledger.consumer.deadline import Overrun, deadline
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim
from intake_ledger.ledger.row_history import RowHistory
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.processor.object_change import as_commit, load_processor
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.errors import NotYet, ObjectGone, Unprocessable
from intake_ledger.protocol.handover import check_transact, invalid_effect_of, kept_result
from intake_ledger.protocol.row import Row, RowKey, Status, from_dynamodb
from intake_ledger.protocol.settings import ConsumerSettings, entrypoint_of
from intake_ledger.runners import Run
from intake_ledger_cli.rehearsal.channel import Channel, ChannelEnded
from intake_ledger_cli.rehearsal.still import StillClock
from intake_ledger_cli.rehearsal.walls import Refused, Walls
from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
from intake_ledger_testing.memory_outputs import MemoryOutputs, StoredOutput

MOST_TEXT = 2_000
"""The longest text of an error, in characters."""
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_SETS = ("SS", "NS", "BS")


class _Body:
    """The stream of an object, which the parent reads."""

    def __init__(self, channel: Channel, lock: Lock, number: int) -> None:
        self._channel, self._lock, self._number = channel, lock, number

    def read(self, amt: int) -> bytes:
        with self._lock:
            self._channel.send({"read": [self._number, amt]})
            return self._channel.receive_bytes()

    def close(self) -> None:
        with self._lock:
            self._channel.send({"close": self._number})


class _OneObject:
    """The client of the bucket. It has exactly the version that the parent has chosen."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = Lock()  # the code may read in threads

    def get_object(self, **_: Any) -> dict[str, Any]:
        with self._lock:
            self._channel.send({"open": True})
            answer: dict[str, Any] = self._channel.receive()
        if "error" in answer:
            raise ClientError(answer["error"], "GetObject")
        return {**answer["head"], "Body": _Body(self._channel, self._lock, answer["number"])}


class _Rehearsal(Platform):
    """AWS in memory, and the version of the parent."""

    def __init__(self, channel: Channel, clock: StillClock, entrypoint: str) -> None:
        self.clock = lambda: clock.now
        self.entrypoint = entrypoint
        self.written = MemoryOutputs(self.clock)
        self.table = MemoryDynamoDB()
        self._object = _OneObject(channel)

    @override
    def dynamodb(self, pool: int = 0) -> Any:
        return self.table

    @override
    def s3(self, pool: int = 0) -> Any:
        return self._object

    @override
    def outputs(self, s3: object) -> Callable[[], Any]:
        return lambda: self.written

    @override
    def processor(self, settings: ConsumerSettings) -> Callable[[Any], Any]:
        return load_processor(self.entrypoint or entrypoint_of(settings))

    @override
    def telemetry(self, kind: object, settings: ConsumerSettings) -> Telemetry:
        return Telemetry()

    @override
    def row_history(self, settings: ConsumerSettings, table: LedgerTable) -> RowHistory:
        return RowHistory()


class Rehearsal:
    """The code of one folder, and the runs of its processor."""

    def __init__(self, channel: Channel, clock: StillClock, walls: Walls, start: Mapping[str, Any]) -> None:
        """Import the code, and make its consumer from the variables of this process.

        Args:
            channel: to the parent.
            clock: the time and the chance of the code.
            walls: those of this process.
            start: the folder and the entrypoint.

        Raises:
            SettingsError: The variables are wrong, or there is no such function. Errors of the code propagate.

        """
        self._clock, self._walls = clock, walls
        self._folder = start["code"]
        self._aws = _Rehearsal(channel, clock, start["entrypoint"])
        vars(once)["ledger_client"] = lambda *_: self._aws.table
        parts = make_parts(os.environ, platform=self._aws)
        self._kind, self._settings = parts.kind, parts.services.settings
        sys.path.insert(0, self._folder)
        self._runner = make_runner(os.environ, parts.services, platform=self._aws)

    def run(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Run the processor on one file, and return all that it would have done."""
        self._clock.set(given["now"], given["seed"])
        self._aws.written.objects.clear()
        self._aws.written.uploads.clear()
        self._aws.table.items.clear()
        self._aws.table.transacted.clear()
        try:
            ended = self._ended(_claim(given, self._settings.bucket))
        finally:
            self._walls.clear()
        outputs = sorted(self._aws.written.objects.items())
        # A thread of the code that goes on is seen at the next file.
        tried = list(self._walls.tried)
        del self._walls.tried[: len(tried)]
        return ended | {
            "outputs": [_output(name, one) for name, one in outputs],
            "once": self._of_once(),
            "tried": tried,
        }

    def _ended(self, claim: Claim) -> dict[str, Any]:
        seconds = self._settings.processing_timeout_seconds
        run = Run(deadline(seconds), lambda: float(seconds))
        try:
            work = self._kind.work(claim)
            commit = as_commit(None if work is None else self._runner.start(claim, work, run))
            check_transact(commit.transact, self._settings.table, own=len(self._kind.guards))
            result, problem = kept_result(commit.identity)
        except (KeyboardInterrupt, ChannelEnded):
            raise
        except Refused as refused:
            return {"end": "refused", "error": str(refused)}
        except BaseException as error:  # noqa: BLE001 - an exit is a failure too
            return {"end": _end_of(error, seconds), "error": self._text(error)}
        counts = run.counts if run.counts is not None and run.counts.rejected else None
        return {
            "end": "committed",
            "result": result,
            "problem": problem,
            "transact": sorted((plain(one) for one in commit.transact), key=json.dumps),
            "rows": None if counts is None else [counts.read, counts.rejected],
        }

    def _of_once(self) -> list[Any]:
        """The rows of `once`, and what its blocks have written with them."""
        rows = [from_dynamodb(dict(item)) for item in self._aws.table.items.values()]
        kept = [[str(row.get(name)) for name in ("pk", "sk", "status", "commit_id")] for row in rows if "status" in row]
        return [*sorted(kept), *(plain(one) for one in self._aws.table.transacted)]

    def _text(self, error: BaseException) -> str:
        """The error without what differs from one process to the next."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _ADDRESS.sub("0x...", text.replace(self._folder, "."))[:MOST_TEXT]


def _claim(given: Mapping[str, Any], bucket: str) -> Claim:
    """The claim whose work the processor does. Its table is empty, so nothing was seen before it."""
    state = State(StateKind(given["kind"]), given["versionId"], given["etag"], given["size"])
    change = Change(
        bucket, given["key"], Origin.S3, given["eventName"], body="", state=state, event_time=given["eventTime"]
    )
    row = Row(
        Status.PROCESSING,
        given["fence"],
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        kind=state.kind,
        event_name=given["eventName"],
        attempts=given["attempt"],
        lease_owner="rehearsal",
        first_claimed_at=given["firstClaimedAt"],
    )
    claim = Claim.of_row(RowKey(given["pk"], given["sk"]), change, row)
    return replace(claim, lock_fence=given["groupFence"])


def _end_of(error: BaseException, seconds: int) -> str:
    if isinstance(error, ObjectGone):
        return "gone"
    if isinstance(error, NotYet):
        return "waits"
    if isinstance(error, Unprocessable) or invalid_effect_of(error) is not None:
        return "rejected"
    return f"still runs after {seconds} s" if isinstance(error, Overrun) else "fails"


def _output(name: tuple[str, str], stored: StoredOutput) -> dict[str, Any]:
    return {
        "bucket": name[0],
        "key": name[1],
        "removed": stored.removed,
        "size": len(stored.content),
        "sha256": hashlib.sha256(stored.content).hexdigest(),
        "contentType": stored.content_type,
    }


def plain(value: Any) -> Any:
    """The value as JSON that is the same for all that DynamoDB takes as the same: sets have no order."""
    if isinstance(value, Mapping):
        return {
            str(name): sorted(map(plain, one)) if name in _SETS and isinstance(one, list | tuple) else plain(one)
            for name, one in sorted(value.items())
        }
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value if isinstance(value, str | bool | int | float) or value is None else str(value)


def main() -> None:
    """Serve one parent until it closes the channel."""
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    start = channel.receive()
    clock, walls = StillClock(), Walls(Path(start["scratch"]), Path(start["code"]))
    try:
        clock.install()
        walls.raise_kernel(Path(start["trace"]).open("w"))  # noqa: SIM115 - it stays open
        clock.set(start["now"], "import")
        walls.raise_audit()
    except (OSError, RuntimeError) as error:
        channel.send({"noWalls": str(error)})
        return
    try:
        rehearsal = Rehearsal(channel, clock, walls, start)
    except BaseException as error:  # noqa: BLE001 - of the code, which may also exit
        text = f"{type(error).__name__}: {error}"
        channel.send({"problem": walls.tried[0] if walls.tried else text, "tried": bool(walls.tried)})
        return
    # The log of its start is kept, and no other.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    channel.send({"problem": walls.tried[0], "tried": True} if walls.tried else {"ready": True})
    try:
        while True:
            channel.send({"done": rehearsal.run(channel.receive())})
    except ChannelEnded:
        return


if __name__ == "__main__":
    main()
