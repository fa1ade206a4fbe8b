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

    @pytest.mark.parametrize("how", ["Put", "Post", "Copy", "CompleteMultipartUpload", "SomethingNew"])
    def test_every_kind_of_creation(self, how: str) -> None:
        """Also kinds that S3 has not invented yet."""
        assert one_change(notification(record(KEY, OBJECT, f"ObjectCreated:{how}"))).state == OBJECT

    def test_the_subscriptions_prefix_is_understood(self) -> None:
        """Some clients keep the `s3:` of the subscription."""
        assert one_change(notification(record(KEY, OBJECT, "s3:ObjectCreated:Put"))).event_name == "ObjectCreated:Put"

    @pytest.mark.failure_mode("F36")
    def test_without_a_version_the_etag_is_the_identity(self) -> None:
        """F36, F37: absent, empty and `null` are one thing."""
        for spelling in (None, "", "null"):
            change = created(replace(OBJECT, version_id=spelling))
            assert change.identity == f"e#{OBJECT.etag}"
            assert change.reported_as_new

    def test_a_notification_of_a_creation_is_parsed_that_cannot_be_identified_is_refused(self) -> None:
        """Neither version nor ETag."""
        why = unparseable(notification(record(KEY, State(StateKind.OBJECT), "ObjectCreated:Put")))
        assert "neither a version id nor an ETag" in why

    def test_a_delete_marker(self) -> None:
        """The ETag of a delete marker is ignored."""
        change = marked(MARKER)
        assert (change.state, change.reported_as_new) == (MARKER, True)

    def test_a_delete_marker_without_an_id(self) -> None:
        """Versioning suspended: nothing can be told from nothing, and S3 has to be asked."""
        change = marked(State(StateKind.MARKER))
        assert (change.identity, change.reported_as_new) == ("absent", False)

    @pytest.mark.failure_mode("F49")
    def test_a_permanent_deletion_is_not_vouched_for(self) -> None:
        """F49, F50: it may be a version's or a marker's: it only wakes, and names its own change for EVERY_VERSION."""
        change = deleted(OBJECT)
        assert change.state == State(StateKind.DELETED, OBJECT.version_id, created_at=START)
        assert not change.reported_as_new

    def test_a_permanent_deletion_without_a_version_names_no_state(self) -> None:
        """A bucket without versions: the key is gone, or has come back since."""
        assert deleted(PLAIN).state is None

    @pytest.mark.failure_mode("F40")
    @pytest.mark.parametrize("kind", ["Delete", "DeleteMarkerCreated"])
    def test_deletions_by_lifecycle_rules_are_not_new(self, kind: str) -> None:
        """They have a separate name and no sequencer, come late, and are not reported as new."""
        change = one_change(notification(record(KEY, MARKER, f"LifecycleExpiration:{kind}", sequencer=None)))
        assert change.state is not None
        assert change.state.removed
        assert (change.sequencer, change.reported_as_new) == (None, False)

    @pytest.mark.failure_mode("F57")
    @pytest.mark.parametrize(
        "name",
        [
            "ObjectTagging:Put",
            "ObjectAcl:Put",
            "ObjectRestore:Post",
            "ObjectRestore:Delete",
            "LifecycleTransition",
            "IntelligentTiering",
            "ReducedRedundancyLostObject",
            "Replication:OperationFailedReplication",
        ],
    )
    def test_what_changes_no_content_is_ignored(self, name: str) -> None:
        """Events without a sequencer that have nothing to bring about."""
        assert name in ignored(notification(record(KEY, OBJECT, name, sequencer=None)))

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

    @pytest.mark.failure_mode("F471")
    def test_an_event_has_the_name_that_its_copies_have(self) -> None:
        assert one_change(notification(record(KEY, OBJECT))).event_id == "79104EXAMPLEB723"
        assert one_change(eventbridge(KEY, OBJECT)).event_id == "17793124-05d4-b198-2fde-7ededc63b103"

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

    @pytest.mark.failure_mode("F62")
    @pytest.mark.parametrize(
        ("written", "milliseconds"),
        [
            ("2026-11-21T17:00:00.123Z", 123),
            ("2026-11-21T17:00:00Z", 0),
            ("2026-11-21T17:00:00", 0),
            ("2026-11-21T18:00:00.5+01:00", 500),
        ],
    )
    def test_times_with_and_without_milliseconds(self, written: str, milliseconds: int) -> None:
        """Both are understood; they are used for a message's age alone."""
        one = record(KEY, OBJECT) | {"eventTime": written}
        assert one_change(notification(one)).event_time == 1_795_280_400_000 + milliseconds

    @pytest.mark.failure_mode("F60")
    def test_keys_over_the_form_encoding(self) -> None:
        """As S3 writes them, byte for byte."""
        for written, key in (
            ("a%2Bb.csv", "a+b.csv"),
            ("a%252Bb.csv", "a%2Bb.csv"),
            ("a+b.csv", "a b.csv"),
            ("a%20b.csv", "a b.csv"),
            ("%C3%A4.csv", "ä.csv"),
            ("ä.csv", "ä.csv"),
        ):
            one = record("x", OBJECT)
            one["s3"]["object"]["key"] = written
            assert one_change(notification(one)).key == key

    def test_a_key_that_is_no_utf_8_is_refused(self) -> None:
        """No replacement characters: they would be another key."""
        one = record("x", OBJECT)
        one["s3"]["object"]["key"] = "%FF%FE"
        assert "form-encoded" in unparseable(notification(one))

    @pytest.mark.failure_mode("F14")
    def test_a_key_has_1_to_1024_bytes(self) -> None:
        """Bytes, not characters."""
        assert created(OBJECT, key="€" * 341 + "k").key == "€" * 341 + "k"
        assert "1,024" in unparseable(notification(record("€" * 341 + "kk", OBJECT)))
        assert "0 bytes" in unparseable(notification(record("", OBJECT)))

    def test_an_empty_list_of_records_asks_for_nothing(self) -> None:
        """Acknowledged."""
        assert ignored('{"Records": []}')

    @pytest.mark.failure_mode("F28")
    def test_the_test_event(self) -> None:
        """Sent on every change of the configuration."""
        body = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": "2026-11-21T17:00:00Z", "Bucket": BUCKET}
        assert "test event" in ignored(json.dumps(body))
        assert "test event" in ignored(sns(json.dumps(body)))

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
                record("b", OBJECT, "ObjectTagging:Put"),
                record("c", OBJECT),
            )
        )
        assert [type(one) for one in found] == [Change, Ignored, Change, Unparseable]
        bad = found[3]
        assert isinstance(bad, Unparseable)
        assert json.loads(bad.body) == {"Records": [{"eventSource": "aws:s3"}]}

    def test_a_single_record_keeps_the_body_as_it_came(self) -> None:
        """Byte for byte."""
        body = json.dumps({"Records": [record(KEY, OBJECT)], "extra": 1}, indent=3)
        assert one_change(body).body == body


class TestEventBridge:
    """EventBridge's events."""

    def test_an_event_of_a_creation_is_parsed(self) -> None:
        """Raw key, seconds only."""
        change = one_change(eventbridge(KEY, OBJECT, at=START + 999))
        assert (change.key, change.state, change.event_time) == (KEY, OBJECT, START)
        assert (change.event_name, change.origin, change.reported_as_new) == (
            "ObjectCreated:PutObject",
            Origin.EVENTBRIDGE,
            True,
        )

    @pytest.mark.failure_mode("F60")
    def test_keys_are_raw(self) -> None:
        """A plus is a plus."""
        for key in TRICKY:
            assert one_change(eventbridge(key, OBJECT)).key == key

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

    def test_without_a_version_id_s3_has_to_be_asked(self) -> None:
        """It cannot be told whether there is none or it was left out."""
        change = one_change(eventbridge(KEY, PLAIN))
        assert (change.identity, change.reported_as_new) == (f"e#{OBJECT.etag}", False)

    def test_other_events_ask_for_nothing(self) -> None:
        """Such as tags and access tiers."""
        body = json.loads(eventbridge(KEY, OBJECT)) | {"detail-type": "Object Tags Added"}
        assert "Object Tags Added" in ignored(json.dumps(body))

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

    def test_an_envelope_around_garbage(self) -> None:
        """The whole message is kept."""
        assert "not JSON" in unparseable(sns("garbage"))

    def test_an_envelope_in_an_envelope_is_not_opened(self) -> None:
        """No service sends that."""
        assert unparseable(sns(sns(notification(record(KEY, OBJECT)))))


class TestOwnMessages:
    """Messages of the audit and the CLI."""

    @pytest.mark.parametrize("state", [OBJECT, PLAIN, MARKER, ABSENT, State(StateKind.DELETED, "v")])
    def test_every_state_survives(self, state: State) -> None:
        """Nothing of it is lost on the way, and nothing is reported_as_new for: the consumer looks."""
        change = audited(state)
        assert (change.state, change.origin, change.reported_as_new) == (state, Origin.AUDIT, False)
        assert (change.bucket, change.key, change.sequencer, change.event_time) == (BUCKET, KEY, None, None)

    @given(KEYS)
    def test_every_key_survives(self, key: str) -> None:
        """JSON, not form-encoded."""
        assert audited(OBJECT, key=key).key == key

    @given(st.lists(KEYS))
    def test_a_wake_of_a_set_carries_its_parts(self, keys: list[str]) -> None:
        assert one_change(own_message(Origin.PART, BUCKET, KEY, parts=keys)).parts == tuple(keys)

    def test_a_reprocess_carries_its_id(self) -> None:
        """And need not name a state."""
        change = reprocess(ULID)
        assert (change.reprocess_id, change.origin, change.state) == (ULID, Origin.REPROCESS, None)
        assert change.asked_for

    def test_an_audit_is_asked_for_by_nobody(self) -> None:
        """Only a person's messages open rounds."""
        assert not audited(OBJECT).asked_for

    @pytest.mark.failure_mode("F63")
    def test_the_mark_of_a_copy_from_the_dead_letter_queue(self) -> None:
        """It goes with every shape of change."""
        for body in (notification(record(KEY, OBJECT)), eventbridge(KEY, OBJECT), audited(OBJECT).body):
            change = one_change(body, rejected_fence=7)
            assert (change.rejected_fence, change.asked_for, change.reported_as_new) == (7, True, False)
        assert redriven(created(OBJECT), 8).rejected_fence == 8

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

    @pytest.mark.failure_mode("F14")
    def test_the_longest_key_that_s3_allows_is_within_the_bounds(self) -> None:
        """1,024 bytes, each of them form-encoded as three; and the longest version id."""
        state = State(StateKind.OBJECT, "v" * 1_024, "e" * 32, 1)
        change = created(state, key="€" * 341 + "k")
        assert (len(change.key.encode()), change.state and change.state.version_id) == (1_024, "v" * 1_024)

    @pytest.mark.failure_mode("F27")
    def test_eventbridge_fields_of_the_wrong_type(self) -> None:
        """The other shape."""
        for change, why in (
            ({"time": "soon"}, "ISO 8601"),
            ({"detail": []}, "detail is list"),
            ({"detail": {"bucket": {"name": BUCKET}, "object": {"key": "k", "version-id": 1}}}, "version-id is int"),
            ({"detail": {"bucket": {"name": BUCKET}, "object": {}}}, "key is missing"),
        ):
            assert why in unparseable(json.dumps(json.loads(eventbridge(KEY, OBJECT)) | change))


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
