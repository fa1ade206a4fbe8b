"""Parts of the outputs."""

from intake_ledger.outputs import conditional_put, output
from intake_ledger.outputs.conditional_put import Present
from intake_ledger.outputs.output import TOMBSTONE_TAG
from intake_ledger.outputs.seal import FenceMissing, SealBreaks, seal
