"""Sets of files around a processor in one process, with their own time and without AWS.

def test_a_load_is_taken_once():
    sets = LocalSets(orders.load, manifest="loads/*/manifest.json")
    sets.put("loads/1/a.csv", "10 EUR")
    sets.put("loads/1/manifest.json", '["/loads/1/a.csv"]')
    sets.next(Fault.KILLED_AFTER_EFFECT)
    sets.run()
    assert loaded == {"loads/1/manifest.json": 10}
"""

from collections.abc import Callable, Sequence
from typing import Any, cast, override

from intake_ledger.aws.bucket import Bucket
from intake_ledger.consumer.set_wakes import SetWakes
from intake_ledger.events.parser import own_message
from intake_ledger.kinds.objects import Objects
from intake_ledger.kinds.sets import Sets
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Ordering, Row, row_key
from intake_ledger.protocol.settings import Reasons
from intake_ledger.protocol.ulids import ulid
from intake_ledger.set_members.forms import FormKind, FormSettings, SetTarget
from intake_ledger.set_members.membership import Membership
from intake_ledger.set_members.wakes import Wakes
from intake_ledger.sets.audit import SetAudit
from intake_ledger.sets.settings import SetSettings
from intake_ledger.sets.waiting import WaitingSets
from intake_ledger_testing.local_pipeline import LocalPipeline
from intake_ledger_testing.local_runtime import LocalRuntime
from intake_ledger_testing.local_settings import BUCKET, check_processor, interrupted, local_settings
from intake_ledger_testing.local_worker import LocalConnection, LocalRunner
from intake_ledger_testing.memory_sqs import QueuedMessage

SETS = "local-sets"


class LocalSets(LocalRuntime):
    """Sets of files for tests. `put` uploads a part or a manifest, and `run` delivers the messages of both."""

    def __init__(
        self,
        processor: Callable[[Any], Any],
        *,
        manifest: str | None = None,
        marker: str | None = None,
        quiet_folder: str | None = None,
        quiet_seconds: int = 900,
        absolute: bool = False,
        part_processor: Callable[[Any], Any] = lambda _: None,
        versioned: bool = True,
        max_attempts: int = 12,
        processing_timeout: float = 60,
        deadline: int = 3 * 86_400,
        exclusive_by: str | None = None,
        max_rate: float | None = None,
        reasons: Reasons = Reasons.TYPES,
        dynamodb: Any = None,
        raise_errors: bool = False,
        runner: LocalRunner = LocalRunner.PROCESS,
        worker: bool = False,
        keep_rejects: bool = False,
        hidden_parts: bool = False,
    ) -> None:
        """Create a pipeline of parts with an empty bucket, and its sets. Give one form.

        Args:
            processor: your function of a set.
            manifest: the pattern of `SetForm.manifest`, for a JSON list of keys; no manifest when omitted.
            marker: the pattern of `SetForm.marker`; no marker when omitted.
            quiet_folder: the pattern of `SetForm.quiet_folder`; no quiet folder when omitted.
            quiet_seconds: the quiet time of a folder; 900 when omitted.
            absolute: true: the keys in a manifest begin at the bucket; at the manifest's folder when omitted.
            part_processor: the processor of the parts; it does nothing when omitted.
            versioned: True if the bucket keeps versions; True when omitted.
            max_attempts: as in `RetryOptions`; 12 when omitted.
            processing_timeout: in real seconds, such as 0.1; 60 when omitted.
            deadline: as the construct's, in seconds of the local time; three days when omitted.
            exclusive_by: as of `LocalPipeline`, for the keys of sets; no set waits for another one when omitted.
            max_rate: as the construct's, in starts per second of the local time; no limit when omitted.
            reasons: as the construct's; exception types and positions when omitted.
            dynamodb: as of `LocalPipeline`; a transaction with a condition is refused when omitted.
            raise_errors: as of `LocalPipeline`; False when omitted.
            runner: the place of the processor of sets; this process when omitted.
            worker: true: workers outside of Lambda take the messages of sets; Lambda when omitted.
            keep_rejects: True if the stack calls `keep_rejects`; `on_error` is an error when omitted.
            hidden_parts: as of `SetForm.marker`; hidden objects of a folder are no parts when omitted.

        Raises:
            TypeError: The processor is not a function with one argument.
            ValueError: Not exactly one of the forms is given, or `exclusive_by` is not a pattern.

        """
        given = {FormKind.MANIFEST: manifest, FormKind.MARKER: marker, FormKind.QUIET: quiet_folder}
        forms = [(kind, pattern) for kind, pattern in given.items() if pattern is not None]
        if len(forms) != 1:
            raise ValueError(f"{len(forms)} forms of sets: pass one of manifest, marker and quiet_folder")
        [(kind, pattern)] = forms
        if runner is LocalRunner.PROCESS:
            check_processor(processor, "LocalSets")
        settings = local_settings(
            Ordering.LATEST,
            reasons,
            max_attempts=max_attempts,
            processing_timeout=processing_timeout,
            max_wait=deadline,
            max_rate=max_rate,
            directory_markers=True,
            keep_rejects=keep_rejects,
            exclusive_by=exclusive_by,
            pipeline=SETS,
        )
        super().__init__(
            interrupted(processor, processing_timeout),
            settings,
            runner=runner,
            worker=worker,
            versioned=versioned,
            dynamodb=dynamodb,
            raise_errors=raise_errors,
        )
        self._form = FormSettings(
            kind, pattern, quiet_seconds=quiet_seconds, absolute=absolute, hidden_parts=hidden_parts
        )
        self._set_settings = SetSettings(self._settings, self._form, "local")
        self.parts = _Parts(self, part_processor)
        """The pipeline of the parts."""
        self.lists: dict[str, bytes] = {}
        """The lists of the parts of sets, by version, for a processor elsewhere."""
        self.calls: list[Any] = []
        """The set of each call of the processor. With `LocalRunner.FUNCTION`, its request."""

    def put(self, key: str, content: bytes | str) -> str | None:
        """Upload a part, a manifest or a marker, and return its version ID.

        Args:
            key: of the object.
            content: a text becomes UTF-8.

        """
        return self.parts.put(key, content)

    def rejected_rows(self, key: str) -> list[dict[str, Any]]:
        """Return the rows of parts that `on_error` has rejected, with `source`, `line` and the others of `Rejects`.

        Args:
            key: of the manifest or marker, or the folder with its slash.

        """
        return self._read_rejects(key)

    def wake(self, key: str) -> None:
        """Send the message that a finished part sends.

        Args:
            key: of the manifest or marker, or the folder with its slash.

        """
        self.send(own_message(Origin.PART, BUCKET, key))

    def reprocess(self, key: str) -> None:
        """Send a request to process a set again.

        Args:
            key: of the manifest or marker, or the folder with its slash.

        """
        request = ulid(self.now, self._owners)
        self.send(own_message(Origin.REPROCESS, BUCKET, key, reprocess_id=request))

    def part_row(self, key: str) -> Row | None:
        """Return the ledger's row of a part, or None.

        Args:
            key: of the object.

        """
        return self.parts.row(key)

    @override
    def duplicate(self) -> None:
        """Send each waiting message a second time, also those of the parts."""
        super().duplicate()
        self.parts.duplicate()

    @override
    def reverse(self) -> None:
        """Reverse the order of the waiting messages of the sets, and of those of the parts."""
        super().reverse()
        self.parts.reverse()

    @override
    def lose(self) -> None:
        """Lose all waiting messages, also those of the parts. `audit` finds complete sets."""
        super().lose()
        self.parts.lose()

    @property
    @override
    def waiting(self) -> int:
        """The number of messages that are not finished, also of the parts."""
        return super().waiting + self.parts.waiting

    def audit(self) -> list[str]:
        """Run the audit of sets. Returns the keys of the sets that nothing continued, which it wakes."""
        return self._make_audit().run(lambda: 600.0).woken

    def row(self, key: str) -> Row | None:
        """Return the ledger's row of a set (`status`, `attempts`, `reason`, `commit_id` and so on), or None.

        Args:
            key: of the manifest or marker, or the folder with its slash.

        """
        return self._table.get(row_key(SETS, Ordering.LATEST, BUCKET, key, None))

    def _make_audit(self) -> SetAudit:
        worker, store = self.new_worker(), cast("Any", self._dynamodb)
        waiting, kind = WaitingSets(store, self._settings.table), cast("Sets", worker.kind)
        return SetAudit(self._set_settings, worker.services, waiting, reader=kind.reader, rows=self._table)

    @override
    def _make_kind(self, connection: LocalConnection, table: LedgerTable, bucket: Bucket) -> Sets:
        return Sets(
            self._set_settings,
            table,
            bucket,
            Membership(connection.client(self._dynamodb), self._settings.table, BUCKET),
            self.clock,
            output_client=lambda: connection.client(self._outputs),
            lists=_Lists(self, connection),
            guards=self._group_locks(table, connection),
        )

    @override
    def _next_at(self) -> int | None:
        times = [at for at in (super()._next_at(), self.parts.next_at()) if at is not None]
        return min(times, default=None)

    @override
    def _deliver(self) -> None:
        self.parts.deliver_visible()
        super()._deliver()


class _Parts(LocalPipeline):
    """The pipeline of the parts, whose workers wake the sets."""

    def __init__(self, sets: LocalSets, processor: Callable[[Any], Any]) -> None:
        super().__init__(processor)
        self._sets = sets
        self._use(sets)

    def next_at(self) -> int | None:
        """The time of the next delivery, in epoch milliseconds."""
        return self._next_at()

    def deliver_visible(self) -> None:
        """Handle the messages that are visible now."""
        while batch := self._sqs.receive(self._batch_size, self._order):
            self._invoke(batch)

    @override
    def _order(self, visible: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        return self._sets._order(visible)  # noqa: SLF001 - a run of both has one seed

    @override
    def _dies(self, operation: str) -> bool:
        return self._sets._dies(operation)  # noqa: SLF001 - its requests are those of the sets

    @override
    def _make_kind(self, connection: LocalConnection, table: LedgerTable, bucket: Bucket) -> Objects:
        sets, sqs = self._sets, connection.client(self._sets._sqs)  # noqa: SLF001 - they are one bench
        wakes = Wakes(
            [SetTarget(SETS, "memory://sets", sets._form)],  # noqa: SLF001 - as above
            Membership(connection.client(self._dynamodb), self._settings.table, BUCKET),
            bucket=BUCKET,
            send=lambda _, body: sqs.send(body),
        )
        telemetry = self._make_telemetry()
        return Objects(
            self._settings,
            bucket,
            lambda: connection.client(self._outputs),
            sets=SetWakes(self._settings, telemetry, wakes, clock=self.clock),
        )


class _Lists:
    """The lists of parts; see `PartLists`."""

    def __init__(self, sets: LocalSets, connection: LocalConnection) -> None:
        self._sets = sets
        self._connection = connection

    def place(self, version: str) -> dict[str, str]:
        return {"bucket": "lists", "key": f"{version}.json"}

    def put(self, version: str, content: bytes) -> None:
        self._connection.passes("put_object")
        assert self._sets.lists.setdefault(version, content) == content, "a version has one list"
        self._connection.passes()
