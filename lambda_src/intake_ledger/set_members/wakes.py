"""Wake the sets of files to which an object may belong."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.set_members.forms import FormKind, SetTarget
from intake_ledger.set_members.membership import Membership

Wake = tuple[SetTarget, str]
"""A set: where its messages go, and its key."""
MOST_PARTS = 100
"""The largest number of parts that a message names. A look at the set reads their rows in one request."""
_MOST_BYTES = 48 * 1024
"""The same for the text of their keys. A message of more than 64 KiB costs as two."""


class Wakes:
    """Finds the sets of a part, and sends a message to the queue of each."""

    def __init__(
        self,
        targets: Sequence[SetTarget],
        membership: Membership,
        *,
        bucket: str,
        send: Callable[[str, str], None],
    ) -> None:
        """Make the wakes of one pipeline.

        Args:
            targets: the pipeline's sets.
            membership: tells the manifests that list a part.
            bucket: the bucket's name.
            send: sends a message: the URL of the queue, and the body.

        """
        self._targets = targets
        self._membership = membership
        self._bucket = bucket
        self._send = send

    def is_control(self, key: str) -> bool:
        """True if the object is the manifest or the marker of a set. The pipeline's processor is not called for it."""
        return any(target.form.is_control(key) for target in self._targets)

    def wake(self, wake: Wake, keys: Iterable[str]) -> None:
        """Send a message to the set of these objects, or more if one cannot name them all.

        Call it after the commits of the objects, and before their messages are acknowledged.
        """
        target, set_key = wake
        for parts in _shares([key for key in keys if key != set_key]):
            self._send(target.queue_url, own_message(Origin.PART, self._bucket, set_key, parts=parts))

    def note_expirations(self, keys: Iterable[str], *, now: int, keep_seconds: int) -> None:
        """Record for each set of these objects that a lifecycle rule has removed parts. Call it before `wake`.

        Args:
            keys: of the objects that expired.
            now: epoch milliseconds.
            keep_seconds: the time for which the record stays.

        """
        for target, set_key in dict.fromkeys(one for key in keys for one in self.sets_of(key)):
            self._membership.note_expiration(target.name, set_key, now=now, keep_seconds=keep_seconds)

    def sets_of(self, key: str) -> Iterator[Wake]:
        """The sets to which the object may belong."""
        for target in self._targets:
            own = target.form.set_of(key)
            if own is not None:
                yield target, own
            if target.form.kind is FormKind.MANIFEST:
                for set_key in self._membership.sets_of(target.name, key):
                    yield target, set_key


def _shares(parts: Iterable[str]) -> Iterator[list[str]]:
    """The parts that each message names."""
    share: list[str] = []
    size = 0
    for part in parts:
        length = len(json.dumps(part))
        if len(share) == MOST_PARTS or size + length > _MOST_BYTES:
            yield share
            share, size = [], 0
        share.append(part)
        size += length
    yield share
