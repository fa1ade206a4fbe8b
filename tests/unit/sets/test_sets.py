"""Sets of files: a manifest, a marker that closes a folder, or a quiet folder, over the ledger's rows of the parts."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError

from intake_ledger import FileSet
from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.settings import ConsumerSettings, KeyFilter, environment_of
from intake_ledger.protocol.ulids import ulid
from intake_ledger.set_members.forms import FormKind, FormSettings, PartsFormat, set_form, set_targets
from intake_ledger.sets import audit
from intake_ledger.sets import manifest as manifest_module
from intake_ledger.sets import reader as reader_module
from intake_ledger.sets.settings import set_settings
from intake_ledger_testing.local_settings import BUCKET, START
from intake_ledger_testing.local_worker import Killed
from tests.unit.protocol.test_settings import CONSUMER
from tests.unit.sets import bench as set_bench
from tests.unit.sets.bench import SetBench
from tests.unit.sets.stories import tell
from tests.unit.stories import stories
from tests.unit.support import DAY, HOUR, MINUTE

if TYPE_CHECKING:
    from intake_ledger.kinds.sets import Sets

MANIFEST = FormSettings(FormKind.MANIFEST, "**/manifest.json")
MARKER = FormSettings(FormKind.MARKER, "exports/*/_SUCCESS")
QUIET = FormSettings(FormKind.QUIET, "incoming/*/", quiet_seconds=600)
KEY = "exports/1/manifest.json"
BEGAN = round(START.timestamp() * 1000)
A, B, C = "exports/1/a.csv", "exports/1/b.csv", "exports/1/c.csv"


@pytest.fixture(params=[False, True], ids=["new", "warm"], autouse=True)
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with a new consumer for each invocation, and with one consumer for all."""
    monkeypatch.setattr(set_bench, "WARM", request.param)


def manifest(*keys: str) -> str:
    return json.dumps([key.rpartition("/")[2] for key in keys])


def raising(error: BaseException) -> Any:
    def raise_it(*_: object) -> None:
        raise error

    return raise_it


@stories("""
    a set is processed once, when all parts are committed
        manifest: list a b; put a; run 1 h; runs; FAILED; waits; reason 1 of 2 parts are missing: {b};
        put b; run; runs a@1 b@1 list@1; within 30 s; PROCESSED
    the manifest comes first
        manifest: list a b; put a b; run; runs a b
    the manifest comes last
        manifest: put a b; list a b; run; runs a b
    the manifest comes between its parts
        manifest: put b; list a b; put a; run; runs a b
    a replaced part makes another version of the set
        manifest: put a b; list a b; run; put a as corrected; run; runs a@1 b@1, a@2 b@1; versions 1 2
    a newer manifest decides while parts of the older one are missing
        manifest: put a; list a b; run 1 h; list a; run; runs a list@2
    a part that only a newer manifest names wakes the set, since the parts of each version are recorded
        manifest: put a; list a; run; list a b; run 1 h; put b; run; runs a, a b; within 30 s
    F152 a part that never comes rejects the set at the deadline, and heals it later
        manifest, max wait 6 h: put a; list a b c; run; REJECTED max_wait; dead letter max_wait; ended 6 to 7 h;
        reason 2 of 3 parts are missing; put b c; run; runs a b c; PROCESSED
    F152 parts that come one after the other do not move the deadline
        manifest, max wait 6 h: list a b c; run 2.5 h; put a; run 2.5 h; put b; run; REJECTED; ended 6 to 7 h
    F154 a part whose newer version fails keeps its committed version
        manifest: put a b; run; parts fail; put a as bad; run; parts work; list a b; run; runs a@1 b
    F154 a deleted part is missing while its next version fails, although its row has the marker as a committed version
        manifest, max wait 1 h: put a b; run; delete a; run; parts fail; put a as bad; run; parts work; list a b; run;
        runs; reason 1 of 2 parts are missing: {a}
    a part whose removal is committed is missing
        manifest: put a; run; delete a; run; removed a; list a; run 1 h; runs; reason 1 of 1 parts are missing: {a}
    F165 a request for an incomplete set waits for its parts, of which the last runs the set, and is then served
        manifest: list a b; put a; run 1 h; ask; run 1 h; runs; waits; put b; run; runs a b, a b; versions 1 1;
        PROCESSED; served
    a marker closes its folder with the subfolders
        marker: put a day=1/b exports/2/c other; run; runs; close; run; runs a day=1/b;
        put day=1/b as late; run; runs a@1 day=1/b@1, a@1 day=1/b@2
    a marker waits for objects that are not committed
        marker: upload a; close; run 1 h; waits; put a; run; runs a
    F655 bookkeeping ends the quiet of a folder, since its writer works there, and is no set
        quiet: put a; run 6 min; put _temporary/b; run 6 min; runs; put exports/2/_started; run; runs a;
        no dead letters
""")
def test_a_set_is_processed_when_it_is_complete(story: str) -> None:
    tell(story)


@stories("""
    a young set, whose messages may still be on the way
        manifest: list a; put a; parts run; audit wakes nothing; run 2 h; runs a; audit wakes nothing
    a waiting set
        manifest: list a; parts run; audit wakes nothing; run 2 h; waits; audit wakes nothing
    F171 a waiting set whose message was lost
        manifest: list a; run 1 h; lose wakes; wait 30 h; audit wakes set
    F171 a processed set whose part was replaced, and the wake about it was lost
        manifest: put a; list a; run; put a as corrected; parts run; lose wakes; wait 2 h; audit wakes set; run;
        runs a@1, a@2
    a set that was committed a day ago: otherwise each audit would wake it for two weeks
        manifest: put a; list a; run; PROCESSED; wait 24 h; audit checks 1; audit wakes nothing
    a set that was rejected a day ago
        manifest: rejects; put a; list a; run; REJECTED; wait 24 h; audit checks 1; audit wakes nothing
    the other forms
        marker, quiet: put a b/c other; close; parts run; lose wakes; wait 2 h; audit wakes set
    another folder without a marker
        marker: put a exports/2/a; close; parts run; lose wakes; wait 2 h; audit wakes set
""")
def test_the_audit_wakes_sets_that_have_lost_their_message(story: str) -> None:
    tell(story)


class TestManifests:
    @pytest.mark.failure_mode("F153")
    @pytest.mark.parametrize("victim", [A, KEY])
    def test_a_worker_that_dies_between_commit_and_wake_loses_no_set(self, victim: str) -> None:
        """The message of the part comes again as a duplicate, and wakes the set."""
        bench = SetBench(MANIFEST)
        for key in (A, B, KEY):
            if key != victim:
                bench.put(key, manifest(A, B) if key == KEY else "content")
        bench.run(1)
        bench.before_wake = [raising(Killed())]
        bench.put(victim, manifest(A, B) if victim == KEY else "content")
        bench.run()
        assert len(bench.runs) == 1

    @pytest.mark.failure_mode("F153")
    def test_a_wake_that_cannot_be_sent_returns_only_the_messages_of_its_set(self) -> None:
        bench = SetBench(MANIFEST)
        other = "exports/2/manifest.json"
        bench.put(KEY, manifest(A, B))
        bench.put(other, '["c.csv"]')
        bench.run(1)
        refused = ClientError({"Error": {"Code": "InternalError"}}, "SendMessage")
        bench.before_wake = [raising(refused)]
        for key in (A, B, "exports/2/c.csv"):
            bench.put(key)
        bench.run(0.001)
        assert len(bench.parts._sqs.messages) == 2
        assert [run.key for run in bench.runs] == [other]
        bench.run()
        assert [run.key for run in bench.runs] == [other, KEY]

    @pytest.mark.failure_mode("F154")
    def test_a_part_that_changes_between_look_and_call_is_judged_again(self) -> None:
        """The processor gets versions that are committed together, and the committed state names them."""
        bench = SetBench(MANIFEST)
        for key in (A, B, KEY):
            bench.put(key, manifest(A, B) if key == KEY else "content")
        bench.parts.run()
        worker = bench.new_worker()
        reader: Any = cast("Sets", worker.kind).reader
        listing = reader.listing
        looks: list[str] = []

        def replace_before_second(key: str) -> Any:
            looks.append(key)
            if len(looks) == 2:
                bench.put(A, "replaced")
                bench.parts.run()
            return listing(key)

        reader.listing = replace_before_second
        bench.turn(worker)
        bench.run()
        assert [run.parts for run in bench.runs] == [((A, bench.committed(A)), (B, bench.committed(B)))]
        assert bench.outcomes["VersionGone"] == 1

    def test_a_version_that_is_gone_waits_for_the_next_one(self) -> None:
        """The processor's attempts are not spent on a version that S3 no longer holds."""
        bench = SetBench(MANIFEST, versioned=False)
        for key in (A, B, KEY):
            bench.put(key, manifest(A, B) if key == KEY else "content")
        bench.parts.run()
        bench.s3.put(A, b"replaced, and its event is late")

        def read(files: FileSet) -> None:
            for part in files.parts:
                part.read(100)

        bench.process = read
        bench.run(1)
        assert bench.known(KEY).waiting_since is not None
        bench.put(A, "the third")
        bench.run()
        assert bench.known(KEY).status is Status.PROCESSED

    @pytest.mark.failure_mode("F165")
    def test_the_set_is_processed_again_if_a_person_asks_for_it(self) -> None:
        """Once for an ID, under a new fence, and not for an earlier ID. Its parts are not processed again."""
        fences: list[int] = []
        bench = SetBench(MANIFEST, process=lambda files: fences.append(files.fence))
        for key in (A, KEY):
            bench.put(key, manifest(A) if key == KEY else "content")
        bench.run()
        earlier, later = (ulid(bench.now, number) for number in (0, 1))
        for request in (later, later, earlier):
            bench.send(own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=request))
            bench.run()
        assert len(fences) == 2
        assert fences[1] > fences[0]
        assert bench.part_calls == [A]
        first, second = bench.runs
        assert (first.version, first.parts) == (second.version, second.parts)
        assert bench.known(KEY).served_reprocess_id == later

    @pytest.mark.failure_mode("F272")
    @pytest.mark.parametrize("parts", [PartsFormat.JSON, PartsFormat.CSV])
    def test_a_manifest_that_names_a_version_waits_for_exactly_this_one(self, parts: PartsFormat) -> None:
        """The processor never gets another version of the part, whichever was committed before or after."""
        bench = SetBench(FormSettings(FormKind.MANIFEST, "**/manifest.json", parts=parts))
        bench.put(A, "the first")
        bench.run()
        # S3 names it before its event comes, as for a writer that uploads, and then writes the manifest.
        wanted = bench.s3.put(A, b"the second").version_id
        named = [{"key": "a.csv", "versionId": wanted}, {"key": "b.csv"}]
        bench.put(B)
        bench.put(KEY, json.dumps(named) if parts is PartsFormat.JSON else f"key,versionId\na.csv,{wanted}\nb.csv,\n")
        bench.run(1)
        assert bench.runs == []
        assert bench.known(KEY).waiting_since is not None
        first = bench.committed(A)
        assert f"1 of 2 parts are missing: {A} in version {wanted} ({first} is committed)" in str(
            bench.known(KEY).reason
        )
        bench.notify_current(A)
        bench.run(1)
        assert [dict(run.parts)[A] for run in bench.runs] == [wanted]
        later = bench.put(A, "the third")
        bench.run(1)
        assert len(bench.runs) == 1
        assert f"{A} in version {wanted} ({later} is committed)" in str(bench.known(KEY).reason)

    @pytest.mark.failure_mode("F272")
    def test_the_version_null_is_that_of_a_bucket_without_versioning(self) -> None:
        bench = SetBench(MANIFEST, versioned=False)
        bench.put(A)
        bench.put(KEY, json.dumps([{"key": "a.csv", "versionId": "null"}]))
        bench.run()
        assert len(bench.runs) == 1

    def test_a_replaced_manifest_is_read_again_by_a_worker_that_knows_the_earlier_one(self) -> None:
        bench = SetBench(MANIFEST)
        reader = cast("Sets", bench.new_worker().kind).reader
        bench.put(KEY, manifest(A))
        assert reader.listing(KEY).keys == (A,)
        bench.put(KEY, manifest(B))
        assert reader.listing(KEY).keys == (B,)

    def test_a_version_of_the_set_that_returns_has_another_idempotency_key(self) -> None:
        """Without versioning, a part may get its earlier content. The downstream must not drop that load."""
        keys: list[tuple[str, str]] = []
        bench = SetBench(
            MANIFEST, versioned=False, process=lambda files: keys.append((files.version, files.idempotency_key))
        )
        bench.put(KEY, manifest(A))
        for content in ("one", "another", "one"):
            bench.put(A, content)
            bench.run(1)
        first, second, third = keys
        assert first[0] == third[0] != second[0]
        assert len({first[1], second[1], third[1]}) == 3

    def test_a_failure_of_the_processor_is_tried_again_with_the_same_idempotency_key(self) -> None:
        bench = SetBench(MANIFEST)
        seen: list[tuple[str, int]] = []

        def fail_once(files: FileSet) -> None:
            seen.append((files.idempotency_key, files.attempt))
            if len(seen) == 1:
                raise RuntimeError

        bench.process = fail_once
        for key in (A, KEY):
            bench.put(key, manifest(A) if key == KEY else "content")
        bench.run()
        (first, one), (second, two) = seen
        assert (first == second, one, two) == (True, 1, 2)


class TestHostileManifests:
    @pytest.mark.failure_mode("F155")
    @pytest.mark.parametrize(
        ("content", "why"),
        [
            ("not JSON", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ('{"parts": ["a.csv"], "parts": ["b.csv"]}', "not JSON: an object has a name twice"),
            ('[{"key": "a.csv", "size": NaN}]', "not JSON: a number is infinite or NaN"),
            (b"\xff\xfe", "not UTF-8"),
            ('{"a": []}', "expected exactly one of parts, files, entries"),
            ('"a"', "no list"),
            ("[1]", "part 1 of the manifest has no key"),
            ('[""]', "part 1 of the manifest has no key"),
            ('[{"name": "a"}]', "part 1 of the manifest has no key"),
            ('["a.csv", "a.csv"]', "parts 1 and 2 of the manifest are the same object"),
            ('["a.csv", "/exports/1/a.csv"]', "parts 1 and 2 of the manifest are the same object"),
            ('["manifest.json"]', "part 1 of the manifest is the manifest itself"),
            ('["../2/a.csv"]', "'..'"),
            ('["s3://other/a.csv"]', "not in the bucket"),
            ('["https://local-bucket/a.csv"]', "begins with https://, expected s3:// or a key"),
            ('["s3a://local-bucket/exports/1/a.csv"]', "begins with s3a://, expected s3:// or a key"),
            ('[{"key": "a.csv", "versionId": 1}]', "a versionId that is no version"),
            (json.dumps([{"key": "a.csv", "versionId": "v" * 1_025}]), "a versionId that is no version"),
            ('{"parts": ["a.csv"], "files": ["b.csv"]}', "expected exactly one of parts, files, entries"),
            ('["a.txt"]', "outside of the pipeline's filters"),
            ('["\\ud800"]', "not valid Unicode"),
            (json.dumps(["a" * 1_100]), "S3 allows 1 to 1,024"),
        ],
    )
    def test_it_is_rejected_with_its_reason_and_a_correct_one_heals_it(self, content: str | bytes, why: str) -> None:
        bench = SetBench(MANIFEST, filters=[KeyFilter("exports/", ".csv"), KeyFilter("exports/", "manifest.json")])
        bench.put(KEY, content)
        bench.run()
        row = bench.known(KEY)
        assert row.status is Status.REJECTED
        assert why in bench.dead_letters[-1].reason
        bench.put(A)
        bench.put(KEY, manifest(A))
        bench.run()
        assert len(bench.runs) == 1
        assert bench.known(KEY).status is Status.PROCESSED

    @pytest.mark.failure_mode("F156")
    def test_a_manifest_with_too_many_parts_is_rejected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifest_module, "MAX_PARTS", 3)
        bench = SetBench(MANIFEST)
        bench.put(KEY, json.dumps([f"{number}.csv" for number in range(4)]))
        bench.run()
        assert bench.known(KEY).status is Status.REJECTED
        assert "more than 3 parts" in bench.dead_letters[-1].reason

    @pytest.mark.failure_mode("F271")
    @pytest.mark.parametrize(
        ("content", "why"),
        [
            ("key\na,b.csv\n", "line 2 of the manifest has more fields than columns"),
            ("key,key\na.csv,b.csv\n", "names a column twice"),
            ('key\n"a"b.csv\n', "line 2 of the manifest is not CSV"),
            ("name\na.csv\n", "no column 'key'"),
            ("size,key\n1\n", "part 1 of the manifest has no key"),
        ],
    )
    def test_a_csv_that_would_name_another_key_is_rejected(self, content: str, why: str) -> None:
        bench = SetBench(FormSettings(FormKind.MANIFEST, "**/manifest.json", parts=PartsFormat.CSV))
        bench.put(KEY, content)
        bench.run()
        assert bench.known(KEY).status is Status.REJECTED
        assert why in bench.dead_letters[-1].reason

    @pytest.mark.failure_mode("F650")
    @pytest.mark.parametrize("parts", PartsFormat)
    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
    def test_an_empty_manifest_is_no_set_without_parts(self, parts: PartsFormat, content: bytes) -> None:
        """It is a cut upload."""
        bench = SetBench(FormSettings(FormKind.MANIFEST, "**/manifest.json", parts=parts))
        bench.put(KEY, content)
        bench.run()
        assert bench.known(KEY).status is Status.REJECTED

    @pytest.mark.failure_mode("F156")
    def test_a_manifest_that_is_too_large_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        largest = manifest(A)
        monkeypatch.setattr(reader_module, "MAX_BYTES", len(largest))
        bench = SetBench(MANIFEST)
        bench.put(A)
        bench.put(KEY, largest)
        bench.run()
        assert bench.known(KEY).status is Status.PROCESSED
        bench.put(KEY, f"{largest} ")
        bench.run()
        assert bench.known(KEY).status is Status.REJECTED
        assert f"the manifest has {len(largest) + 1} bytes" in bench.dead_letters[-1].reason

    def test_a_manifest_that_s3_refuses_fails_with_s3s_code(self) -> None:
        bench = SetBench(MANIFEST)
        bench.s3.archived.add(KEY)
        bench.put(KEY, manifest(A))
        bench.run()
        row = bench.known(KEY)
        assert (row.status, row.s3_error) == (Status.REJECTED, "InvalidObjectState")


class TestForms:
    @pytest.mark.parametrize(
        ("parts", "content"),
        [
            (PartsFormat.JSON, '{"parts": ["a.csv", {"key": "b.csv"}]}'),
            (PartsFormat.JSON, '{"entries": [{"url": "s3://local-bucket/exports/1/a.csv"}, "/exports/1/b.csv"]}'),
            (PartsFormat.JSON, '\ufeff["a.csv", "b.csv"]'),
            (PartsFormat.CSV, "size,key\r\n1,a.csv\r\n2,b.csv\r\n"),
            (PartsFormat.LINES, "a.csv\r\n\nb.csv"),
        ],
    )
    def test_manifests_have_three_formats(self, parts: PartsFormat, content: str) -> None:
        bench = SetBench(FormSettings(FormKind.MANIFEST, "**/manifest.json", parts=parts))
        for key in (A, B):
            bench.put(key)
        bench.put(KEY, content)
        bench.run()
        assert [[key for key, _ in run.parts] for run in bench.runs] == [[A, B]]

    def test_keys_may_begin_at_the_bucket(self) -> None:
        bench = SetBench(FormSettings(FormKind.MANIFEST, "**/manifest.json", absolute=True))
        bench.put(A)
        bench.put(KEY, json.dumps([A]))
        bench.run()
        assert [[key for key, _ in run.parts] for run in bench.runs] == [[A]]

    @pytest.mark.parametrize("form", [MARKER, FormSettings(FormKind.QUIET, "exports/*/", quiet_seconds=60)])
    @pytest.mark.parametrize("placeholder", [b"", b"made by a tool"])
    def test_a_folder_has_neither_its_placeholder_nor_keys_outside_of_the_filters(
        self, form: FormSettings, placeholder: bytes
    ) -> None:
        """Both are never committed, so the set would wait for them until its deadline."""
        bench = SetBench(form, filters=[KeyFilter("exports/", end) for end in (".csv", "_SUCCESS", "/")])
        bench.s3.put("exports/1/", placeholder)
        bench.s3.put("exports/1/notes.txt", b"x")
        bench.put(A)
        if form is MARKER:
            bench.put("exports/1/_SUCCESS", "")
        bench.run()
        assert [[key for key, _ in run.parts] for run in bench.runs] == [[A]]

    BOOKS = ("_started_1", "_committed_1", ".part-0.csv.crc", "_temporary/0/part-1.csv", "day=1/_a=1/x", "_metadata")

    @pytest.mark.failure_mode("F655")
    @pytest.mark.parametrize("folder", ["exports/1/", "exports/_landing/"])
    @pytest.mark.parametrize("hidden_parts", [False, True])
    @pytest.mark.parametrize("kind", [FormKind.MARKER, FormKind.QUIET])
    def test_bookkeeping_of_the_writer_is_no_part(self, kind: FormKind, hidden_parts: bool, folder: str) -> None:
        """It is below the folder of the set. The set itself may be in such a folder."""
        pattern = "exports/*/_SUCCESS" if kind is FormKind.MARKER else "exports/*/"
        bench = SetBench(FormSettings(kind, pattern, 60 * (kind is FormKind.QUIET), hidden_parts=hidden_parts))
        part = f"{folder}part-0.csv"
        for key in (part, *(folder + name for name in self.BOOKS)):
            bench.put(key)
        if kind is FormKind.MARKER:
            bench.put(f"{folder}_SUCCESS", "")
        bench.run()
        expected = sorted([part, *(folder + name for name in self.BOOKS)]) if hidden_parts else [part]
        assert [[key for key, _ in run.parts] for run in bench.runs] == [expected]

    @pytest.mark.failure_mode("F655")
    @pytest.mark.parametrize("form", [MARKER, FormSettings(FormKind.QUIET, "exports/*/", quiet_seconds=60)])
    def test_a_set_that_was_committed_with_hidden_parts_keeps_them(self, form: FormSettings) -> None:
        """A release or an option that leaves them out processes no set again. A new part does, without them."""
        bench = SetBench(replace(form, hidden_parts=True), warm=False)
        keys = ["exports/1/_committed_1", "exports/1/part-0"]
        for key in keys:
            bench.put(key)
        if form is MARKER:
            bench.put("exports/1/_SUCCESS", "")
        bench.run()
        bench.use(form)
        bench.put(keys[0], "x")
        bench.s3.keys[keys[0]].pop()
        bench.run()
        assert [[key for key, _ in run.parts] for run in bench.runs] == [keys]
        bench.put("exports/1/part-1")
        bench.run()
        assert [[key for key, _ in run.parts] for run in bench.runs] == [keys, ["exports/1/part-0", "exports/1/part-1"]]

    @pytest.mark.failure_mode("F157")
    def test_a_folder_is_processed_when_it_is_quiet(self) -> None:
        """Each upload begins the time of quiet again, and uploads for longer than max_wait reject nothing."""
        bench = SetBench(QUIET, max_wait=3600)
        for number in range(20):
            bench.put(f"incoming/1/{number}")
            bench.run(0.15)
        last = bench.now
        assert bench.runs == []
        bench.run()
        [run] = bench.runs
        assert len(run.parts) == 20
        assert 0 <= run.at - last < 12 * MINUTE
        assert bench.dead_letters == []

    @pytest.mark.failure_mode("F173")
    @pytest.mark.parametrize("offset", range(0, 600, 60))
    def test_a_folder_is_not_rejected_before_twice_its_quiet_time(self, offset: int) -> None:
        """Synthesis refuses shorter deadlines. The offset is that of the first upload in a period of the quiet time."""
        bench = SetBench(QUIET, max_wait=1_200)
        bench.now += 600_000 - bench.now % 600_000 + offset * 1_000
        bench.put("incoming/1/a")
        bench.run(0.16)
        bench.put("incoming/1/b")
        bench.run()
        assert (len(bench.runs), bench.dead_letters) == (1, [])

    def test_many_wakes_of_a_waiting_set_end_at_once(self) -> None:
        """Only messages of attempts wait. Otherwise each part would have a message in the queue."""
        bench = SetBench(MANIFEST)
        keys = [f"exports/1/{number:03}" for number in range(200)]
        bench.put(KEY, manifest(*keys, C))
        bench.run(0.01)
        for key in keys:
            bench.put(key)
        bench.run(0.1)
        assert len(bench.queue.messages) < 5
        bench.put(C)
        bench.run()
        assert len(bench.runs) == 1
        assert bench.dynamodb.requests.count("BatchGetItem") < 250, "a wake reads no more than it needs"

    def test_the_message_of_a_waiting_attempt_that_comes_early_stays(self) -> None:
        """Clocks differ a little, and SQS may deliver a message twice. Without it, no message would look again."""
        bench = SetBench(MANIFEST)
        bench.put(KEY, manifest(A))
        bench.run(0.001)
        [waiting] = bench.queue.messages
        waiting.visible_at = bench.now
        bench.run(0.001)
        assert bench.verdicts["BUSY"] == 1
        assert bench.queue.messages == [waiting]

    @pytest.mark.parametrize(
        ("form", "key", "expected"),
        [
            (MARKER, "exports/1/x", "exports/1/_SUCCESS"),
            (MARKER, "exports/1/a/b", "exports/1/_SUCCESS"),
            (MARKER, "exports/1", None),
            (MARKER, "other/1/x", None),
            (MARKER, "exports/" + "1" * 1_010 + "/x", None),
            (FormSettings(FormKind.MARKER, "_SUCCESS"), "a/b", "_SUCCESS"),
            (QUIET, "incoming/1/x", "incoming/1/"),
            (QUIET, "incoming/1/", "incoming/1/"),
            (QUIET, "incoming/1", None),
            (MANIFEST, "a/b/manifest.json", "a/b/manifest.json"),
            (FormSettings(FormKind.MANIFEST, "*/m"), "a/b/m", None),
            (MANIFEST, A, None),
        ],
    )
    def test_the_key_names_the_set(self, form: FormSettings, key: str, expected: str | None) -> None:
        assert form.set_of(key) == expected

    @pytest.mark.failure_mode("F156")
    def test_a_folder_with_too_many_objects_is_rejected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader_module, "MAX_PARTS", 3)
        bench = SetBench(MARKER)
        for number in range(4):
            bench.put(f"exports/1/{number}")
        bench.put("exports/1/_SUCCESS", "")
        bench.run()
        assert "more than 3 objects" in bench.dead_letters[-1].reason

    @pytest.mark.failure_mode("F543")
    @pytest.mark.parametrize("form", [MARKER, QUIET], ids=["marker", "quiet"])
    def test_parts_after_many_objects_that_are_none_belong_to_the_set(
        self, form: FormSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader_module, "MAX_PARTS", 3)
        folder = form.pattern.partition("*")[0] + "1/"
        filters = [KeyFilter(folder, end) for end in (".csv", "_SUCCESS")]
        bench = SetBench(form, filters=filters)
        for number in range(9):
            bench.put(f"{folder}{number}.tmp")
        bench.put(f"{folder}a.csv")
        if form is MARKER:
            bench.put(f"{folder}_SUCCESS", "")
        bench.run()
        assert [[key for key, _ in run.parts] for run in bench.runs] == [[f"{folder}a.csv"]]


class TestSettings:
    ENVIRONMENT = CONSUMER | {
        "INTAKE_SET_FORM": '{"form": "manifest", "pattern": "**/manifest.csv", "parts": "csv", "keys": "absolute"}',
        "INTAKE_SET_PARTS_PIPELINE": "Stack-Parts",
    }

    def test_the_settings_of_sets(self) -> None:
        settings = set_settings(self.ENVIRONMENT)
        assert settings.form == FormSettings(FormKind.MANIFEST, "**/manifest.csv", parts=PartsFormat.CSV, absolute=True)
        assert settings.parts.pipeline == "Stack-Parts"
        assert settings.consumer.filters == ()
        assert settings.parts.wants("in/a.csv")
        assert not settings.parts.wants("in/a.txt")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"INTAKE_ORDERING": "EVERY_VERSION"},
            {"INTAKE_DELETES": "true"},
            {"INTAKE_PART_LISTS": "", "INTAKE_PROCESSOR_FUNCTION": "arn"},
            {"INTAKE_SET_PARTS_PIPELINE": ""},
            {"INTAKE_SET_PARTS_PIPELINE": "Stack-Invoices"},
            {"INTAKE_SET_FORM": ""},
            {"INTAKE_SET_FORM": "[]"},
            {"INTAKE_SET_FORM": '{"form": "other", "pattern": "a"}'},
            {"INTAKE_SET_FORM": '{"form": "manifest"}'},
            {"INTAKE_SET_FORM": '{"form": "manifest", "pattern": "a", "parts": "xml"}'},
            {"INTAKE_SET_FORM": '{"form": "quiet", "pattern": "a/"}'},
            {"INTAKE_SET_FORM": '{"form": "quiet", "pattern": "a", "quietSeconds": 60}'},
            {"INTAKE_SET_FORM": '{"form": "marker", "pattern": "**/_SUCCESS"}'},
            {"INTAKE_SET_FORM": '{"form": "marker", "pattern": "a/*"}'},
        ],
    )
    def test_a_wrong_setting_is_named(self, wrong: dict[str, str]) -> None:
        with pytest.raises(SettingsError, match=next(iter(wrong)) if "ORDER" not in str(wrong) else "LATEST"):
            set_settings(self.ENVIRONMENT | wrong)

    @pytest.mark.parametrize("described", ["", "{", "[{}]", '[{"name": "a", "queueUrl": "b"}]', "[1]"])
    def test_wrong_sets_of_a_pipeline_are_named(self, described: str) -> None:
        with pytest.raises(SettingsError, match="INTAKE_SETS"):
            set_targets(described)

    def test_the_sets_of_a_pipeline(self) -> None:
        content = {"name": "Sets", "queueUrl": "https://sqs/sets", "form": "marker", "pattern": "*/_SUCCESS"}
        [target] = set_targets(json.dumps([content]))
        assert (target.name, target.queue_url, target.form) == (
            "Sets",
            "https://sqs/sets",
            set_form(content, "INTAKE_SETS"),
        )


class TestTheAudit:
    @pytest.mark.failure_mode("F171")
    def test_a_set_whose_wake_was_lost_is_found_and_woken(self) -> None:
        bench = SetBench(MANIFEST)
        for key in (KEY, A):
            bench.put(key, manifest(A))
        bench.parts.run()
        bench.lose_wakes()
        bench.now += 2 * HOUR
        assert bench.run_audit(dry_run=True).woken == [KEY]
        assert bench.queue.next_visible_at() is None, "a dry run sends no message"
        found = bench.run_audit()
        assert (found.checked, found.woken, found.complete) == (1, [KEY], True)
        assert [one.group for one in bench.queue.messages] == [found.run_id], "fresh sets come first"
        report = found.as_json()
        assert (report["counts"], report["resubmitted"]) == ({"lost": 1}, 1)
        assert report["findings"] == [{"key": KEY, "why": "lost"}]
        bench.run()
        assert [run.key for run in bench.runs] == [KEY]

    @pytest.mark.failure_mode("F365")
    def test_a_set_that_is_older_than_the_retention_is_not_woken(self) -> None:
        """Its row has expired. The message would end without an effect, and each run would send it again."""
        bench = SetBench(MANIFEST)
        bench._environment |= environment_of(ConsumerSettings, retention_seconds=10 * DAY // 1000)
        for key in (KEY, A):
            bench.put(key, manifest(A))
        bench.run()
        bench.dynamodb.items = {key: item for key, item in bench.dynamodb.items.items() if KEY not in key[0]}
        bench.now += 11 * DAY
        assert bench.run_audit().woken == []

    def test_an_audit_without_time_says_that_it_is_incomplete(self) -> None:
        bench = SetBench(MANIFEST)
        bench.put(KEY, manifest(A))
        assert not bench.run_audit(remaining_seconds=1).complete

    @pytest.mark.failure_mode("F277")
    @pytest.mark.parametrize("form", [MARKER, QUIET])
    def test_an_audit_that_cannot_list_all_goes_on_in_its_next_run(
        self, form: FormSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And it says so. Each lost set is found within some runs."""
        bench = SetBench(form)
        folders = [f"{form.pattern.partition('/')[0]}/{number}/" for number in range(5)]
        for folder in folders:
            for name in ("a", "b", "_SUCCESS"):
                bench.put(folder + name)
        bench.parts.run()
        bench.lose_wakes()
        bench.now += 2 * HOUR
        small_pages(bench, 2)
        monkeypatch.setattr(audit, "MOST_OBJECTS", 4)
        expected = [folder + ("_SUCCESS" if form is MARKER else "") for folder in folders]
        woken: list[str] = []
        ends: list[bool] = []
        for _ in range(8):
            found = bench.run_audit()
            woken += found.woken
            ends.append(found.complete)
        assert set(woken) == set(expected)
        assert not any(ends), "no run has seen the whole bucket"
        assert bench.run_audit(dry_run=True).complete is False
        monkeypatch.undo()
        small_pages(bench, 2)
        while not bench.run_audit().complete:
            pass
        assert bench.run_audit(dry_run=True).checked == 5

    @pytest.mark.failure_mode("F277")
    def test_an_audit_without_time_for_its_first_set_is_not_complete(self) -> None:
        bench = SetBench(MARKER)
        bench.put("exports/1/_SUCCESS", "")
        bench.lose_wakes()
        bench.now += 2 * HOUR
        left = iter([60.0])
        found = bench.run_audit(remaining_seconds=lambda: next(left, 3.0))
        assert (found.checked, found.complete) == (0, False)
        assert bench.run_audit().complete

    @pytest.mark.failure_mode("F277")
    def test_the_listing_of_an_audit_looks_at_the_clock_and_the_age_comes_first(self) -> None:
        bench = SetBench(MANIFEST)
        bench.put(KEY, manifest(A))
        bench.run(1)
        for number in range(20):
            bench.put(f"z/{number}")
        small_pages(bench, 1)
        left = iter([60.0, 60.0, 3.0])
        published: list[Any] = []
        listed: list[str] = []
        list_objects = bench.s3.list_objects_v2

        def list_page(**request: Any) -> dict[str, Any]:
            assert published, "a listing that never ends must not hide the age"
            listed.append("page")
            return list_objects(**request)

        bench.s3.list_objects_v2 = list_page  # type: ignore[method-assign]
        found = bench.run_audit(lambda: next(left), publish=published.append)
        assert (found.complete, len(listed)) == (False, 2)
        assert published == [{"OldestWaitingSet": found.oldest_waiting_ms}]


def small_pages(bench: SetBench, size: int) -> None:
    """Let S3 list so many objects in a request."""
    list_objects = type(bench.s3).list_objects_v2
    bench.s3.list_objects_v2 = lambda **request: list_objects(bench.s3, **request, MaxKeys=size)  # type: ignore[method-assign]
