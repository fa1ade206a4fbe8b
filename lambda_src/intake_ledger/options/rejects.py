"""The option `rejects`: the output with the rejected rows of a claim, for `keep_rejects` of the construct.

`processor/rejects.py` reads the rows, and `protocol/row.py` has their numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from intake_ledger.processor.rejects import AttemptRejects, Reading, Rejects
from intake_ledger.protocol.change import State
from intake_ledger.protocol.row import Ordering, RowCounts, rejects_may_exist, rejects_place
from intake_ledger.protocol.settings import ConsumerSettings

if TYPE_CHECKING:
    from intake_ledger.kinds.objects import ClaimOutputs

_TYPE = "application/x-ndjson"


@dataclass(slots=True)
class ClaimRejects:
    """The output with the rejected rows of a claim. Its method is the function behind `on_error` of `csv_rows`."""

    outputs: "ClaimOutputs"
    settings: ConsumerSettings
    keep: Callable[[BinaryIO], object]
    """Closes a temporary file at the end of the attempt."""
    _rejects: AttemptRejects | None = field(default=None, init=False)

    def begin(self, rejects: Rejects, *, source: str, state: State) -> Reading:
        """Start a reading of the object with this key and state."""
        if self._rejects is None:
            self._rejects = AttemptRejects(self.outputs.claim.row.fence)
        reading = self._rejects.begin(rejects, source, state)
        self.keep(reading.file)
        return reading

    def write(self) -> RowCounts | None:
        """Write the output, or remove that of an earlier attempt. None: there are no rejected rows, and were none."""
        rejects, claim, place = self._rejects, self.outputs.claim, self.settings.rejects
        assert place is not None, "the setting is set"
        bad = rejects.rejected if rejects is not None else 0
        if not bad and not rejects_may_exist(claim.seen):
            return None
        version = claim.state.identity if self.settings.ordering is Ordering.EVERY_VERSION else None
        output = self.outputs.output(*rejects_place(place, claim.change.key, version))
        if rejects is None or not bad:
            output.remove()
            return RowCounts(0, 0)
        with rejects.whole_file() as file:
            output.put(file, content_type=_TYPE)
        return RowCounts(rejects.read, bad)
