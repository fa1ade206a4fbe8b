"""Sets of files. The truth is the manifest, marker or folder with the versions of the parts that are committed."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.clients import bucket_client
from intake_ledger.consumer.batch import ANY_ORDER, Batch
from intake_ledger.events.parser import read_batch
from intake_ledger.kinds import FORMAT, ReceivedMessages, fences_of
from intake_ledger.kinds.objects import ClaimOutputs, claim_rejects, no_place
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS, LedgerTable
from intake_ledger.ledger.ledger import Claim, FencingGuard, present_state
from intake_ledger.processor.file_set import FileSet, SetFile
from intake_ledger.processor.object_stream import OpenedObject
from intake_ledger.protocol.change import Change, State, state_key
from intake_ledger.protocol.errors import MAX_RETRY_IN, LibraryError, NotYet, ObjectGone, Unprocessable
from intake_ledger.protocol.row import Ordering, Row, RowCounts
from intake_ledger.set_members.forms import FormKind
from intake_ledger.set_members.membership import Membership
from intake_ledger.sets.reader import COMPLETE, SHRINKING, Contents, Listing, SetReader, known_row
from intake_ledger.sets.settings import SetSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger.options.rejects import ClaimRejects


class PartLists(Protocol):
    """Keeps the lists of the parts of sets, for processors elsewhere. An input of an execution has no room for them."""

    def place(self, version: str) -> Mapping[str, str]:
        """The place of the list of this version, as the request names it."""

    def put(self, version: str, content: bytes) -> None:
        """Store the list. The version of a set has one content, so that a second write changes nothing."""


class S3PartLists:
    """Lists in S3, in the form that a distributed map of Step Functions reads."""

    def __init__(self, make_client: "Callable[[], S3Client]", place: str) -> None:
        """Make the lists. `place` is the bucket's name, a slash, and the beginning of their keys."""
        self._make_client = make_client
        self._bucket, _, self._prefix = place.partition("/")

    def place(self, version: str) -> Mapping[str, str]:
        """See `PartLists`."""
        return {"bucket": self._bucket, "key": f"{self._prefix}{version}.json"}

    def put(self, version: str, content: bytes) -> None:
        """See `PartLists`."""
        self._make_client().put_object(Bucket=self._bucket, Key=f"{self._prefix}{version}.json", Body=content)


class Sets:
    """The kind of sets of files; see `Kind`."""

    def __init__(
        self,
        settings: SetSettings,
        table: LedgerTable,
        bucket: Bucket,
        membership: Membership,
        clock: Callable[[], int],
        *,
        output_client: "Callable[[], S3Client]" = bucket_client,
        lists: PartLists | None = None,
        guards: Sequence[FencingGuard] = (),
    ) -> None:
        """Make the kind.

        Args:
            settings: of the sets.
            table: the table of the rows of the sets and of their parts.
            bucket: reads objects.
            membership: records the parts of manifests.
            clock: gives epoch milliseconds.
            output_client: as for objects.
            lists: keeps the parts for a processor elsewhere. There is none when omitted.
            guards: as for objects.

        """
        self.guards = guards
        self.settings = settings
        self.reader = SetReader(table, bucket, settings, clock)
        self.bucket = bucket
        self.membership = membership
        self.clock = clock
        self.output_client = output_client
        self.lists = lists

    def read(self, event: Mapping[str, Any]) -> ReceivedMessages:
        """See `Kind`."""
        return ReceivedMessages(read_batch(event), ANY_ORDER)

    def look(self, change: Change, row: Row | None) -> State | None:
        """See `Kind`."""
        return present_state(self.reader, change, row)

    def work(self, claim: Claim) -> "SetWork":
        """See `Kind`."""
        return SetWork(claim, self)

    def shortened(self, body: str) -> None:
        """See `Kind`."""

    def before_acknowledging(self, batch: Batch) -> None:
        """See `Kind`."""


class SetWork:
    """The set, if it is still the claimed one and complete; see `Work`."""

    def __init__(self, claim: Claim, kind: Sets) -> None:
        self._claim = claim
        self._kind = kind
        self._streams = ExitStack()
        self._rejects: ClaimRejects | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._streams.close()

    def ready(self, remaining_seconds: Callable[[], float], *, together: bool = False) -> FileSet:  # noqa: ARG002 - no call has several sets
        """See `Work`."""
        claim, contents = self._claim, self._checked()
        quiet, settings = self._kind.settings.form.kind is FormKind.QUIET, self._kind.settings.consumer
        outputs = ClaimOutputs(claim, Ordering.LATEST, self._kind.output_client, removals=settings.deletes)
        if settings.rejects is not None:
            self._rejects = claim_rejects(outputs, settings, self._streams.enter_context)
        return FileSet(
            bucket=claim.change.bucket,
            key=claim.change.key,
            version=claim.state.version_id or "",
            manifest=None if quiet else self._file(claim.change.key, contents.listing.source),
            parts=tuple(self._file(key, contents.parts[key]) for key in contents.listing.keys),
            attempt=claim.row.attempts,
            fence=claim.row.fence,
            idempotency_key=self._idempotency_key(),
            **fences_of(self._kind.guards, claim),
            _remaining_seconds=remaining_seconds,
            _output=outputs.output,
        )

    def returned(self) -> RowCounts | None:
        """See `Work`."""
        return None if self._rejects is None else self._rejects.write()

    def request(self, *, repeated: bool = False) -> dict[str, Any]:
        """See `Work`. The list of the parts is stored before: the set may have changed at a repeated request.

        Only a complete version was ever requested, so another one is checked each time. If the list of a complete one
        was not stored, and the set has changed, the request names a list that is not there: its fence is used up by
        work that cannot begin.
        """
        claim, lists, version = self._claim, self._kind.lists, self._claim.state.version_id or ""
        if lists is None:
            raise NotImplementedError("a processor of sets elsewhere needs a place for the lists of parts")
        sent_before = repeated and version.startswith(f"{COMPLETE}-")
        with suppress(*((ObjectGone, NotYet, Unprocessable) if sent_before else ())):
            contents = self._checked(repeated=sent_before)
            files = [(key, contents.parts[key]) for key in contents.listing.keys]
            parts = [{"key": key, "versionId": state.version_id, "etag": state.etag} for key, state in files]
            try:
                lists.put(version, json.dumps(parts).encode())
            except AWS_ERRORS as error:
                # It would be taken for S3's refusal of an object.
                raise LibraryError("the list of the parts could not be stored", detail=repr(error)) from error
        return {
            "format": FORMAT,
            "bucket": claim.change.bucket,
            "key": claim.change.key,
            "kind": "created",
            "versionId": version,
            "parts": lists.place(version),
            "attempt": claim.row.attempts,
            "fence": claim.row.fence,
            "idempotencyKey": self._idempotency_key(),
            **fences_of(self._kind.guards, claim, in_json=True),
        }

    def gone(self, error: ObjectGone) -> Exception:
        """See `Work`. The commit of another version wakes the set. Until then, each attempt would end like this one."""
        return NotYet(f"a version of a part is gone: {error}")

    def _checked(self, *, repeated: bool = False) -> Contents:
        """The contents of the set, if it is complete and the claimed one. `repeated` is as in `request`."""
        try:
            contents = self._contents()
            self._check(contents)
        except ClientError as error:
            if not repeated:
                raise
            # The fence must stay: a paused worker may still start its work.
            raise LibraryError("the set could not be read again", detail=repr(error)) from error
        return contents

    def _contents(self) -> Contents:
        """The set as the ledger knows it now.

        A manifest's parts are recorded before their rows are read, so that each later commit of one wakes the set.
        """
        kind, key = self._kind, self._claim.change.key
        listing = kind.reader.listing(key)
        try:
            self._register(key, listing)
            row = known_row(self._claim.change, self._claim.seen)
            return kind.reader.contents(key, listing, row=row, whole=True)
        except AWS_ERRORS as error:
            # It would be taken for S3's refusal of an object.
            raise LibraryError("the rows of the parts could not be read or recorded", detail=repr(error)) from error

    def _register(self, key: str, listing: Listing) -> None:
        settings = self._kind.settings
        if settings.form.kind is FormKind.MANIFEST and listing.keys:
            self._kind.membership.register(settings.consumer.pipeline, key, listing.source.identity, listing.keys)

    def _check(self, contents: Contents) -> None:
        """Raise an error unless the set is complete and the claimed one."""
        claim = self._claim
        if contents.state.identity != claim.state.identity:
            raise ObjectGone(f"{claim.change.key}: the set has changed since it was claimed")
        listing = contents.listing
        if listing.refusal is not None:
            raise listing.refusal
        if listing.problem is not None:
            raise Unprocessable(listing.problem)
        if contents.quiet_at is not None:
            rest = (contents.quiet_at - self._kind.clock()) / 1000
            what = "removal" if (claim.state.version_id or "").startswith(SHRINKING) else "upload"
            why = f"the folder is not quiet yet: the last {what} was a moment ago"
            raise NotYet(why, retry_in=min(max(rest, 1), MAX_RETRY_IN))
        if contents.missing:
            raise NotYet(contents.what_is_missing())

    def _file(self, key: str, state: State) -> SetFile:
        opened = self._streams.enter_context(
            OpenedObject(partial(self._kind.bucket.open, key, state), one_of_many=True)
        )
        begin = no_place if self._rejects is None else partial(self._rejects.begin, source=key, state=state)
        return SetFile(key, state, opened, begin)

    def _idempotency_key(self) -> str:
        claim, pipeline = self._claim, self._kind.settings.consumer.pipeline
        change = claim.change
        return state_key(pipeline, change.bucket, change.key, claim.state.identity, claim.row.first_claimed_at)
