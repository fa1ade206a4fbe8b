"""The runtime's requests to S3, and its reading of the answers in AWS's documentation."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import Bucket
from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.errors import ObjectGone
from tests.unit.support import BUCKET, KEY

MODIFIED = datetime(2026, 11, 21, 17, 0, tzinfo=UTC)
MODIFIED_MS = 1_795_280_400_000
OWNER = "111122223333"


def refusal(status: int, code: str, headers: Mapping[str, str] | None = None) -> ClientError:
    """An error of S3, with the headers that came with it."""
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": dict(headers or {})}
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": metadata}
    return ClientError(answer, "HeadObject")


@dataclass(slots=True)
class FakeClient:
    """Answers once, with a dict or an error, and remembers the question."""

    answer: Mapping[str, Any] | ClientError
    asked: dict[str, Any] = field(default_factory=dict)
    listing: Mapping[str, Any] | ClientError = field(default_factory=lambda: refusal(403, "AccessDenied"))
    listed: list[dict[str, Any]] = field(default_factory=list)

    def list_object_versions(self, **arguments: Any) -> Mapping[str, Any]:
        self.listed.append(arguments)
        if isinstance(self.listing, ClientError):
            raise self.listing
        return self.listing

    def get_paginator(self, operation: str) -> "FakeClient":
        assert operation == "list_object_versions"
        return self

    def paginate(self, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        yield self.list_object_versions(**arguments)
        yield {"Versions": [{"Key": KEY, "VersionId": "second page"}]}

    def head_object(self, **arguments: Any) -> Mapping[str, Any]:
        self.asked = arguments
        if isinstance(self.answer, ClientError):
            raise self.answer
        return self.answer

    get_object = head_object


def bucket(client: FakeClient, owner: str | None = None) -> Bucket:
    return Bucket(lambda: cast("Any", client), BUCKET, owner)


def stream() -> dict[str, Any]:
    """Return a GetObject answer."""
    return {"Body": io.BytesIO(b"bytes"), "ContentLength": 5}


OBJECT = {"ETag": '"e1"', "ContentLength": 5, "LastModified": MODIFIED}
MARKER = {"x-amz-delete-marker": "true", "x-amz-version-id": "m1"}
VERSION, ITS_MARKER = State(StateKind.OBJECT, "v1", "e1"), State(StateKind.MARKER, "m1")
DATED = refusal(405, "405", {"last-modified": "Sat, 21 Nov 2026 17:00:00 GMT"})


@pytest.mark.failure_mode("F45")
@pytest.mark.parametrize(
    ("ask", "status", "code"),
    [
        *((ask, *said) for ask in ("look", "created_at") for said in ((403, "403"), (503, "SlowDown"), (400, "400"))),
        *(("open", *said) for said in ((403, "AccessDenied"), (503, "SlowDown"))),
        *(("look", 301, "301"), ("shows_removal", 503, "503")),
    ],
)
def test_an_answer_that_says_nothing_is_an_error(ask: str, status: int, code: str) -> None:
    """Without s3:ListBucket a missing object is 403: that must never be taken for a removal. Taken for an unknown age,
    a forgotten marker would be reported as a removal again. A version that cannot be opened now is still there.
    """
    state = () if ask == "look" else (VERSION if ask == "open" else ITS_MARKER,)
    with pytest.raises(ClientError):
        getattr(bucket(FakeClient(refusal(status, code))), ask)(KEY, *state)


class TestLook:
    """HEAD of a key: S3 itself says which state is current."""

    @pytest.mark.failure_mode("F36")
    @pytest.mark.parametrize(
        ("answer", "state"),
        [
            (OBJECT | {"VersionId": "v1"}, State(StateKind.OBJECT, "v1", "e1", 5, MODIFIED_MS)),
            (OBJECT | {"VersionId": "null"}, State(StateKind.OBJECT, None, "e1", 5, MODIFIED_MS)),
            (OBJECT, State(StateKind.OBJECT, None, "e1", 5, MODIFIED_MS)),
            (refusal(404, "404", MARKER), State(StateKind.MARKER, "m1")),
            (refusal(404, "404"), ABSENT),
        ],
        ids=["a version", "the version null", "no version", "a delete marker, by its 404", "a plain 404"],
    )
    def test_the_state_of_a_key(self, answer: Mapping[str, Any] | ClientError, state: State) -> None:
        """The version of an object, if there are any, its bare ETag, and its date in milliseconds."""
        client = FakeClient(answer)
        assert bucket(client).look(KEY) == state
        assert client.asked == {"Bucket": BUCKET, "Key": KEY}

    def test_a_delete_marker_of_suspended_versioning(self) -> None:
        """F36: its id is `null`: it reads like nothing at all."""
        answer = refusal(404, "404", MARKER | {"x-amz-version-id": "null"})
        assert bucket(FakeClient(answer)).look(KEY).identity == ABSENT.identity

    @pytest.mark.failure_mode("F45")
    @pytest.mark.parametrize(("status", "asks"), [(400, True), (403, True), (301, False), (500, False), (503, False)])
    def test_only_a_refusal_is_a_reason_to_list(self, status: int, asks: bool) -> None:
        """And if S3 refuses that too, its word is the error."""
        client = FakeClient(refusal(status, str(status)))
        with pytest.raises(ClientError):
            bucket(client).look(KEY)
        assert client.listed == ([{"Bucket": BUCKET, "Prefix": KEY, "MaxKeys": 1}] if asks else [])

    @pytest.mark.failure_mode("F45")
    @pytest.mark.parametrize(
        ("listing", "state"),
        [
            (
                {"Versions": [{"Key": KEY, "VersionId": "v1", "ETag": '"e1"', "Size": 5, "LastModified": MODIFIED}]},
                State(StateKind.OBJECT, "v1", "e1", 5, MODIFIED_MS),
            ),
            (
                {"Versions": [{"Key": KEY, "VersionId": "null", "ETag": '"e1"', "Size": 5, "LastModified": MODIFIED}]},
                State(StateKind.OBJECT, None, "e1", 5, MODIFIED_MS),
            ),
            (
                {"DeleteMarkers": [{"Key": KEY, "VersionId": "m1", "LastModified": MODIFIED}]},
                State(StateKind.MARKER, "m1", None, None, MODIFIED_MS),
            ),
            ({"Versions": [{"Key": f"{KEY}2", "VersionId": "v1", "ETag": '"e1"', "Size": 5}]}, ABSENT),
            ({}, ABSENT),
        ],
    )
    def test_what_s3_refuses_to_show_is_in_its_listing(self, listing: Mapping[str, Any], state: State) -> None:
        """An object under a customer's key (400) or withheld by a policy for its tags (403) keeps its state. A key that
        only begins with this key is another object.
        """
        assert bucket(FakeClient(refusal(403, "403"), listing=listing)).look(KEY) == state

    @pytest.mark.failure_mode("F29")
    def test_the_expected_owner_goes_with_every_call(self) -> None:
        """S3 refuses a bucket of this name if another account owns it now."""
        client = FakeClient({"ETag": '"e1"', "ContentLength": 5, "LastModified": MODIFIED} | stream())
        mine = bucket(client, OWNER)
        for ask in (
            lambda: mine.look(KEY),
            lambda: mine.open(KEY, State(StateKind.OBJECT, "v1", "e1")),
            lambda: mine.created_at(KEY, State(StateKind.MARKER, "m1")),
        ):
            ask()
            assert client.asked["ExpectedBucketOwner"] == OWNER
        refusing = FakeClient(refusal(403, "403"), listing={})
        bucket(refusing, OWNER).look(KEY)
        assert refusing.listed[0]["ExpectedBucketOwner"] == OWNER


class TestCreatedAt:
    """A marker's age is not in the answer to a look."""

    @pytest.mark.parametrize(
        ("answer", "version", "age"),
        [(DATED, "m1", MODIFIED_MS), (refusal(405, "405"), "m1", None), (DATED, None, MODIFIED_MS)],
        ids=["S3 answers 405 with its date", "S3 does not say it", "a bucket without versions"],
    )
    def test_it_is_in_the_refusal_of_the_marker_itself(
        self, answer: ClientError, version: str | None, age: int | None
    ) -> None:
        client = FakeClient(answer)
        assert bucket(client).created_at(KEY, State(StateKind.MARKER, version)) == age
        assert client.asked["VersionId"] == (version or "null")

    @pytest.mark.failure_mode("F94")
    def test_a_marker_that_went_meanwhile_has_no_age(self) -> None:
        """Taken for young, its removal would be told a second time; the key has to be looked at again."""
        with pytest.raises(ObjectGone):
            bucket(FakeClient(refusal(404, "404"))).created_at(KEY, ITS_MARKER)


class TestOpen:
    """Exactly the claimed bytes."""

    @pytest.mark.failure_mode("F52")
    @pytest.mark.parametrize(
        ("version", "condition"),
        [("v1", {"VersionId": "v1"}), (None, {"IfMatch": '"e1"'})],
        ids=["by its version, and never by the key alone", "by its ETag without versions"],
    )
    def test_an_object_is_opened(self, version: str | None, condition: dict[str, str]) -> None:
        """S3 refuses overwritten bytes."""
        client = FakeClient(stream())
        assert bucket(client).open(KEY, State(StateKind.OBJECT, version, "e1")).read() == b"bytes"
        assert client.asked == {"Bucket": BUCKET, "Key": KEY, "ChecksumMode": "ENABLED"} | condition

    @pytest.mark.failure_mode("F53")
    @pytest.mark.parametrize(
        ("status", "code"),
        [(404, "NoSuchKey"), (404, "NoSuchVersion"), (405, "MethodNotAllowed"), (412, "PreconditionFailed")],
    )
    def test_what_is_gone(self, status: int, code: str) -> None:
        """Deleted for good, or overwritten."""
        with pytest.raises(ObjectGone, match="no longer holds v#v1"):
            bucket(FakeClient(refusal(status, code))).open(KEY, State(StateKind.OBJECT, "v1", "e1"))

    @pytest.mark.parametrize("state", [ABSENT, State(StateKind.MARKER, "m1"), State(StateKind.DELETED, "v1")])
    def test_a_removal_has_nothing_to_open(self, state: State) -> None:
        """S3 is not asked."""
        client = FakeClient({})
        with pytest.raises(ValueError, match="nothing to open"):
            bucket(client).open(KEY, state)
        assert client.asked == {}


def test_the_client_is_made_when_it_is_first_needed_and_once() -> None:
    """Most invocations of a consumer never look, and a client costs a tenth of a second."""
    made: list[FakeClient] = []

    def make() -> Any:
        made.append(FakeClient(stream()))
        return made[-1]

    lazy = Bucket(make, BUCKET)
    assert made == []
    for _ in range(2):
        lazy.open(KEY, State(StateKind.OBJECT, "v1", "e1"))
    assert len(made) == 1


class TestShowsRemoval:
    """Check if a version is a delete marker, or was deleted permanently."""

    @pytest.mark.failure_mode("F104")
    @pytest.mark.parametrize(
        ("answer", "found"),
        [
            pytest.param({"ETag": '"e"'}, StateKind.OBJECT, id="an object"),
            pytest.param(refusal(405, "405"), StateKind.MARKER, id="a marker"),
            pytest.param(refusal(404, "404", {"x-amz-delete-marker": "true"}), StateKind.MARKER, id="a marker, by 404"),
            pytest.param(refusal(404, "404"), StateKind.DELETED, id="gone"),
        ],
    )
    @pytest.mark.parametrize("said", [StateKind.MARKER, StateKind.DELETED])
    def test_only_what_s3_shows_is_true(
        self, answer: Mapping[str, Any] | ClientError, found: StateKind, said: StateKind
    ) -> None:
        """The very version is asked for."""
        client = FakeClient(answer)
        assert bucket(client, OWNER).shows_removal(KEY, State(said, "v1")) is (found is said)
        assert client.asked == {"Bucket": BUCKET, "ExpectedBucketOwner": OWNER, "Key": KEY, "VersionId": "v1"}

    @pytest.mark.failure_mode("F104")
    def test_the_marker_of_a_bucket_without_versions(self) -> None:
        """Its id is `null`."""
        client = FakeClient(refusal(405, "405"))
        assert bucket(client).shows_removal(KEY, State(StateKind.MARKER))
        assert client.asked["VersionId"] == "null"

    @pytest.mark.failure_mode("F104")
    @pytest.mark.parametrize("status", [400, 403])
    @pytest.mark.parametrize(
        ("page", "found"),
        [
            ({"Versions": [{"Key": KEY, "VersionId": "v1"}]}, StateKind.OBJECT),
            ({"DeleteMarkers": [{"Key": KEY, "VersionId": "v1"}]}, StateKind.MARKER),
            ({"Versions": [{"Key": f"{KEY}2", "VersionId": "v1"}], "NextKeyMarker": f"{KEY}2"}, StateKind.DELETED),
        ],
    )
    def test_where_s3_refuses_the_head_the_listing_says_it(
        self, status: int, page: Mapping[str, Any], found: StateKind
    ) -> None:
        """A policy may withhold the object."""
        client = FakeClient(refusal(status, str(status)), listing=page)
        for said in (StateKind.MARKER, StateKind.DELETED):
            assert bucket(client).shows_removal(KEY, State(said, "v1")) is (found is said)

    @pytest.mark.failure_mode("F104")
    def test_the_listing_may_have_several_pages(self) -> None:
        """S3 lists a thousand versions at a time."""
        client = FakeClient(refusal(403, "403"), listing={"NextKeyMarker": KEY})
        assert not bucket(client).shows_removal(KEY, State(StateKind.DELETED, "second page"))
