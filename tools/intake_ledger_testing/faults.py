"""Faults that a test injects into calls of the processor."""

from enum import StrEnum


class Fault(StrEnum):
    """A fault in a call of the processor that the processor did not cause."""

    KILLED_BEFORE_EFFECT = "the worker dies before the processor has done anything"
    KILLED_AFTER_EFFECT = "the worker dies after the processor has done its work, before the commit"
    TIMED_OUT = "the processor has done its work and is interrupted by the timeout"
    CONNECTION_CUT = "the connection to S3 ends in the middle of the object that the processor reads"
    OVERTAKEN = "the worker pauses until other workers have done all work; then its effect lands, and its commit fails"
    OVERTAKEN_AND_KILLED = (
        "as OVERTAKEN, but the worker dies after its late effect, and nothing repairs it; never random"
    )


STANDSTILLS = frozenset({Fault.OVERTAKEN, Fault.OVERTAKEN_AND_KILLED})
"""Faults that pause a worker."""
