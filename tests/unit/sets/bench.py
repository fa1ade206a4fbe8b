"""`LocalSets` with late uploads, expiry, hooks before wakes, warm functions, and a record of the processor's calls."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import override

from cdk_intake_ledger.testing import LocalSets, LocalWorker, MemoryDynamoDB
from intake_ledger import Commit, FileSet, ObjectChange
from intake_ledger.protocol.row import Row
from intake_ledger.protocol.settings import ConsumerSettings, KeyFilter, environment_of
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger.sets.audit import SetFindings
from intake_ledger.sets.settings import SetSettings
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import MemorySQS
from tests.known import known

MAX_WAIT = 72 * 3600
WARM = False
"""Whether benches keep their workers over all invocations."""


@dataclass(frozen=True)
class Run:
    """One call of the set's processor."""

    key: str
    version: str
    manifest: str | None
    parts: tuple[tuple[str, str | None], ...]
    """Key and version of each part."""
    at: int


class SetBench(LocalSets):
    """A pipeline of parts, and its sets."""

    def __init__(
        self,
        form: FormSettings,
        *,
        filters: Sequence[KeyFilter] = (),
        versioned: bool = True,
        process: Callable[[FileSet], Commit | str | None] = lambda _: None,
        process_part: Callable[[ObjectChange], None] = lambda _: None,
        max_wait: int = MAX_WAIT,
        warm: bool | None = None,
    ) -> None:
        """Make both pipelines.

        With `warm`, each pipeline keeps one worker over all invocations, as a warm function does. Otherwise each
        invocation has a new one. `WARM` when omitted.
        """
        super().__init__(
            self._record,
            manifest=form.pattern if form.kind is FormKind.MANIFEST else None,
            marker=form.pattern if form.kind is FormKind.MARKER else None,
            hidden_parts=form.hidden_parts,
            quiet_folder=form.pattern if form.kind is FormKind.QUIET else None,
            part_processor=self._process_part,
            versioned=versioned,
            max_attempts=4,
            deadline=max_wait,
        )
        self.process = process
        self.process_part = process_part
        self.runs: list[Run] = []
        self.wakes: list[str] = []
        self.before_wake: list[Callable[[], object]] = []
        """Hooks that run once each before a wake is sent. They may raise."""
        self.use(form)
        keys = json.dumps([asdict(one) for one in filters])
        self._environment |= environment_of(ConsumerSettings, filters=keys)
        self.parts._environment |= environment_of(ConsumerSettings, filters=keys)
        self._sqs.send = self._hooked(self._sqs.send)  # type: ignore[method-assign]
        if WARM if warm is None else warm:
            self.new_worker = _kept(self.new_worker)  # type: ignore[method-assign]
            self.parts.new_worker = _kept(self.parts.new_worker)  # type: ignore[method-assign]

    def use(self, form: FormSettings) -> None:
        """Deploy both functions with this form."""
        described = {
            "form": form.kind,
            "pattern": form.pattern,
            "quietSeconds": form.quiet_seconds,
            "parts": form.parts,
            "keys": "absolute" if form.absolute else "relative",
            "hiddenParts": form.hidden_parts,
        }
        self._environment |= environment_of(SetSettings, form=json.dumps(described))

    @property
    @override
    def now(self) -> int:
        return self.clock.now

    @now.setter
    def now(self, now: int) -> None:
        self.clock.now = now

    @property
    def queue(self) -> MemorySQS:
        """The queue of the sets."""
        return self._sqs

    @property
    def s3(self) -> MemoryS3:
        """The bucket."""
        return self._s3

    @property
    def dynamodb(self) -> MemoryDynamoDB:
        """The ledger's table."""
        return self._dynamodb

    @property
    def part_calls(self) -> list[str]:
        """The keys of the calls of the processor of parts."""
        return [change.key for change in self.parts.calls]

    @override
    def put(self, key: str, content: bytes | str = "content") -> str | None:
        return super().put(key, content)

    def notify_current(self, key: str) -> None:
        """Send the event of the current version of a key."""
        version = known(self.s3.current(key))
        self.parts._notify(key, "ObjectCreated:Put", version.version_id, version)

    def delete(self, key: str) -> None:
        """Delete an object without naming its version."""
        self.parts.delete(key)

    def put_replica(self, key: str, content: str = "content", *, days: int = 30) -> None:
        """Upload an object whose Last-Modified is some days old, as replication does."""
        version = self.s3.put(key, content.encode())
        replica = replace(version, modified=version.modified - timedelta(days=days))
        self.s3.keys[key] = [replica if one is version else one for one in self.s3.keys[key]]
        self.notify_current(key)

    def expire(self, key: str) -> None:
        """Delete an object as a lifecycle rule does."""
        marker = known(self.s3.delete(key))
        self.parts._notify(key, "LifecycleExpiration:DeleteMarkerCreated", marker.version_id)

    @override
    def run(self, hours: float | None = None, *, seed: int | None = None) -> None:
        super().run(hours=hours, seed=seed)

    def known(self, key: str) -> Row:
        """The row of a set."""
        return known(self.row(key))

    def committed(self, key: str) -> str:
        """The version of the part that is committed."""
        row = known(self.part_row(key))
        return str(row.committed_state).removeprefix("v#")

    def run_audit(
        self,
        remaining_seconds: float | Callable[[], float] = 60,
        *,
        dry_run: bool = False,
        publish: Callable[[Mapping[str, int]], object] = lambda _: None,
    ) -> SetFindings:
        """Run the audit of sets."""
        left = remaining_seconds
        return self._make_audit().run(left if callable(left) else lambda: left, dry_run=dry_run, publish=publish)

    def lose_wakes(self) -> None:
        """Empty the queue of the sets."""
        self._sqs.purge()

    @override
    def _deliver(self) -> None:
        """Two functions run side by side, so each of them gets one batch."""
        self.parts._deliver()
        super(LocalSets, self)._deliver()

    def _record(self, files: FileSet) -> Commit | str | None:
        manifest = files.manifest.version_id if files.manifest else None
        parts = tuple((part.key, part.version_id or part.etag) for part in files.parts)
        self.runs.append(Run(files.key, files.version, manifest, parts, self.now))
        return self.process(files)

    def _process_part(self, change: ObjectChange) -> None:
        self.process_part(change)

    def _hooked(self, send: Callable[..., None]) -> Callable[..., None]:
        def wake(body: str, *plain: object, **named: object) -> None:
            if self.before_wake:
                self.before_wake.pop(0)()
            self.wakes.append(body)
            send(body, *plain, **named)

        return wake


def _kept(make: Callable[[], LocalWorker]) -> Callable[[], LocalWorker]:
    """Make a worker, and keep it until it dies."""
    workers: list[LocalWorker] = []

    def new_worker() -> LocalWorker:
        if not workers or workers[-1].connection.dead:
            workers.append(make())
        return workers[-1]

    return new_worker
