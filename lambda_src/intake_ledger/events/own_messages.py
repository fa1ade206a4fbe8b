"""Make and parse the pipeline's own messages.

The audit, `intake-ledger reprocess` and late workers send them. Pipelines send them to the sets of their objects. The
copy of an object whose execution has ended is one, too.
"""

import json
from collections.abc import Sequence
from typing import Any

from intake_ledger.events.fields import Field, MalformedError, object_key, read_fields
from intake_ledger.protocol import Change, Origin, State, StateKind, is_ulid

OWN_MESSAGE = "intakeLedger"
"""The only top-level name in the pipeline's own messages."""

_KINDS = (Origin.AUDIT, Origin.REPROCESS, Origin.LATE, Origin.PART, Origin.EXECUTION)
_KIND = (Field("kind"),)
_OBJECT = (
    Field("bucket"),
    Field("key", convert=object_key),
    Field("state", required=False),
    Field("versionId", required=False),
)
_STATE = (
    Field("etag", required=False),
    Field("size", int, required=False),
    Field("createdAt", int, required=False),
)
_REQUEST = (Field("reprocessId"),)
_PARTS = (Field("parts", list, required=False),)
_PART = (Field("part", convert=object_key),)


def own_message(
    origin: Origin,
    bucket: str,
    key: str,
    state: State | None = None,
    *,
    reprocess_id: str | None = None,
    parts: Sequence[str] = (),
) -> str:
    """The body of a message that wakes the consumer for a key.

    Args:
        origin: the sender.
        bucket: the bucket's name.
        key: the object's key.
        state: the state that the sender has seen. The consumer only looks at S3 when omitted.
        reprocess_id: a ULID. The message does not ask for a reprocess when omitted.
        parts: the keys of the parts that wake a set.

    """
    content: dict[str, Any] = {"kind": origin.value, "bucket": bucket, "key": key}
    if state is not None:
        content["state"] = state.kind.value
        content |= {
            "versionId": state.version_id,
            "etag": state.etag,
            "size": state.size,
            "createdAt": state.created_at,
        }
    content["reprocessId"] = reprocess_id
    content["parts"] = list(parts) or None
    return json.dumps({OWN_MESSAGE: {name: value for name, value in content.items() if value is not None}})


def parse_own_message(content: object, body: str) -> Change:
    """Parse one of the pipeline's own messages. `body` becomes the body of the change.

    Raises:
        MalformedError: It has not the form of such a message.

    """
    [kind] = read_fields(content, _KIND)
    if kind not in _KINDS:
        raise MalformedError(f"kind of our own message is {kind!r}, expected one of {', '.join(_KINDS)}")
    bucket, key, named, version_id = read_fields(content, _OBJECT)
    reprocess_id = None
    if kind == Origin.REPROCESS:
        [reprocess_id] = read_fields(content, _REQUEST)
        if not is_ulid(reprocess_id):
            raise MalformedError(f"reprocessId is {reprocess_id!r}, expected a ULID in upper case")
    if named is None and version_id is not None:
        raise MalformedError("our own message has a versionId and no state: say whether it is an object or a marker")
    parts: list[str] = []
    if kind == Origin.PART:
        [listed] = read_fields(content, _PARTS)
        parts = [part for one in listed or () for part in read_fields({"part": one}, _PART)]
    state = None
    if named is not None:
        if named not in StateKind:
            raise MalformedError(f"state is {named!r}, expected one of {', '.join(StateKind)}")
        etag, size, created_at = read_fields(content, _STATE)
        state = State(StateKind(named), version_id, etag, size, created_at)
        if state.kind is StateKind.OBJECT and state.version_id is None and state.etag is None:
            raise MalformedError("an object with neither versionId nor etag cannot be identified")
    return Change(
        bucket,
        key,
        Origin(kind),
        event_name=f"IntakeLedger:{kind.title()}",
        body=body,
        state=state,
        reprocess_id=reprocess_id,
        parts=tuple(parts),
    )
