"""Wake the sets of files to which an object may belong."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from intake_ledger.events import own_message
from intake_ledger.protocol import Origin
from intake_ledger.set_members.forms import FormKind, SetTarget
from intake_ledger.set_members.membership import Membership

Wake = tuple[SetTarget, str]
"""A set: where its messages go, and its key."""


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

    def wake(self, keys: Iterable[str], woken: Collection[Wake]) -> list[Wake]:
        """Wake each set to which one of these objects may belong, except those that were woken already.

        Call it after the commits of the objects, and before their messages are acknowledged. Returns the sets.
        """
        found = dict.fromkeys(one for key in keys for one in self._sets_of(key) if one not in woken)
        for target, set_key in found:
            self._send(target.queue_url, own_message(Origin.PART, self._bucket, set_key))
        return list(found)

    def note_expirations(self, keys: Iterable[str], *, now: int, keep_seconds: int) -> None:
        """Record for each set of these objects that a lifecycle rule has removed parts. Call it before `wake`.

        Args:
            keys: of the objects that expired.
            now: epoch milliseconds.
            keep_seconds: the time for which the record stays.

        """
        for target, set_key in dict.fromkeys(one for key in keys for one in self._sets_of(key)):
            self._membership.note_expiration(target.name, set_key, now=now, keep_seconds=keep_seconds)

    def _sets_of(self, key: str) -> Iterator[Wake]:
        for target in self._targets:
            own = target.form.set_of(key)
            if own is not None:
                yield target, own
            if target.form.kind is FormKind.MANIFEST:
                for set_key in self._membership.sets_of(target.name, key):
                    yield target, set_key
