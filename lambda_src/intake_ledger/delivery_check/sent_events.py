"""Decides which changes of a bucket reach a queue, by notifications of S3 and by rules of EventBridge.

Synthesis asks about the app, and the delivery check asks about the deployed configuration. Pure functions.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from intake_ledger.protocol.settings import KeyFilter

EVENTS = {
    "s3:ObjectCreated:*": ("Put", "Post", "Copy", "CompleteMultipartUpload"),
    "s3:ObjectRemoved:*": ("Delete", "DeleteMarkerCreated"),
    "s3:LifecycleExpiration:*": ("Delete", "DeleteMarkerCreated"),
    "s3:ObjectRestore:Completed": ("Completed",),
    "s3:ObjectTagging:Put": ("Put",),
}
"""The events that a pipeline may need, by S3's names, and the kinds of each."""
CREATED, REMOVED, EXPIRED, RESTORED, TAGGED = EVENTS
OF_EACH = (CREATED, REMOVED, EXPIRED, RESTORED)
"""The events that each pipeline needs. `ready_when` also needs `TAGGED`."""
DETAIL_TYPES = {
    CREATED: "Object Created",
    REMOVED: "Object Deleted",
    EXPIRED: "Object Deleted",
    RESTORED: "Object Restore Completed",
    TAGGED: "Object Tags Added",
}
"""The names of the same events in EventBridge."""


class Notification(NamedTuple):
    """A notification of the bucket that reaches the queue."""

    event: str
    """S3's name, such as `s3:ObjectCreated:*` or `s3:ObjectCreated:Put`."""
    keys: KeyFilter | None
    """None if the keys are not known."""


class Lacking(NamedTuple):
    """Events of some keys that do not reach the queue."""

    whole: tuple[str, ...]
    """Events that never reach it."""
    part: tuple[str, ...]
    """Events that reach it for some of the keys, or for some kinds of the event."""


def lacking_events(
    keys: KeyFilter,
    notifications: Sequence[Notification],
    detail_types: Collection[str] = (),
    *,
    events: Collection[str] = OF_EACH,
) -> Lacking:
    """Find the events that a pipeline needs and does not get.

    Args:
        keys: a filter of the pipeline, in the same form as those of the notifications.
        notifications: those that reach the queue.
        detail_types: the events that rules of EventBridge send for these keys.
        events: the events that the pipeline needs.

    """
    whole, part = [], []
    for event in events:
        if DETAIL_TYPES[event] in detail_types:
            continue
        family = event.rpartition(":")[0]
        near = [
            one
            for one in notifications
            if one.event.startswith(f"{family}:") and (one.keys is None or one.keys.overlaps(keys))
        ]
        sent = {one.event for one in near if one.keys is None or one.keys.covers(keys)}
        if not near:
            whole.append(event)
        elif not {event, f"{family}:*"} & sent and not {f"{family}:{kind}" for kind in EVENTS[event]} <= sent:
            part.append(event)
    return Lacking(tuple(whole), tuple(part))
