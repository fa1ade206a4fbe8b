"""The states of a key in S3: an object, a delete marker, or nothing."""

from dataclasses import dataclass, field
from enum import StrEnum


class StateKind(StrEnum):
    """The kinds of states."""

    OBJECT = "object"
    MARKER = "marker"
    """The newest version is a delete marker."""
    ABSENT = "absent"
    """There is nothing: never uploaded, or everything permanently deleted."""
    DELETED = "deleted"
    """One version was permanently deleted. Only `Ordering.EVERY_VERSION` knows this state, which never changes again.
    """


_NO_VERSION = frozenset({None, "", "null"})
"""The ways in which S3 says that an object has no version: absent, empty and `null`."""


def real_version(version_id: str | None) -> str | None:
    """The version id. None for each way in which S3 says that there is none."""
    return None if version_id in _NO_VERSION else version_id


def bare_etag(etag: str | None) -> str | None:
    """The ETag without the quotes of HTTP. None if there is none."""
    return (etag or "").strip('"') or None


@dataclass(frozen=True, slots=True)
class State:
    """One state of one key. Two states are the same if their `identity` is.

    S3 spells "no version" in three ways, and quotes ETags. Both become the same in `__post_init__`.
    """

    kind: StateKind
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    created_at: int | None = None
    """S3's Last-Modified in epoch milliseconds, a multiple of 1,000. For a multipart object it is the *start* of its
    upload."""
    identity: str = field(init=False, compare=False, repr=False)
    """The state's name in the ledger: `v#<version id>`, `e#<etag>` without versions, `d#<version id>`, `absent`."""
    removed: bool = field(init=False, compare=False, repr=False)
    """True if S3 answers a read of the key with "not found"."""

    def __post_init__(self) -> None:
        # `frozen` forbids the assignment.
        if self.version_id in _NO_VERSION:
            object.__setattr__(self, "version_id", None)
        if self.etag is not None:
            object.__setattr__(self, "etag", self.etag.strip('"') or None)
        object.__setattr__(self, "identity", identity_of(self.kind, self.version_id, self.etag))
        object.__setattr__(self, "removed", self.kind is not StateKind.OBJECT)


def identity_of(kind: StateKind, version_id: str | None, etag: str | None) -> str:
    """The identity of a state; see `State.identity`."""
    if kind is StateKind.DELETED:
        return f"d#{version_id}"
    if version_id is not None and kind is not StateKind.ABSENT:
        return f"v#{version_id}"
    # The delete marker of a bucket whose versioning is suspended has no id. It cannot be told from an absent object.
    return f"e#{etag}" if kind is StateKind.OBJECT else "absent"


ABSENT = State(StateKind.ABSENT)
