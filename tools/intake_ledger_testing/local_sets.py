"""Sets of files around a processor in one process, with their own time and without AWS.

def test_a_load_is_taken_once():
    sets = LocalSets(orders.load, manifest="loads/*/manifest.json")
    sets.put("loads/1/a.csv", "10 EUR")
    sets.put("loads/1/manifest.json", '["/loads/1/a.csv"]')
    sets.next(Fault.KILLED_AFTER_EFFECT)
    sets.run()
    assert loaded == {"loads/1/manifest.json": 10}
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Unpack, cast, override

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Ordering, Row, row_key
from intake_ledger.protocol.settings import SET_FORM, SET_PARTS_PIPELINE, ConsumerSettings, environment_of
from intake_ledger.protocol.ulids import ulid
from intake_ledger.set_members.forms import FormKind
from intake_ledger.sets.audit import SetAudit
from intake_ledger.sets.settings import SetSettings, set_settings
from intake_ledger.sets.waiting import WaitingSets
from intake_ledger_testing.local_options import LocalBucketOptions, LocalPipelineOptions, check_names, variables_of
from intake_ledger_testing.local_pipeline import LocalPipeline
from intake_ledger_testing.local_runtime import LocalRuntime
from intake_ledger_testing.local_settings import BUCKET, PIPELINE
from intake_ledger_testing.memory_sqs import MemorySQS, QueuedMessage

SETS, _LISTS = "local-sets", "lists/"


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
        hidden_parts: bool = False,
        part_processor: Callable[[Any], Any] = lambda _: None,
        deadline: int = 3 * 86_400,
        **options: Unpack[LocalBucketOptions],
    ) -> None:
        """Create a pipeline of parts with an empty bucket, and its sets. Give one form.

        Args:
            processor: your function of a set.
            manifest: the pattern of `SetForm.manifest`, for a JSON list of keys; no manifest when omitted.
            marker: the pattern of `SetForm.marker`; no marker when omitted.
            quiet_folder: the pattern of `SetForm.quiet_folder`; no quiet folder when omitted.
            quiet_seconds: the quiet time of a folder; 900 when omitted.
            absolute: true: the keys in a manifest begin at the bucket; at the manifest's folder when omitted.
            hidden_parts: as of `SetForm.marker`; hidden objects of a folder are no parts when omitted.
            part_processor: the processor of the parts; it does nothing when omitted.
            deadline: as the construct's, in seconds of the local time; three days when omitted.
            options: those of `LocalBucketOptions`, for the sets. `exclusive_by` is about the keys of sets.

        Raises:
            TypeError: The processor is not a function with one argument, or there is no such option.
            ValueError: Not exactly one of the forms is given, or the function would refuse it or an option.

        """
        check_names("LocalSets", LocalBucketOptions, options)
        given = {FormKind.MANIFEST: manifest, FormKind.MARKER: marker, FormKind.QUIET: quiet_folder}
        forms = [(kind, pattern) for kind, pattern in given.items() if pattern is not None]
        if len(forms) != 1:
            raise ValueError(f"{len(forms)} forms of sets: pass one of manifest, marker and quiet_folder")
        [(kind, pattern)] = forms
        form = {
            "form": kind,
            "pattern": pattern,
            "quietSeconds": quiet_seconds,
            "keys": "absolute" if absolute else "relative",
            "hiddenParts": hidden_parts,
        }
        all_options = {**options, "deadline": deadline}
        environment = variables_of(all_options, suffix="-of-sets", pipeline=SETS, directory_markers=True)
        environment |= environment_of(SetSettings, form=json.dumps(form), part_lists=_LISTS)
        environment[SET_PARTS_PIPELINE] = PIPELINE
        super().__init__(processor, all_options, environment)
        self.parts = _Parts(self, part_processor, options)
        """The pipeline of the parts."""
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

    @property
    def lists(self) -> dict[str, bytes]:
        """The lists of the parts of sets, by version, for a processor elsewhere."""
        bucket, _, _ = _LISTS.partition("/")
        stored = self._outputs.objects.items()
        return {key.removesuffix(".json"): one.content for (place, key), one in stored if place == bucket}

    def _make_audit(self) -> SetAudit:
        worker, store = self.new_worker(), cast("Any", self._dynamodb)
        waiting, kind = WaitingSets(store, self._settings.table), cast("Any", worker.kind)
        return SetAudit(set_settings(self._environment), worker.services, waiting, reader=kind.reader, rows=self._table)

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

    def __init__(self, sets: LocalSets, processor: Callable[[Any], Any], options: LocalBucketOptions) -> None:
        self._sets = sets
        own: LocalPipelineOptions = {"exclude": options["exclude"]} if "exclude" in options else {}
        super().__init__(processor, **own)
        self._use(sets)

    def next_at(self) -> int | None:
        """The time of the next delivery, in epoch milliseconds."""
        return self._next_at()

    def deliver_visible(self) -> None:
        """Handle the messages that are visible now."""
        while self.turn():
            self._raise_invalid()

    @override
    def _order(self, visible: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        return self._sets._order(visible)  # noqa: SLF001 - a run of both has one seed

    @override
    def _dies(self, operation: str) -> bool:
        return self._sets._dies(operation)  # noqa: SLF001 - its requests are those of the sets

    @override
    def _variables(self) -> dict[str, str]:
        """The variables of the consumer, with the sets that it wakes."""
        form = json.loads(self._sets._environment[SET_FORM])  # noqa: SLF001 - they are one bench
        sets = [{**form, "name": SETS, "queueUrl": self._sets._settings.queue_url}]  # noqa: SLF001 - as above
        return self._environment | environment_of(ConsumerSettings, sets=json.dumps(sets))

    @override
    def _queues(self) -> "_Queues":
        return _Queues(super()._queues(), self._sets)


class _Queues:
    """The client of SQS: the queue of the parts, and that of the sets for wakes."""

    def __init__(self, parts: MemorySQS, sets: LocalSets) -> None:
        self._parts, self._sets = parts, sets

    def send_message(self, **request: Any) -> None:
        is_wake = request["QueueUrl"] == self._sets._settings.queue_url  # noqa: SLF001 - they are one bench
        (self._sets._sqs if is_wake else self._parts).send_message(**request)  # noqa: SLF001 - as above

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts, name)
