"""Call the processor of a set, if the set is still the claimed one and complete."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from intake_ledger.consumer import ClaimOutputs, Progress, Services
from intake_ledger.ledger import AWS_ERRORS, Claim
from intake_ledger.processor import OpenedObject
from intake_ledger.processor.file_set import FileSet, SetFile, SetProcessor
from intake_ledger.protocol import (
    MAX_RETRY_IN,
    LibraryError,
    NotYet,
    ObjectGone,
    Ordering,
    State,
    Unprocessable,
)
from intake_ledger.set_members import FormKind, Membership
from intake_ledger.sets.reader import SHRINKING, Contents, Listing, SetReader, known_row
from intake_ledger.sets.settings import SetSettings


class SetCall:
    """Calls a processor of sets."""

    writes = True

    def __init__(
        self,
        services: Services,
        processor: SetProcessor,
        *,
        settings: SetSettings,
        reader: SetReader,
        membership: Membership,
    ) -> None:
        self._clock = services.clock
        self._bucket = services.bucket
        self._output_client = services.output_client
        self._processor = processor
        self._settings = settings
        self._reader = reader
        self._membership = membership
        self.package = str(getattr(processor, "__module__", "")).partition(".")[0]

    def __call__(
        self,
        claim: Claim,
        progress: Progress,
        *,
        limit: AbstractContextManager[None],
        remaining_seconds: Callable[[], float],
    ) -> object:
        """Call the processor; see `ProcessorCall`.

        Raises:
            NotYet: A part is missing, or the folder is not quiet yet.
            Unprocessable: The manifest is malformed.
            ObjectGone: The set is not the claimed one any more. Nothing has begun. The set is judged again.
            ClientError: S3 refuses to read the manifest.
            LibraryError: The rows of the parts could not be read.

        """
        with ExitStack() as opened:
            # The parts are closed after the limit, as those of an object.
            streams = opened.enter_context(ExitStack())
            opened.enter_context(limit)
            contents = self._contents(claim)
            self._check(claim, contents)
            files = self._files(claim, contents, streams, remaining_seconds)
            progress.begun = True
            try:
                return self._processor(files)
            except ObjectGone as gone:
                # The commit of another version wakes the set. Until then, each attempt would end like this one.
                raise NotYet(f"a version of a part is gone: {gone}") from gone

    def _contents(self, claim: Claim) -> Contents:
        """The set as the ledger knows it now.

        A manifest's parts are recorded before their rows are read, so that each later commit of one wakes the set.
        """
        key = claim.change.key
        listing = self._reader.listing(key)
        try:
            self._register(key, listing)
            row = known_row(claim.change, claim.seen)
            return self._reader.contents(key, listing, row=row, whole=True)
        except AWS_ERRORS as error:
            # It would be taken for S3's refusal of an object.
            raise LibraryError("the rows of the parts could not be read or recorded", detail=repr(error)) from error

    def _register(self, key: str, listing: Listing) -> None:
        if self._settings.form.kind is FormKind.MANIFEST and listing.keys:
            self._membership.register(self._settings.consumer.pipeline, key, listing.source.identity, listing.keys)

    def _check(self, claim: Claim, contents: Contents) -> None:
        """Raise an error unless the set is complete and the claimed one."""
        if contents.state.identity != claim.state.identity:
            raise ObjectGone(f"{claim.change.key}: the set has changed since it was claimed")
        listing = contents.listing
        if listing.refusal is not None:
            raise listing.refusal
        if listing.problem is not None:
            raise Unprocessable(listing.problem)
        if contents.quiet_at is not None:
            rest = (contents.quiet_at - self._clock()) / 1000
            what = "removal" if (claim.state.version_id or "").startswith(SHRINKING) else "upload"
            why = f"the folder is not quiet yet: the last {what} was a moment ago"
            raise NotYet(why, retry_in=min(max(rest, 1), MAX_RETRY_IN))
        if contents.missing:
            raise NotYet(contents.what_is_missing())

    def _files(
        self, claim: Claim, contents: Contents, streams: ExitStack, remaining_seconds: Callable[[], float]
    ) -> FileSet:
        def file(key: str, state: State) -> SetFile:
            opened = OpenedObject(partial(self._bucket.open, key, state), one_of_many=True)
            return SetFile(key, state, streams.enter_context(opened))

        change, source = claim.change, contents.listing.source
        quiet = self._settings.form.kind is FormKind.QUIET
        return FileSet(
            bucket=change.bucket,
            key=change.key,
            version=claim.state.version_id or "",
            manifest=None if quiet else file(change.key, source),
            parts=tuple(file(key, contents.parts[key]) for key in contents.listing.keys),
            attempt=claim.row.attempts,
            fence=claim.row.fence,
            idempotency_key=self._idempotency_key(claim),
            _remaining_seconds=remaining_seconds,
            _output=ClaimOutputs(
                claim, Ordering.LATEST, self._output_client, removals=self._settings.consumer.deletes
            ).output,
        )

    def _idempotency_key(self, claim: Claim) -> str:
        # As that of an object: a version that returns is another one, and only retries keep `first_claimed_at`.
        change, pipeline = claim.change, self._settings.consumer.pipeline
        facts = (pipeline, change.bucket, change.key, claim.state.identity, str(claim.row.first_claimed_at))
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
