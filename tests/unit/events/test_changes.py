"""Parse every form in which a change is reported, and everything else that may be in a queue."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intake_ledger.events.parser import Ignored, Parsed, Unparseable, own_message, parse_message
from intake_ledger.protocol.change import ABSENT, Change, Origin, State, StateKind
from tests.settings import examples
from tests.unit.support import (
    BUCKET,
    KEY,
    START,
    audited,
    created,
    deleted,
    eventbridge,
    marked,
    notification,
    one_change,
    record,
    redriven,
    reprocess,
    sns,
)

OBJECT = State(StateKind.OBJECT, "3HL4kqtJvjVBH40Nrjfkd", "d41d8cd98f00b204e9800998ecf8427f", 1024, START)
PLAIN = replace(OBJECT, version_id=None)
MARKER = State(StateKind.MARKER, "mark3r", created_at=START)
ULID = "01KA0000000000000000000001"
TRICKY = [
    "a+b.csv",
    "a%2Bb.csv",
    "a b.csv",
    "ä.csv",
    "a%20b",
    "100%",
    "%",
    "+",
    " ",
    "a//b",
    "/a",
    "..",
    "🎉",
    "a\nb",
    "&=?",
]


def _is_key(key: str) -> bool:
    try:
        return len(key.encode()) <= 1024
    except UnicodeEncodeError:
        return False


KEYS = st.text(min_size=1, max_size=200).filter(_is_key)


def unparseable(body: str) -> str:
    """Why a body cannot be understood."""
    [found] = parse_message(body)
    assert isinstance(found, Unparseable), found
    assert found.body == body
    return found.why


def ignored(body: str) -> str:
    """Why a body asks for nothing."""
    [found] = parse_message(body)
    assert isinstance(found, Ignored), found
    return found.why


def with_key(written: str) -> str:
    """A notification whose key is written so."""
    one = record("x", OBJECT)
    one["s3"]["object"]["key"] = written
    return notification(one)


def at(written: str) -> str:
    """A notification whose time is written so."""
    return notification(record(KEY, OBJECT) | {"eventTime": written})


def other_event(**fields: Any) -> str:
    """An event of EventBridge with other fields."""
    return json.dumps(json.loads(eventbridge(KEY, OBJECT)) | fields)


CREATED = notification(record(KEY, OBJECT))
INDENTED = json.dumps({"Records": [record(KEY, OBJECT)], "extra": 1}, indent=3)
LONGEST = "€" * 341 + "k"
"""1,024 bytes, each of them form-encoded as three."""
NO_EVENT: dict[str, Any] = {"reported_as_new": False, "sequencer": None, "event_time": None}
CHANGES: dict[str, tuple[Change, dict[str, Any]]] = {
    **{
        f"a creation of the kind {kind}, also one that S3 has not invented yet": (
            one_change(notification(record(KEY, OBJECT, f"ObjectCreated:{kind}"))),
            {"state": OBJECT},
        )
        for kind in ("Put", "Post", "Copy", "CompleteMultipartUpload", "SomethingNew")
    },
    **{
        f"without a version, spelled {spelling!r}, the ETag is the identity": (
            created(replace(OBJECT, version_id=spelling)),
            {"identity": f"e#{OBJECT.etag}", "reported_as_new": True},
        )
        for spelling in (None, "", "null")
    },
    "some clients keep the s3: of the subscription": (
        one_change(notification(record(KEY, OBJECT, "s3:ObjectCreated:Put"))),
        {"event_name": "ObjectCreated:Put"},
    ),
    "a single record keeps the body, byte for byte": (one_change(INDENTED), {"body": INDENTED}),
    "the name of an event is that of its copies": (one_change(CREATED), {"event_id": "79104EXAMPLEB723"}),
    "a delete marker, whose ETag is ignored": (marked(MARKER), {"state": MARKER, "reported_as_new": True}),
    "a delete marker of suspended versioning, about which S3 has to be asked": (
        marked(State(StateKind.MARKER)),
        {"identity": "absent", "reported_as_new": False},
    ),
    "a permanent deletion, which may be a version's or a marker's": (
        deleted(OBJECT),
        {"state": State(StateKind.DELETED, OBJECT.version_id, created_at=START), "reported_as_new": False},
    ),
    "a permanent deletion without a version: the key is gone, or has come back since": (
        deleted(PLAIN),
        {"state": None},
    ),
    "the longest key and the longest version ID": (
        created(State(StateKind.OBJECT, "v" * 1_024, "e" * 32, 1), key=LONGEST),
        {"key": LONGEST, "state": State(StateKind.OBJECT, "v" * 1_024, "e" * 32, 1, START)},
    ),
    **{
        f"the key {written} over the form encoding": (one_change(with_key(written)), {"key": key})
        for written, key in (
            *(("a%2Bb.csv", "a+b.csv"), ("a%252Bb.csv", "a%2Bb.csv"), ("a+b.csv", "a b.csv")),
            *(("a%20b.csv", "a b.csv"), ("%C3%A4.csv", "ä.csv"), ("ä.csv", "ä.csv")),
        )
    },
    **{
        f"the time {written}": (one_change(at(written)), {"event_time": 1_795_280_400_000 + milliseconds})
        for written, milliseconds in (
            *(("2026-11-21T17:00:00.123Z", 123), ("2026-11-21T17:00:00Z", 0)),
            *(("2026-11-21T17:00:00", 0), ("2026-11-21T18:00:00.5+01:00", 500)),
        )
    },
    "a creation over EventBridge, which has raw keys and whole seconds": (
        one_change(eventbridge(KEY, OBJECT, at=START + 999)),
        {
            "key": KEY,
            "state": OBJECT,
            "event_time": START,
            "event_name": "ObjectCreated:PutObject",
            "event_id": "17793124-05d4-b198-2fde-7ededc63b103",
            "origin": Origin.EVENTBRIDGE,
            "reported_as_new": True,
        },
    ),
    "over EventBridge without a version, which may be none or left out, so that S3 has to be asked": (
        one_change(eventbridge(KEY, PLAIN)),
        {"identity": f"e#{OBJECT.etag}", "reported_as_new": False},
    ),
    **{f"the raw key {key!r} over EventBridge": (one_change(eventbridge(key, OBJECT)), {"key": key}) for key in TRICKY},
    **{
        f"the audit's message about {state.kind} {state.version_id}, which nobody has asked for": (
            audited(state),
            NO_EVENT | {"state": state, "origin": Origin.AUDIT, "bucket": BUCKET, "key": KEY, "asked_for": False},
        )
        for state in (OBJECT, PLAIN, MARKER, ABSENT, State(StateKind.DELETED, "v"))
    },
    "a request to process again, which need not name a state": (
        reprocess(ULID),
        {"reprocess_id": ULID, "origin": Origin.REPROCESS, "state": None, "asked_for": True},
    ),
    **{
        f"the mark of a copy from the dead-letter queue, with {shape}": (
            one_change(body, rejected_fence=7),
            {"rejected_fence": 7, "asked_for": True, "reported_as_new": False},
        )
        for shape, body in (
            *(("a notification", CREATED), ("an event", eventbridge(KEY, OBJECT))),
            ("an audit's message", audited(OBJECT).body),
        )
    },
    "the mark of the copy of a change": (redriven(created(OBJECT), 8), {"rejected_fence": 8}),
}


@pytest.mark.failure_mode("F14", "F36", "F49", "F60", "F62", "F63", "F471")
@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_a_report_is_a_change(change: Change, told: dict[str, Any]) -> None:
    """F36, F37, F49, F50: what names no state, or may be another one's, only wakes."""
    assert {name: getattr(change, name) for name in told} == told


WITHOUT_CONTENT = """ObjectTagging:Delete ObjectAcl:Put ObjectRestore:Post ObjectRestore:Delete LifecycleTransition
    IntelligentTiering ReducedRedundancyLostObject Replication:OperationFailedReplication"""
TEST_EVENT = json.dumps(
    {"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": "2026-11-21T17:00:00Z", "Bucket": BUCKET}
)


@pytest.mark.failure_mode("F28", "F57")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        *((notification(record(KEY, OBJECT, name, sequencer=None)), name) for name in WITHOUT_CONTENT.split()),
        (other_event(**{"detail-type": "Object Tags Deleted"}), "Object Tags Deleted"),
        (TEST_EVENT, "test event"),
        (sns(TEST_EVENT), "test event"),
        ('{"Records": []}', ""),
    ],
)
def test_what_changes_no_content_asks_for_nothing(body: str, why: str) -> None:
    """Tags, tiers, an empty list, and the test event at each change of the configuration."""
    assert why in ignored(body)


class TestS3:
    """S3's own notifications."""

    def test_a_notification_of_a_creation_is_parsed(self) -> None:
        """Everything that it says."""
        change = created(OBJECT, sequencer="0055aed6dcd90281e500")
        assert change == Change(
            bucket=BUCKET,
            key=KEY,
            origin=Origin.S3,
            event_name="ObjectCreated:Put",
            body=change.body,
            state=OBJECT,
            reported_as_new=True,
            sequencer="0055aed6dcd90281e500",
            event_time=START,
        )
        assert change.identity == OBJECT.identity

    @pytest.mark.failure_mode("F40")
    @pytest.mark.parametrize("kind", ["Delete", "DeleteMarkerCreated"])
    def test_deletions_by_lifecycle_rules_are_not_new(self, kind: str) -> None:
        """They have a separate name and no sequencer, come late, and are not reported as new."""
        change = one_change(notification(record(KEY, MARKER, f"LifecycleExpiration:{kind}", sequencer=None)))
        assert change.state is not None
        assert change.state.removed
        assert (change.sequencer, change.reported_as_new) == (None, False)

    @pytest.mark.failure_mode("F471")
    @pytest.mark.parametrize("event_id", [None, "", "a b", "\u00e9", "A" * 65, 7, ["A"], {"a": 1}])
    def test_an_event_without_a_name_counts_all_the_same(self, event_id: object) -> None:
        """Senders choose the fields, and the name is for people only."""
        one = record(KEY, OBJECT) | {"responseElements": {"x-amz-request-id": event_id}}
        other = json.loads(eventbridge(KEY, OBJECT)) | {"id": event_id}
        bare = {name: value for name, value in record(KEY, OBJECT).items() if name != "responseElements"}
        odd = record(KEY, OBJECT) | {"responseElements": event_id}
        for body in (notification(one), json.dumps(other), notification(bare), notification(odd)):
            change = one_change(body)
            assert (change.event_id, change.state and change.state.identity) == (None, OBJECT.identity)

    @pytest.mark.failure_mode("F57")
    @pytest.mark.parametrize("sequencer", [None, "", "xyz", "0x1F", "\uff11", "A" * 129, 7, ["A"], {"a": 1}])
    def test_a_sequencer_that_is_none(self, sequencer: object) -> None:
        """Missing or odd: the change counts all the same."""
        one = record(KEY, OBJECT, sequencer=None)
        one["s3"]["object"]["sequencer"] = sequencer
        change = one_change(notification(one))
        assert (change.sequencer, change.state) == (None, OBJECT)

    @pytest.mark.failure_mode("F61")
    @pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.9", "2.10", "2"])
    def test_every_minor_version_is_understood(self, version: str) -> None:
        """Equal major, any minor."""
        assert one_change(notification(record(KEY, OBJECT, version=version))).state == OBJECT

    @pytest.mark.failure_mode("F61")
    @pytest.mark.parametrize("version", ["3.0", "1.0", "", "x", "20.1", "22"])
    def test_another_major_version_is_refused_with_a_reason(self, version: str) -> None:
        """It may mean something else."""
        assert repr(version) in unparseable(notification(record(KEY, OBJECT, version=version)))

    @pytest.mark.failure_mode("F30")
    def test_request_ids_are_no_part_of_the_change(self) -> None:
        """One DeleteObjects call shares them over 1,000 keys, and a retry has others."""
        one, other = record(KEY, OBJECT), record(KEY, OBJECT)
        other["responseElements"] = {"x-amz-request-id": "OTHER", "x-amz-id-2": "OTHER"}
        assert replace(one_change(notification(one)), body="") == replace(one_change(notification(other)), body="")
        del other["responseElements"]
        assert one_change(notification(other)).state == OBJECT

    @pytest.mark.failure_mode("F60")
    @given(KEYS)
    def test_every_key_survives_the_encoding(self, key: str) -> None:
        """For keys of any characters."""
        assert created(OBJECT, key=key).key == key


class TestSeveralRecords:
    """One body may hold several records. Each becomes a separate body."""

    @pytest.mark.failure_mode("F26")
    @settings(max_examples=examples(25))
    @given(st.lists(KEYS, min_size=1, max_size=5))
    def test_each_record_can_be_sent_again_alone(self, keys: list[str]) -> None:
        """A part's body says the same as the whole said of it."""
        parts = parse_message(notification(*(record(key, OBJECT) for key in keys)))
        assert [part.key for part in parts if isinstance(part, Change)] == keys
        for part in parts:
            assert isinstance(part, Change)
            assert replace(one_change(part.body), body=part.body) == part

    @pytest.mark.failure_mode("F26", "F27")
    def test_one_bad_record_does_not_spoil_the_others(self) -> None:
        """Records that request nothing do not spoil the others either."""
        found = parse_message(
            notification(
                record("a", OBJECT),
                {"eventSource": "aws:s3"},
                record("b", OBJECT, "ObjectAcl:Put"),
                record("c", OBJECT),
            )
        )
        assert [type(one) for one in found] == [Change, Ignored, Change, Unparseable]
        bad = found[3]
        assert isinstance(bad, Unparseable)
        assert json.loads(bad.body) == {"Records": [{"eventSource": "aws:s3"}]}


class TestEventBridge:
    """EventBridge's events."""

    @pytest.mark.failure_mode("F59", "F60")
    @given(KEYS)
    def test_both_channels_name_the_same_change(self, key: str) -> None:
        """One change in two shapes is one change."""
        one, other = created(OBJECT, key=key), one_change(eventbridge(key, OBJECT))
        assert (one.bucket, one.key, one.identity, one.sequencer) == (
            other.bucket,
            other.key,
            other.identity,
            other.sequencer,
        )

    @pytest.mark.failure_mode("F40")
    @pytest.mark.parametrize(
        ("deletion_type", "reason", "name", "kind"),
        [
            ("Delete Marker Created", "DeleteObject", "ObjectRemoved:DeleteMarkerCreated", StateKind.MARKER),
            ("Permanently Deleted", "DeleteObject", "ObjectRemoved:Delete", StateKind.DELETED),
            (
                "Delete Marker Created",
                "Lifecycle Expiration",
                "LifecycleExpiration:DeleteMarkerCreated",
                StateKind.MARKER,
            ),
            ("Permanently Deleted", "Lifecycle Expiration", "LifecycleExpiration:Delete", StateKind.DELETED),
        ],
    )
    def test_deletions_of_eventbridge_have_the_names_of_notifications(
        self, deletion_type: str, reason: str, name: str, kind: StateKind
    ) -> None:
        """By the names that S3's notifications give them."""
        body = json.loads(eventbridge(KEY, MARKER))
        body["detail-type"] = "Object Deleted"
        body["detail"] |= {"reason": reason, "deletion-type": deletion_type}
        change = one_change(json.dumps(body))
        assert change.event_name == name
        assert change.state is not None
        assert (change.state.kind, change.state.version_id) == (kind, MARKER.version_id)
        assert change.reported_as_new is (name == "ObjectRemoved:DeleteMarkerCreated")

    def test_new_tags_of_a_version_only_wake(self) -> None:
        """They report neither a creation nor a removal. Without a version, the tags may be those of any content."""
        body = json.loads(eventbridge(KEY, OBJECT)) | {"detail-type": "Object Tags Added"}
        of_s3 = notification(record(KEY, OBJECT, "ObjectTagging:Put"))
        for change in (one_change(json.dumps(body)), one_change(of_s3)):
            assert (change.origin, change.event_name, change.identity) == (
                Origin.TAG, "ObjectTagging:Put", OBJECT.identity,
            )  # fmt: skip
            assert (change.is_event, change.reported_as_new, change.reports_removal) == (False, False, False)
        assert "ObjectTagging:Put" in ignored(notification(record(KEY, PLAIN, "ObjectTagging:Put")))

    @pytest.mark.failure_mode("F30")
    def test_the_event_id_is_no_part_of_the_change(self) -> None:
        """EventBridge may deliver one event under the same id twice, and a replay under another."""
        body = json.loads(eventbridge(KEY, OBJECT))
        other = json.dumps(body | {"id": "another"})
        assert replace(one_change(other), body="") == replace(one_change(json.dumps(body)), body="")


class TestEnvelopes:
    """SNS in between."""

    @pytest.mark.parametrize("body", [notification(record(KEY, OBJECT)), eventbridge(KEY, OBJECT)])
    def test_the_envelope_makes_no_difference(self, body: str) -> None:
        """And the change's own body is the event's, which can be sent again as it is."""
        assert parse_message(sns(body)) == parse_message(body)

    def test_an_envelope_in_an_envelope_is_not_opened(self) -> None:
        """No service sends that."""
        assert unparseable(sns(sns(notification(record(KEY, OBJECT)))))


class TestOwnMessages:
    """Messages of the audit and the CLI."""

    @given(KEYS)
    def test_every_key_survives(self, key: str) -> None:
        """JSON, not form-encoded."""
        assert audited(OBJECT, key=key).key == key

    @given(st.lists(KEYS))
    def test_a_wake_of_a_set_carries_its_parts(self, keys: list[str]) -> None:
        assert one_change(own_message(Origin.PART, BUCKET, KEY, parts=keys)).parts == tuple(keys)

    @pytest.mark.failure_mode("F27")
    @pytest.mark.parametrize(
        "content",
        [
            {},
            [],
            None,
            "audit",
            {"kind": "backup", "bucket": "b", "key": "k"},
            {"kind": 1, "bucket": "b", "key": "k"},
            {"kind": "audit", "bucket": "b"},
            {"kind": "audit", "key": "k"},
            {"kind": "audit", "bucket": "b", "key": ""},
            {"kind": "reprocess", "bucket": "b", "key": "k"},
            {"kind": "audit", "bucket": "b", "key": "k", "state": "lost"},
            {"kind": "audit", "bucket": "b", "key": "k", "state": "object", "size": "1"},
            {"kind": "audit", "bucket": "b", "key": "k", "state": "object"},
            {"kind": "audit", "bucket": "b", "key": "k", "state": "object", "versionId": "null", "etag": '""'},
            {"kind": "audit", "bucket": "b", "key": "k", "state": "object", "etag": "e", "size": True},
            {"kind": "audit", "bucket": "b", "key": "k", "state": "object", "etag": "e", "createdAt": False},
            {"kind": "audit", "bucket": "b", "key": "k", "state": "object", "etag": "\udfff"},
            {"kind": "audit", "bucket": "\ud800", "key": "k"},
            {"kind": "reprocess", "bucket": "b", "key": "k", "reprocessId": "0" * 3_073},
            {"kind": "part", "bucket": "b", "key": "k", "parts": "a.csv"},
            {"kind": "part", "bucket": "b", "key": "k", "parts": ["a.csv", None]},
            {"kind": "part", "bucket": "b", "key": "k", "parts": [""]},
            {"kind": "part", "bucket": "b", "key": "k", "parts": ["\udfff"]},
        ],
    )
    def test_malformed_ones_are_refused(self, content: object) -> None:
        """The same rules hold for the pipeline's messages."""
        assert unparseable(json.dumps({"intakeLedger": content}))


class TestGarbage:
    """Any other message becomes Unparseable with a reason, and never an exception."""

    @pytest.mark.failure_mode("F27")
    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("", "not JSON"),
            ("\x00", "not JSON"),
            ("{", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ('{"a": ' + "9" * 5_000 + "}", "not JSON"),
            ("[]", "not a JSON object but list"),
            ("null", "not a JSON object but NoneType"),
            ("3", "not a JSON object but int"),
            ("{}", "no Records"),
            ('{"Records": {}}', "no Records"),
            ('{"source": "aws.ec2", "detail": {}}', "no Records"),
            ('{"source": "aws.s3"}', "detail-type is missing"),
            ('{"source": "aws.s3", "detail-type": "Object Created"}', "detail is missing"),
            ('{"Records": [7]}', "got int"),
            ('{"Records": [null]}', "got NoneType"),
            ('{"Records": [{}]}', "eventSource is missing"),
            ('{"Records": [{"eventSource": 1}]}', "eventSource is int, expected str"),
            (sns("garbage"), "not JSON"),
            (
                notification(record(KEY, State(StateKind.OBJECT), "ObjectCreated:Put")),
                "neither a version id nor an ETag",
            ),
            (with_key("%FF%FE"), "form-encoded"),
            (notification(record("€" * 341 + "kk", OBJECT)), "1,024"),
            (notification(record("", OBJECT)), "0 bytes"),
            (other_event(time="soon"), "ISO 8601"),
            (other_event(detail=[]), "detail is list"),
            (
                other_event(detail={"bucket": {"name": BUCKET}, "object": {"key": "k", "version-id": 1}}),
                "version-id is int",
            ),
            (other_event(detail={"bucket": {"name": BUCKET}, "object": {}}), "key is missing"),
        ],
    )
    def test_the_reason_says_what_was_found(self, body: str, why: str) -> None:
        """An operator reads it in the dead-letter queue."""
        assert why in unparseable(body)

    @pytest.mark.failure_mode("F27")
    @pytest.mark.parametrize(
        ("path", "value", "why"),
        [
            (("eventSource",), "aws:sns", "aws:s3"),
            (("eventName",), None, "eventName is missing"),
            (("eventVersion",), 2.1, "eventVersion is float"),
            (("eventTime",), "yesterday", "ISO 8601"),
            (("eventTime",), 1, "eventTime is int"),
            (("s3",), [], "s3 is list"),
            (("s3", "bucket"), None, "bucket is missing"),
            (("s3", "bucket", "name"), "", "bucket.name is empty"),
            (("s3", "object"), "k", "object is str"),
            (("s3", "object", "key"), 7, "key is int"),
            (("s3", "object", "key"), "\ud800", "not valid Unicode"),
            (("s3", "object", "versionId"), 7, "versionId is int"),
            (("s3", "object", "eTag"), {}, "eTag is dict"),
            (("s3", "object", "size"), "1", "size is str"),
            (("s3", "object", "size"), True, "size is bool, expected int"),
            (("s3", "object", "versionId"), "\ud800", "versionId is not valid Unicode"),
            (("s3", "object", "eTag"), "\udfff", "eTag is not valid Unicode"),
            (("s3", "bucket", "name"), "\ud800", "name is not valid Unicode"),
            (("eventName",), "ObjectCreated:\ud800", "eventName is not valid Unicode"),
            (("eventName",), "ObjectCreated:" + "x" * 3_059, "eventName has 3073 bytes"),
            (("s3", "object", "versionId"), "x" * 3_073, "versionId has 3073 bytes"),
            (("s3", "object", "eTag"), "é" * 1_537, "eTag has 3074 bytes"),
            (("s3", "object", "key"), "k" * 3_073, "key has 3073 bytes"),
        ],
    )
    def test_fields_that_are_missing_or_of_the_wrong_type(self, path: tuple[str, ...], value: Any, why: str) -> None:
        """Each by its name."""
        one: Any = record(KEY, OBJECT)
        part = one
        for name in path[:-1]:
            part = part[name]
        if value is None:
            del part[path[-1]]
        else:
            part[path[-1]] = value
        assert why in unparseable(notification(one))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = ["Records", "source", "detail", "detail-type", "Type", "Message", "Event", "intakeLedger", "time"]
SHAPED = st.dictionaries(
    st.sampled_from(NAMES), JSON | st.sampled_from(["aws.s3", "Notification", "Object Created", "s3:TestEvent"])
)
VALUE = JSON | st.sampled_from(["aws:s3", "2.1", "ObjectCreated:Put", "0001-01-01T00:00:00+23:59", "a%FF", "\ud800"])


def _says(found: list[Parsed], body: str) -> None:
    assert found
    for one in found:
        if isinstance(one, Unparseable):
            assert one.why
            assert isinstance(one.body, str)
        elif isinstance(one, Change):
            assert one.key.encode()
            assert json.loads(one.body)


@pytest.mark.failure_mode("F27")
@given(st.text())
def test_any_text_is_answered(body: str) -> None:
    """Never an exception."""
    _says(parse_message(body), body)


@pytest.mark.failure_mode("F27")
@given(JSON | SHAPED)
def test_any_json_is_answered(content: object) -> None:
    """Nor for JSON, in an envelope or without."""
    body = json.dumps(content)
    _says(parse_message(body), body)
    _says(parse_message(sns(body)), body)


@pytest.mark.failure_mode("F27")
@given(st.sampled_from(["top", "s3", "bucket", "object"]), st.data())
def test_any_damage_to_a_record_is_answered(where: str, data: st.DataObject) -> None:
    """One field of a real record replaced by anything, or left out."""
    one = record(KEY, OBJECT)
    part = {"top": one, "s3": one["s3"], "bucket": one["s3"]["bucket"], "object": one["s3"]["object"]}[where]
    name = data.draw(st.sampled_from(sorted(part)))
    if data.draw(st.booleans()):
        part[name] = data.draw(VALUE)
    else:
        del part[name]
    body = notification(one)
    _says(parse_message(body), body)


@pytest.mark.failure_mode("F27")
@given(
    st.sampled_from([Origin.AUDIT, Origin.REPROCESS, Origin.PART]),
    st.dictionaries(
        st.sampled_from(
            ["kind", "bucket", "key", "state", "versionId", "etag", "size", "createdAt", "reprocessId", "parts"]
        ),
        VALUE,
    ),
)
def test_any_damage_to_our_own_message_is_answered(origin: Origin, damage: dict[str, Any]) -> None:
    """A person may send such a message."""
    content = json.loads(own_message(origin, BUCKET, KEY, OBJECT, reprocess_id=ULID))
    content["intakeLedger"] |= damage
    body = json.dumps(content)
    _says(parse_message(body), body)
