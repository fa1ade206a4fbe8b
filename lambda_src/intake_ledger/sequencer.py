"""S3's sequencers: stored and shown to operators, compared for telemetry, never used for a decision.

AWS documents them as hexadecimal strings that order the events of one key, to be padded with zeros on the right before
comparing (on the left until July 2021); its own samples differ in length and in case.
"""

import re

_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{1,128}")


def normalise(sequencer: object) -> str | None:
    """The sequencer in upper case without trailing zeros, so that text order is the order of right-padding.

    Anything that is no hexadecimal string is None: telemetry has to do without it, and nothing else needs it.
    """
    if not isinstance(sequencer, str) or not _HEXADECIMAL.fullmatch(sequencer):
        return None
    return sequencer.upper().rstrip("0") or "0"


def is_older(one: str | None, other: str | None) -> bool | None:
    """Whether `one` precedes `other`, both normalised; None where either is unknown."""
    if one is None or other is None:
        return None
    return one < other
