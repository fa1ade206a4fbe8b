"""Write outputs that a late worker cannot overwrite.

Other packages import the names below, and only when a processor asks for an output: no cold start pays for it.
"""

from intake_ledger.outputs.conditional_put import REMOVED, Present, WriteMark, source_of
from intake_ledger.outputs.output import AttemptOutputs, Output
from intake_ledger.outputs.upload import PART_BYTES

__all__ = ["PART_BYTES", "REMOVED", "AttemptOutputs", "Output", "Present", "WriteMark", "source_of"]
