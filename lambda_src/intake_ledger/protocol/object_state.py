"""What S3 shows for a key: an object, a delete marker, or nothing."""

from dataclasses import dataclass
from enum import StrEnum


class StateKind(StrEnum):
    """The four things that a state can be."""

    OBJECT = "object"
    MARKER = "marker"
    """The newest version is a delete marker."""
    ABSENT = "absent"
    """There is nothing: never uploaded, or everything deleted for good."""
    DELETED = "deleted"
    """One version was deleted for good. Only `Ordering.EVERY_VERSION` knows this state; it never changes again."""


def real_version(version_id: str | None) -> str | None:
    """The version id, or None for its three spellings of "no version": absent, empty and `null`."""
    return None if version_id in (None, "", "null") else version_id


def bare_etag(etag: str | None) -> str | None:
    """The ETag without the quotes that HTTP puts around it; None when there is none."""
    return (etag or "").strip('"') or None


@dataclass(frozen=True, slots=True)
class State:
    """One state of one key. Two states are the same exactly when their `identity` is."""

    kind: StateKind
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    created_at: int | None = None
    """Epoch milliseconds. S3's Last-Modified: seconds only, and a multipart object's is the *start* of its upload."""

    @property
    def identity(self) -> str:
        """The state's name in the ledger: `v#<version id>`, `e#<etag>` without versions, `d#<version id>`, `absent`."""
        return identity_of(self.kind, self.version_id, self.etag)

    @property
    def removed(self) -> bool:
        """Whether the key reads as not found in this state."""
        return self.kind is not StateKind.OBJECT


def identity_of(kind: StateKind, version_id: str | None, etag: str | None) -> str:
    """See `State.identity`."""
    if kind is StateKind.DELETED:
        return f"d#{version_id}"
    if version_id is not None and kind is not StateKind.ABSENT:
        return f"v#{version_id}"
    # The delete marker of a bucket whose versioning is suspended has no id: nothing can be told from nothing.
    return f"e#{etag}" if kind is StateKind.OBJECT else "absent"


ABSENT = State(StateKind.ABSENT)
