"""A pipeline of files and sets of its files in one process, with their own time and without AWS.

    def test_a_load_waits_for_its_parts():
        sets = LocalSets(orders.load, manifest="loads/*/manifest.json")
        sets.put("loads/7/manifest.json", json.dumps(["a.csv", "b.csv"]))
        sets.put("loads/7/a.csv", "1")
        sets.run(hours=1)
        assert loaded == []
        sets.put("loads/7/b.csv", "2")
        sets.run()
        assert loaded == ["loads/7/manifest.json"]

The faults are those of the processor of the sets. Everything else is as in `LocalPipeline`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast, override

from intake_ledger import FileSet
from intake_ledger.consumer import Consumer
from intake_ledger.consumer.set_wakes import SetWakes
from intake_ledger.kinds import Kind
from intake_ledger.kinds.objects import Objects
from intake_ledger.kinds.sets import Sets
from intake_ledger.processor import Commit, ObjectChange
from intake_ledger.protocol import Ordering, Reasons, Row, row_key
from intake_ledger.set_members import FormKind, FormSettings, Membership, SetTarget, Wakes
from intake_ledger.sets import SetSettings
from intake_ledger_testing.local_pipeline import LocalPipeline
from intake_ledger_testing.local_settings import BUCKET, PIPELINE, check_processor, local_settings
from intake_ledger_testing.memory_sqs import MemorySQS
from intake_ledger_testing.outcome_counter import OutcomeCounter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger.observability import Telemetry
    from intake_ledger_testing.memory_tables import MemoryTables

_SETS = "local-sets"


@dataclass
class _Counters:
    """The counters of the pipeline of the parts."""

    verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    late_writes: int = 0
    removed_unprocessed: int = 0


class LocalSets(LocalPipeline):
    """A pipeline and sets of its files, for tests. `put` uploads parts, manifests and markers."""

    def __init__(
        self,
        processor: Callable[[FileSet], Commit | str | None],
        *,
        manifest: str | None = None,
        marker: str | None = None,
        quiet_folder: str | None = None,
        quiet_seconds: int = 900,
        part_processor: Callable[[ObjectChange], Commit | str | None] = lambda _: None,
        versioned: bool = True,
        max_attempts: int = 12,
        processing_timeout: int = 60,
        deadline: int = 3 * 86_400,
        reasons: Reasons = Reasons.TYPES,
        dynamodb: "MemoryTables | DynamoDBClient | None" = None,
        raise_errors: bool = False,
    ) -> None:
        """Create a pipeline with an empty bucket, and sets of its files.

        Args:
            processor: your function of a `FileSet`.
            manifest: the pattern of `SetForm.manifest`, for a JSON list of keys; no manifest when omitted.
            marker: the pattern of `SetForm.marker`; no marker when omitted.
            quiet_folder: the pattern of `SetForm.quiet_folder`; no quiet folder when omitted. One form is needed.
            quiet_seconds: the time without uploads that closes a quiet folder; 15 minutes when omitted.
            part_processor: your function of the pipeline of the parts; it does nothing when omitted.
            versioned: True if the bucket keeps versions; True when omitted.
            max_attempts: as in `RetryOptions`; 12 when omitted.
            processing_timeout: as in `LocalPipeline`; 60 when omitted.
            deadline: as the construct's, in seconds of the time in the test; three days when omitted.
            reasons: as the construct's; exception types and positions when omitted.
            dynamodb: as in `LocalPipeline`; a transaction with a condition is refused when omitted.
            raise_errors: as in `LocalPipeline`; False when omitted.

        Raises:
            TypeError: A processor is not a function with one argument.
            ValueError: There is no form, or more than one.

        """
        check_processor(processor, "LocalSets")
        self._form = _form(manifest, marker, quiet_folder, quiet_seconds)
        super().__init__(
            cast("Any", processor),
            versioned=versioned,
            max_attempts=max_attempts,
            processing_timeout=processing_timeout,
            reasons=reasons,
            dynamodb=dynamodb,
            raise_errors=raise_errors,
        )
        self._part_processor = part_processor
        own = local_settings(
            Ordering.LATEST,
            reasons,
            max_attempts=max_attempts,
            processing_timeout=processing_timeout,
            max_wait=deadline,
            directory_markers=True,
            pipeline=_SETS,
        )
        self._sets = SetSettings(own, self._form, PIPELINE)
        self._wakes = MemorySQS(clock=self._clock, visibility_seconds=self._visibility_seconds)
        self._counters = _Counters()
        self.calls: list[FileSet] = []  # type: ignore[assignment] # the processor of this class gets sets
        """The set of each call of the processor."""

    @override
    def lose(self) -> None:
        """Lose all waiting messages, also those of the sets. `audit` of a set's key wakes it."""
        super().lose()
        self._wakes.messages.clear()

    @override
    def row(self, key: str, version_id: str | None = None) -> Row | None:
        """Return the ledger's row of a set, or None.

        Args:
            key: of the manifest or marker, or the folder with a slash at its end.
            version_id: not for sets.

        """
        return self._table.get(row_key(_SETS, Ordering.LATEST, BUCKET, key, version_id))

    def part_row(self, key: str) -> Row | None:
        """Return the ledger's row of a part, or None.

        Args:
            key: of the object.

        """
        return super().row(key)

    @property
    @override
    def waiting(self) -> int:
        """The number of messages in both queues."""
        return super().waiting + len(self._wakes.messages)

    @property
    @override
    def _work_queue(self) -> MemorySQS:
        return self._wakes

    @override
    def _queues(self) -> list[tuple[MemorySQS, Callable[[], Consumer]]]:
        return [(self._sqs, self._make_part_consumer), (self._wakes, self._make_consumer)]

    @override
    def _make_consumer(self) -> Consumer:
        return self._consumer_of(self._make_kind(), self._sets.consumer, self._wakes, self._call)

    @override
    def _make_kind(self) -> Kind:
        bucket, outputs = self._make_bucket(), lambda: cast("Any", self._outputs)
        return Sets(self._sets, self._table, bucket, self._membership(), self._clock, output_client=outputs)

    def _make_part_consumer(self) -> Consumer:
        target = SetTarget(_SETS, "", self._form)
        wakes = Wakes([target], self._membership(), bucket=BUCKET, send=lambda _, body: self._wakes.send(body))
        telemetry: Telemetry = OutcomeCounter(self._counters)
        woken = SetWakes(self._settings, telemetry, wakes, clock=self._clock)
        kind = Objects(self._settings, self._make_bucket(), lambda: cast("Any", self._outputs), sets=woken)
        return self._consumer_of(kind, self._settings, self._sqs, self._part_processor, telemetry)

    def _membership(self) -> Membership:
        return Membership(cast("Any", self._dynamodb), self._settings.table, BUCKET)


def _form(manifest: str | None, marker: str | None, quiet_folder: str | None, quiet_seconds: int) -> FormSettings:
    patterns = {FormKind.MANIFEST: manifest, FormKind.MARKER: marker, FormKind.QUIET: quiet_folder}
    forms = {kind: pattern for kind, pattern in patterns.items() if pattern is not None}
    if len(forms) != 1:
        raise ValueError(f"{len(forms)} forms of sets: pass one of manifest, marker and quiet_folder")
    [(kind, pattern)] = forms.items()
    return FormSettings(kind, pattern, quiet_seconds if kind is FormKind.QUIET else 0)
