"""The commits of a ledger, and what S3 still has of them: their versions and their outputs. Reads only."""

import hashlib
import heapq
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import s3_refusal
from intake_ledger.outputs.conditional_put import Present, source_of
from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.errors import OutputError
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import denied_action
from intake_ledger_cli.rehearsal import compare
from intake_ledger_cli.rehearsal.side import Outcome, VersionLost

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

_GONE = frozenset({404, 405, 412})
_CHUNK = 1024 * 1024
_ARCHIVED = "InvalidObjectState"


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last commit of a row. The row may have a later claim, or a settled removal."""

    key: str
    row: Row
    identity: str
    fence: int

    @property
    def is_last_claim(self) -> bool:
        """True if the row describes the attempt that committed. Its number and its event are known then."""
        return self.row.fence == self.fence and self.row.identity == self.identity

    @property
    def known_state(self) -> State | None:
        """The state, if the row describes it. A removal needs no look at S3."""
        if self.identity == ABSENT.identity:
            return ABSENT
        if self.identity.startswith("d#"):
            return State(StateKind.DELETED, self.identity[2:])
        return self.row.state if self.row.identity == self.identity else None


def last_commits(client: "DynamoDBClient", deployed: DeployedPipeline, most: int, prefix: str) -> list[LastCommit]:
    """The newest commits, the oldest of them first. Reads the whole table.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        most: the largest number.
        prefix: of the keys.

    """
    has_commit: reading.Condition = ("committed_fence", "#committed_fence > :none", ":none", 0)
    pages = client.get_paginator("scan").paginate(**reading.scan_request(deployed, has_commit, prefix=prefix))
    rows = (entry for page in pages for _, entry in reading.entries_of(deployed, page["Items"]))
    copies = deployed.setting("same_content") is not None
    found = (
        one for entry in rows if not deployed.is_control(entry.key) for one in _commit_of(entry.key, entry.row, copies)
    )
    return heapq.nlargest(most, found, key=lambda one: (one.fence, one.key))[::-1]


def _commit_of(key: str, row: Row, copies: bool) -> Iterator[LastCommit]:
    """The commit of a row. A row that settled a removal by itself has that of the version before, if it knows it.

    A copy in place has the outputs and the result of an earlier version. With `copies`, only the row of the commit
    itself says that it is none.
    """
    settled = row.settled_as is not None
    called = row.status is Status.PROCESSED and not settled and row.reason_code in (None, ReasonCode.RESULT_NOT_KEPT)
    is_copy = row.reason_code == ReasonCode.SAME_CONTENT or (copies and not called)
    if row.status is Status.LATER_FORMAT or is_copy:
        return
    identity, fence = (row.kept_state, row.kept_fence) if settled else (row.committed_state, row.committed_fence)
    if identity is not None and fence is not None:
        yield LastCommit(key, row, identity, fence)


class Versions:
    """The bucket of the pipeline. It requests exact versions only: by ID, or by ETag without versioning."""

    def __init__(self, client: "S3Client", deployed: DeployedPipeline) -> None:
        """Make it. `client` is that of S3."""
        self._client = client
        self._place = {"Bucket": deployed.bucket}
        self._place |= {"ExpectedBucketOwner": deployed.bucket_owner} if deployed.bucket_owner else {}

    def look(self, commit: LastCommit) -> State:
        """The state that was committed, as S3 still has it.

        Raises:
            VersionLost: S3 has it no more.
            ClientError: S3 refuses the look.

        """
        known = commit.known_state
        if known is not None and known.removed:
            return known
        try:
            head = self._client.head_object(**self._version(commit))
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == 405 and commit.identity.startswith("v#"):
                return State(StateKind.MARKER, commit.identity[2:])
            if status in _GONE:
                raise VersionLost("S3 no longer has the version") from error
            raise
        version = commit.identity[2:] if commit.identity.startswith("v#") else None
        return State(StateKind.OBJECT, version, head["ETag"], head["ContentLength"])

    def open(self, commit: LastCommit) -> Mapping[str, Any]:
        """Request the content.

        Raises:
            VersionLost: S3 does not give it any more: it was deleted meanwhile, or it is archived.
            ClientError: S3 refuses for another reason, such as a permission.

        """
        try:
            return self._client.get_object(**self._version(commit), ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in _GONE:
                raise VersionLost("S3 no longer has the version") from error
            if s3_refusal(error) == _ARCHIVED:
                raise VersionLost("the version is archived") from error
            raise

    def _version(self, commit: LastCommit) -> Any:
        form, _, name = commit.identity.partition("#")
        exactly = {"VersionId": name} if form == "v" else {"IfMatch": f'"{name}"'}
        return {**self._place, "Key": commit.key, **exactly}


class Outputs:
    """The outputs in S3. Each names the claim that wrote it."""

    def __init__(self, client: "S3Client", ordering: Ordering) -> None:
        """Make them. `client` is that of S3."""
        self._client, self._ordering = client, ordering

    def differences(self, commit: LastCommit, outcome: Outcome) -> Iterator[tuple[str, str, bool]]:
        """Compare the outputs of a run with those that the commit has left.

        Yields:
            the name of an output, the difference, and whether it is one. Otherwise S3 does not show what was committed.

        """
        version = commit.identity if self._ordering is Ordering.EVERY_VERSION else None
        for one in outcome["outputs"]:
            name = f"output s3://{one['bucket']}/{one['key']}"
            try:
                answer = self._client.get_object(Bucket=one["bucket"], Key=one["key"])
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                if denied_action(error) is not None:
                    yield name, "s3:GetObject is denied", False
                elif status != 404:
                    raise
                elif not one["removed"]:
                    yield name, "S3 has none: it was deleted, or the committed code has not written it", False
                continue
            with closing(answer["Body"]) as body:
                found = _compare(one, answer, body, fence=commit.fence, source=source_of(commit.key, version))
                if found is not None:
                    yield name, *found


def _compare(made: Mapping[str, Any], answer: Any, body: Any, *, fence: int, source: str) -> tuple[str, bool] | None:
    try:
        stored = Present.of(answer)
    except OutputError as later:
        return str(later), False
    if stored.mark is None or stored.source != source or stored.mark.fence < fence:
        return "the committed code has not written it", True
    if stored.mark.fence > fence:
        return "a later attempt has written it", False
    is_tombstone = stored.removed_by is not None
    old = compare.described_output(is_tombstone, answer["ContentLength"], answer.get("ContentType"))
    new = compare.described_output(made["removed"], made["size"], made["contentType"])
    if differs := compare.described_change(old, new):
        return differs, True
    digest = hashlib.sha256()
    while part := body.read(_CHUNK):
        digest.update(part)
    return None if digest.hexdigest() == made["sha256"] else (f"other content of {made['size']:,} bytes", True)
