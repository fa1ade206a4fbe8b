"""The outputs of a claim, as the processor asks for them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intake_ledger.ledger import Claim
from intake_ledger.protocol import Ordering

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from intake_ledger.outputs import AttemptOutputs, Output


@dataclass(slots=True)
class ClaimOutputs:
    """Makes the outputs of a claim. Its method is the function behind `ObjectChange.output`."""

    claim: Claim
    ordering: Ordering
    make_client: "Callable[[], S3Client]"
    _outputs: "AttemptOutputs | None" = field(default=None, init=False)

    def output(self, bucket: str, key: str) -> "Output":
        """The output with this name. The first call imports the modules and makes the client."""
        if self._outputs is None:
            from intake_ledger.outputs import AttemptOutputs, source_of  # noqa: PLC0415 - most processors need none

            version = self.claim.state.identity if self.ordering is Ordering.EVERY_VERSION else None
            self._outputs = AttemptOutputs(
                self.make_client(),
                fence=self.claim.row.fence,
                source=source_of(self.claim.change.key, version),
                # An earlier claim left a row, and perhaps the output.
                look_first=self.claim.seen is not None,
            )
        return self._outputs.output(bucket, key)
