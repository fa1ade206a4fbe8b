"""Directory markers: the empty objects that consoles and Hadoop's clients write for folders.

Consumer, audit, sets and CLI use the predicates of this module, so that none of them resubmits what another skips.
"""

from intake_ledger.protocol.object_state import State, StateKind

_ENDS = ("/", "_$folder$")
"""The ends of their keys: the console of S3 and s3a write `folder/`, EMR's former file system `folder_$folder$`."""


def may_be_directory_marker(key: str) -> bool:
    """True if the key is one of a directory marker. An object with such a key may have content, too."""
    return key.endswith(_ENDS)


def is_directory_marker(key: str, size: int | None) -> bool:
    """True if an object of this size is a directory marker. None: its size is not known."""
    return size == 0 and may_be_directory_marker(key)


def is_skipped_marker(key: str, state: State, *, every_version: bool) -> bool:
    """True if a pipeline without `directory_markers` skips this state, unless it has a row.

    In LATEST a key without a row was never processed, so its removal is skipped too. In EVERY_VERSION each removal
    has another row than the versions of the key.
    """
    if state.kind is StateKind.MARKER:
        return not every_version and may_be_directory_marker(key)
    return state.kind is StateKind.OBJECT and is_directory_marker(key, state.size)
