"""Outputs of processors, with S3's conditional writes in memory."""

import gzip
import io
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from PIL import Image

import intake_ledger
from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import Commit, InvalidOutputError, ObjectChange, Output, OutputConflict, OutputError, Overtaken
from intake_ledger.consumer.deadline import Overrun, deadline
from intake_ledger.outputs.conditional_put import source_of
from intake_ledger.outputs.output import AttemptOutputs
from intake_ledger.protocol.errors import OutputReserved
from intake_ledger.protocol.row import Ordering
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import s3_error
from tests.settings import examples
from tests.unit.outputs.test_seal import bgzf

FENCE = 1_767_225_600_000
PART = 256


@pytest.fixture
def s3() -> MemoryOutputs:
    return MemoryOutputs()


def output(
    s3: MemoryOutputs, fence: int = FENCE, *, source: str = "in/a", look_first: bool = False, key: str = "out/a"
) -> Output:
    return Output(
        cast("Any", s3),
        "results",
        key,
        fence=fence,
        source=source_of(source, None),
        look_first=look_first,
        part_bytes=PART,
    )


def text(fence: int = FENCE, value: str = "x", *, length: int = 0) -> bytes:
    """Content with the fence: above `PART` bytes it is uploaded in parts."""
    return f"{fence},{value}".encode().ljust(length)


def test_the_first_output_is_one_request(s3: MemoryOutputs) -> None:
    output(s3).put(text(), content_type="text/csv")
    assert s3.requests == ["PutObject"]
    stored = s3.objects["results", "out/a"]
    assert (stored.content, stored.content_type) == (text(), "text/csv")
    assert stored.metadata == {"intake-fence": f"{FENCE}.1", "intake-source": source_of("in/a", None)}


COMPLETE = "CompleteMultipartUpload"


@pytest.mark.parametrize(
    ("look_first", "length", "requests"),
    [
        (True, 0, ["HeadObject", "PutObject"]),
        (False, 0, ["PutObject", "HeadObject", "PutObject"]),
        (False, 2 * PART, ["CreateMultipartUpload", "UploadPart", "UploadPart", COMPLETE, "HeadObject", COMPLETE]),
    ],
    ids=["a look and a put", "the row had expired", "a wrong guess repeats the completion only"],
)
def test_a_later_output_replaces_an_earlier_one(
    s3: MemoryOutputs, length: int, requests: list[str], *, look_first: bool
) -> None:
    output(s3).put(text())
    s3.requests.clear()
    output(s3, FENCE + 1, look_first=look_first).put(text(FENCE + 1, length=length))
    assert s3.requests == requests
    assert s3.read("results", "out/a") == text(FENCE + 1, length=length)


@pytest.mark.failure_mode("F129")
@pytest.mark.parametrize("look_first", [False, True])
@pytest.mark.parametrize("length", [0, 3 * PART])
def test_a_late_worker_cannot_overwrite(s3: MemoryOutputs, length: int, *, look_first: bool) -> None:
    output(s3, FENCE + 1).put(text(FENCE + 1))
    late = output(s3, look_first=look_first)
    with pytest.raises(Overtaken, match=rf"fence {FENCE + 1} has written .* fence {FENCE}.*s3://results/out/a"):
        late.put(text(length=length))
    with pytest.raises(Overtaken):
        late.remove()
    assert s3.read("results", "out/a") == text(FENCE + 1)
    assert not s3.uploads


@pytest.mark.failure_mode("F130")
def test_the_same_bytes_again_do_not_let_a_late_worker_in() -> None:
    """Fence 1 writes a picture, a worker with fence 2 sees it, 3 writes another one, and 4 the first one again."""
    pictures = []
    for color in range(2):
        file = io.BytesIO()
        Image.new("L", (2, 2), color).save(file, "PNG")
        pictures.append(file.getvalue())

    class Paused(MemoryOutputs):
        """The worker with fence 2 pauses between its look and its put."""

        paused = False

        def put_object(self, **request: Any) -> dict[str, Any]:
            if request["Metadata"]["intake-fence"] == f"{FENCE + 2}.1" and not self.paused:
                self.paused = True
                for fence, content in ((FENCE + 3, pictures[1]), (FENCE + 4, pictures[0])):
                    output(self, fence, look_first=True).put(content)
            return super().put_object(**request)

    s3 = Paused()
    output(s3, FENCE + 1).put(pictures[0])
    with pytest.raises(Overtaken):
        output(s3, FENCE + 2, look_first=True).put(pictures[1])
    assert s3.paused
    assert s3.objects["results", "out/a"].metadata["intake-fence"] == f"{FENCE + 4}.1"


@pytest.mark.failure_mode("F131")
def test_a_removal_is_a_tombstone_that_keeps_late_workers_out(s3: MemoryOutputs) -> None:
    output(s3).put(text())
    output(s3, FENCE + 2, look_first=True).remove()
    stored = s3.objects["results", "out/a"]
    assert stored.removed
    assert stored.tagging == "intake-tombstone=1"
    assert str(FENCE + 2).encode() in stored.content
    assert s3.read("results", "out/a") is None
    with pytest.raises(Overtaken):
        output(s3, FENCE + 1).put(text(FENCE + 1))


def test_a_removal_without_an_output_keeps_late_workers_out(s3: MemoryOutputs) -> None:
    output(s3, FENCE + 1).remove()
    with pytest.raises(Overtaken):
        output(s3).put(text())


def test_an_output_comes_back_after_its_removal(s3: MemoryOutputs) -> None:
    """The new object has no tag, so no lifecycle rule deletes it."""
    output(s3).remove()
    output(s3, FENCE + 1).put(text(FENCE + 1))
    assert s3.read("results", "out/a") == text(FENCE + 1)
    assert s3.objects["results", "out/a"].tagging == ""


@pytest.mark.failure_mode("F134")
def test_an_output_of_another_object_is_refused_whatever_its_fence(s3: MemoryOutputs) -> None:
    output(s3).put(text())
    for fence in (FENCE - 1, FENCE + 1):
        with pytest.raises(OutputConflict, match=r"belongs to another object: derive its key .*s3://results/out/a"):
            output(s3, fence, source="in/b").put(text(fence))
    assert s3.read("results", "out/a") == text()


class TestTwoObjectsWithOneOutput:
    """A file a.jpg is removed and a.jpeg is uploaded, and both have the output out/a."""

    @pytest.fixture
    def s3(self) -> MemoryOutputs:
        """Removals are written half a second after the claim with `FENCE`."""
        return MemoryOutputs(lambda: FENCE + 500)

    @pytest.mark.failure_mode("F288")
    def test_a_later_claim_replaces_the_tombstone(self, s3: MemoryOutputs) -> None:
        output(s3).remove()
        output(s3, FENCE + 2_000, source="in/b").put(text(FENCE + 2_000))
        assert s3.read("results", "out/a") == text(FENCE + 2_000)
        for fence in (FENCE - 1, FENCE + 3_000):
            with pytest.raises(OutputConflict):
                output(s3, fence).put(text(fence))

    @pytest.mark.failure_mode("F288")
    def test_a_late_worker_of_the_removed_object_stays_out(self, s3: MemoryOutputs) -> None:
        """Its object's tombstone is gone, and the present one has a higher fence."""
        output(s3).remove()
        output(s3, FENCE + 2_000, source="in/b").put(text(FENCE + 2_000))
        output(s3, FENCE + 4_000, source="in/b").remove()
        with pytest.raises(OutputReserved):
            output(s3, FENCE - 1).put(text(FENCE - 1))
        assert s3.read("results", "out/a") is None

    @pytest.mark.failure_mode("F288")
    @pytest.mark.parametrize("fence", [FENCE - 1_000, FENCE - 1, FENCE, FENCE + 499, FENCE + 999])
    def test_a_claim_from_before_the_tombstone_waits(self, s3: MemoryOutputs, fence: int) -> None:
        """S3's time of the tombstone has whole seconds."""
        output(s3).remove()
        with pytest.raises(
            OutputReserved, match=r"removed after this claim began: the next attempt .*s3://results/out/a"
        ):
            output(s3, fence, source="in/b").put(text(fence))
        assert s3.read("results", "out/a") is None

    @pytest.mark.failure_mode("F288")
    def test_a_removal_leaves_the_output_of_another_object(self, s3: MemoryOutputs) -> None:
        output(s3, source="in/b").put(text())
        s3.requests.clear()
        for fence in (FENCE - 1, FENCE + 1):
            output(s3, fence, look_first=True).remove()
        assert s3.requests == ["HeadObject"] * 2
        assert s3.read("results", "out/a") == text()

    @pytest.mark.failure_mode("F288")
    def test_a_late_worker_of_an_object_without_a_tombstone_stays_out(self, s3: MemoryOutputs) -> None:
        """Its object's removal found the other object. Then that object's removal ends, whose claim is the oldest."""
        output(s3, source="in/b").put(text())
        output(s3, FENCE + 300).remove()
        output(s3, FENCE + 100, source="in/b", look_first=True).remove()
        with pytest.raises(OutputReserved):
            output(s3, FENCE + 200).put(text(FENCE + 200))
        assert s3.read("results", "out/a") is None

    def test_a_removal_replaces_an_older_tombstone_of_another_object(self, s3: MemoryOutputs) -> None:
        output(s3, source="in/b").remove()
        output(s3, FENCE + 1).remove()
        with pytest.raises(OutputReserved):
            output(s3, source="in/b").remove()
        assert s3.objects["results", "out/a"].metadata["intake-fence"] == f"{FENCE + 1}.1"

    def test_a_version_does_not_leave_the_output_of_another_version(self, s3: MemoryOutputs) -> None:
        """With EVERY_VERSION the name of the output lacks the version, and the removal would do nothing."""
        output(s3, source="in/b").put(text())
        make = partial(Output, cast("Any", s3), fence=FENCE + 1, source="v2", look_first=True, is_version=True)
        outputs = AttemptOutputs(make)
        with pytest.raises(OutputConflict):
            outputs.output("results", "out/a").remove()


def test_an_object_that_was_no_output_is_replaced(s3: MemoryOutputs) -> None:
    """It was written before the team used outputs."""
    s3.put_object(Bucket="results", Key="out/a", Body=b"by hand")
    output(s3).put(text())
    assert s3.read("results", "out/a") == text()


def test_metadata_of_a_later_release_are_not_overwritten(s3: MemoryOutputs) -> None:
    s3.put_object(Bucket="results", Key="out/a", Body=b"x", Metadata={"intake-fence": "v2:7"})
    with pytest.raises(OutputError, match=r"in another format than .*v2:7"):
        output(s3).put(text())


class TestSeveralWrites:
    """One attempt that writes the same output several times."""

    def test_the_last_write_holds(self, s3: MemoryOutputs) -> None:
        one = output(s3)
        for value in "abc":
            one.put(text(value=value))
        one.remove()
        one.put(text(value="d"))
        assert s3.read("results", "out/a") == text(value="d")
        assert s3.requests == ["PutObject"] * 5
        assert s3.objects["results", "out/a"].metadata["intake-fence"] == f"{FENCE}.5"

    def test_an_attempt_has_one_output_for_each_name(self, s3: MemoryOutputs) -> None:
        """It counts the writes."""
        outputs = AttemptOutputs(partial(Output, cast("Any", s3), fence=FENCE, source="s", look_first=False))
        assert outputs.output("results", "a") is outputs.output("results", "a")
        assert outputs.output("results", "a") is not outputs.output("results", "b")

    @pytest.mark.parametrize(("bucket", "key"), [("", "a"), ("results", ""), ("results", "ä" * 513)])
    def test_a_name_that_s3_does_not_take_is_refused(self, s3: MemoryOutputs, bucket: str, key: str) -> None:
        outputs = AttemptOutputs(partial(Output, cast("Any", s3), fence=FENCE, source="s", look_first=False))
        with pytest.raises(ValueError, match="of the output"):
            outputs.output(bucket, key)


class LostAnswer(MemoryOutputs):
    """S3 writes, its answer is lost, and botocore sends the request again."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self._operation = operation

    def put_object(self, **request: Any) -> dict[str, Any]:
        return self._twice("put_object", request)

    def complete_multipart_upload(self, **request: Any) -> dict[str, Any]:
        return self._twice("complete_multipart_upload", request)

    def _twice(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        send = getattr(MemoryOutputs, operation)
        if operation == self._operation:
            self._operation = ""
            send(self, **request)
        answer: dict[str, Any] = send(self, **request)
        return answer


@pytest.mark.failure_mode("F132")
@pytest.mark.parametrize(("operation", "length"), [("put_object", 0), ("complete_multipart_upload", 3 * PART)])
@pytest.mark.parametrize("look_first", [False, True])
def test_a_write_whose_answer_was_lost_has_happened(operation: str, length: int, *, look_first: bool) -> None:
    s3 = LostAnswer(operation)
    output(s3, look_first=look_first).put(text(length=length))
    assert s3.read("results", "out/a") == text(length=length)
    assert not s3.uploads


def test_a_concurrent_write_is_tried_again(s3: MemoryOutputs, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    s3.conflicts = 2
    one = output(s3)
    monkeypatch.setattr(one._put, "_pause", pauses.append)
    one.put(text())
    assert s3.read("results", "out/a") == text()
    assert len(pauses) == 2


def test_endless_conflicts_end_with_an_error(s3: MemoryOutputs, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.conflicts = 100
    one = output(s3)
    monkeypatch.setattr(one._put, "_pause", lambda _: None)
    with pytest.raises(OutputError, match=r"at each of 10 tries: the next attempt .*s3://results/out/a"):
        one.put(text())


class Intruded(MemoryOutputs):
    """Another writer comes between the parts of the first upload and its completion."""

    def __init__(self, intrude: Callable[[MemoryOutputs], object]) -> None:
        super().__init__()
        self._intrude: Callable[[MemoryOutputs], object] | None = intrude

    def complete_multipart_upload(self, **request: Any) -> dict[str, Any]:
        intrude, self._intrude = self._intrude, None
        if intrude is not None:
            intrude(self)
        return super().complete_multipart_upload(**request)


class TestMultipart:
    """Content above one part."""

    def test_the_parts_are_streamed_once(self, s3: MemoryOutputs) -> None:
        """The first part is uploaded before the third one is read."""

        def content() -> Iterator[bytes]:
            for number in range(6):
                if number == 5:
                    assert "UploadPart" in s3.requests
                yield text(value=str(number), length=PART)

        output(s3).put(content())
        assert s3.read("results", "out/a") == b"".join(text(value=str(number), length=PART) for number in range(6))
        assert s3.requests == ["CreateMultipartUpload", *["UploadPart"] * 6, "CompleteMultipartUpload"]

    @pytest.mark.failure_mode("F298")
    @pytest.mark.parametrize("body", [lambda _: _, lambda _: [_[:PART], _[PART:]], bytearray, memoryview, io.BytesIO])
    @pytest.mark.parametrize("intruder", ["late worker", "deletion"])
    def test_an_upload_that_another_write_made_worthless_is_repeated(
        self, intruder: str, body: Callable[[bytes], Any]
    ) -> None:
        """The small write of a late worker costs the rightful one no attempt."""

        def intrude(s3: MemoryOutputs) -> None:
            if intruder == "late worker":
                output(s3, FENCE + 1).put(text(FENCE + 1))
            else:
                s3.delete_object(Bucket="results", Key="out/a")

        s3 = Intruded(intrude)
        output(s3).put(text())
        rightful = output(s3, FENCE + 2, look_first=True)
        rightful.put(body(text(FENCE + 2, length=2 * PART)))
        assert s3.read("results", "out/a") == text(FENCE + 2, length=2 * PART)
        assert s3.requests.count("CreateMultipartUpload") == 2
        assert not s3.uploads

    @pytest.mark.failure_mode("F298")
    def test_a_file_is_read_again_from_where_it_was(self) -> None:
        s3 = Intruded(lambda s3: output(s3, FENCE + 1).put(text(FENCE + 1)))
        file = io.BytesIO(b"header" + text(FENCE + 2, length=2 * PART))
        file.seek(6)
        output(s3, FENCE + 2).put(file)
        assert s3.read("results", "out/a") == text(FENCE + 2, length=2 * PART)

    @pytest.mark.failure_mode("F298")
    @pytest.mark.parametrize("conflicts", [1, 2])
    @pytest.mark.parametrize("kind", ["iterator", "stream"])
    def test_a_body_that_can_be_read_once_is_left_to_the_next_attempt(self, conflicts: int, kind: str) -> None:
        """S3 requires the parts again. The stream has been read."""

        class Stream(io.BytesIO):
            def seekable(self) -> bool:
                return False

        s3, content = MemoryOutputs(), text(length=2 * PART)
        s3.conflicts = conflicts
        with pytest.raises(OutputError, match=r"ConditionalRequestConflict .* uploaded again.*s3://results/out/a"):
            output(s3).put(iter([content]) if kind == "iterator" else Stream(content))
        assert s3.read("results", "out/a") is None
        assert not s3.uploads

    @pytest.mark.failure_mode("F298")
    def test_a_later_claim_ends_the_repetitions(self) -> None:
        """It has written the output, so no part is uploaded again."""
        s3 = Intruded(lambda s3: output(s3, FENCE + 2).put(text(FENCE + 2)))
        with pytest.raises(Overtaken):
            output(s3, FENCE + 1).put(text(FENCE + 1, length=2 * PART))
        assert s3.requests.count("CreateMultipartUpload") == 1
        assert not s3.uploads

    @pytest.mark.failure_mode("F298")
    def test_endless_conflicts_end_after_three_uploads(self, s3: MemoryOutputs) -> None:
        s3.conflicts = 100
        with pytest.raises(OutputError, match=r"ConditionalRequestConflict .* uploaded again.*s3://results/out/a"):
            output(s3).put(text(length=2 * PART))
        assert s3.requests.count("CreateMultipartUpload") == 3
        assert not s3.uploads

    @pytest.mark.failure_mode("F298")
    @pytest.mark.parametrize("write", ["put", "same bytes", "delete"])
    def test_a_completion_with_a_condition_meets_each_write_since_the_upload_began(
        self, s3: MemoryOutputs, write: str
    ) -> None:
        """AWS answers in the same way, also if the condition names the new object."""
        target: dict[str, Any] = {"Bucket": "results", "Key": "out/a"}
        before = s3.put_object(**target, Body=b"before")
        uploads = [target | {"UploadId": s3.create_multipart_upload(**target)["UploadId"]} for _ in range(2)]
        done = [{"PartNumber": 1, **s3.upload_part(**one, PartNumber=1, Body=b"content")} for one in uploads]
        if write == "delete":
            s3.delete_object(**target)
            condition = {"IfNoneMatch": "*"}
        else:
            condition = {"IfMatch": s3.put_object(**target, Body=b"before" if write == "same bytes" else b"x")["ETag"]}
        assert (write == "same bytes") == (condition.get("IfMatch") == before["ETag"])
        complete = partial(s3.complete_multipart_upload, MultipartUpload={"Parts": done[:1]})
        with pytest.raises(ClientError, match="ConditionalRequestConflict"):
            complete(**uploads[0], **condition)
        assert complete(**uploads[1])["ETag"]

    def test_an_upload_that_is_gone_is_left_to_the_next_attempt(self) -> None:
        """A lifecycle rule has aborted each. Nothing of it was written, and its completion is not repeated."""

        class Aborting(MemoryOutputs):
            def complete_multipart_upload(self, **request: Any) -> dict[str, Any]:
                self.uploads.clear()
                return super().complete_multipart_upload(**request)

        s3 = Aborting()
        with pytest.raises(OutputError, match=r"NoSuchUpload .* uploaded again.*s3://results/out/a"):
            output(s3).put(text(length=2 * PART))
        complete = "CompleteMultipartUpload"
        assert s3.requests[3:6] == [complete, "HeadObject", "AbortMultipartUpload"]
        assert s3.requests.count(complete) == 3
        assert not s3.objects

    @pytest.mark.failure_mode("F133")
    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
    def test_an_upload_is_aborted_after_any_failure(self, s3: MemoryOutputs, error: type[BaseException]) -> None:
        """The interruption by the processing limit is no Exception."""

        def content() -> Iterator[bytes]:
            yield text(length=3 * PART)
            raise error

        with pytest.raises(error):
            output(s3).put(content())
        assert not s3.uploads
        assert s3.requests[-1] == "AbortMultipartUpload"
        assert not s3.objects

    @pytest.mark.failure_mode("F133")
    def test_the_processing_limit_interrupts_an_upload_and_aborts_it(self) -> None:
        """The interruption is a signal, in the middle of a request to S3."""
        slow = threading.Event()

        class Slow(MemoryOutputs):
            def upload_part(self, **request: Any) -> dict[str, Any]:
                slow.wait(30)
                return super().upload_part(**request)

        s3 = Slow()
        with pytest.raises(Overrun), deadline(0.05):
            output(s3).put(text(length=3 * PART))
        assert not s3.uploads
        assert not s3.objects
        assert s3.requests == ["CreateMultipartUpload", "AbortMultipartUpload"]

    def test_a_failed_abort_does_not_hide_the_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        s3 = MemoryOutputs()

        def refused(**_: Any) -> None:
            raise s3_error("AbortMultipartUpload", 503, "SlowDown")

        monkeypatch.setattr(s3, "abort_multipart_upload", refused)
        with pytest.raises(OutputError, match="does not contain the fence"):
            output(s3).put(b" " * 3 * PART)


@pytest.mark.parametrize("length", [0, 3 * PART])
def test_content_without_the_fence_is_never_visible(s3: MemoryOutputs, length: int) -> None:
    """The error has the three ways out."""
    ways = r"write change\.fence into it .*or write PNG, JPEG or gzip, or use a key that ends in \.gz"
    with pytest.raises(OutputError, match=rf"does not contain the fence {FENCE}: {ways}: s3://results/out/a"):
        output(s3).put(b"a,b\n".ljust(length))
    assert not s3.objects
    assert not s3.uploads


@pytest.mark.failure_mode("F286")
@pytest.mark.parametrize("key", ["out/a.bam", "out/a.vcf.gz"])
@pytest.mark.parametrize("length", [1, 10 * PART])
def test_bgzf_is_refused_before_the_first_request(s3: MemoryOutputs, key: str, length: int) -> None:
    content = bgzf(random.Random(1).randbytes(length))
    with pytest.raises(OutputError, match=rf"BGZF .* a key that contains change\.fence, .*s3://results/{key}"):
        output(s3, key=key).put(content)
    assert not s3.requests


def test_content_for_a_gz_key_is_compressed(s3: MemoryOutputs) -> None:
    output(s3, key="out/a.csv.gz").put(b"a,b\n")
    assert gzip.decompress(s3.read("results", "out/a.csv.gz") or b"") == b"a,b\n"


@pytest.mark.parametrize(
    "body",
    [
        text(length=PART - 1),
        bytearray(text(length=3 * PART)),
        memoryview(text(length=3 * PART)),
        io.BytesIO(text(length=3 * PART)),
        [text(), b"more", b""],
        iter([text(length=PART), b"more"]),
        (bytearray(b) for b in (text(), b"more")),
    ],
)
def test_each_kind_of_body_is_written(s3: MemoryOutputs, body: Any) -> None:
    output(s3).put(body)
    assert (s3.read("results", "out/a") or b"").startswith(text())


@pytest.mark.parametrize("body", ["text", io.StringIO("text"), ["text"], [1]])
def test_a_body_that_is_not_binary_is_refused(s3: MemoryOutputs, body: Any) -> None:
    with pytest.raises(TypeError, match=r"the body of the output .*encode"):
        output(s3).put(body)
    assert not s3.requests


@pytest.mark.parametrize(
    ("operation", "status", "code", "error", "expected"),
    [
        (
            *("PutObject", 403, "AccessDenied", OutputError),
            r"AccessDenied: give the pipeline its permissions with pipeline\.grant_output.*s3://results/out/a",
        ),
        ("PutObject", 404, "NoSuchBucket", OutputError, "bucket of the output does not exist: create it.*s3://results"),
        # Without s3:ListBucket, S3 answers 403 for a missing object.
        ("HeadObject", 403, "AccessDenied", OutputError, "refuses HeadObject of the output with 403: .*grant_output"),
        ("PutObject", 503, "SlowDown", ClientError, "SlowDown"),
    ],
)
def test_a_refusal_names_its_fix_and_another_error_propagates(
    s3: MemoryOutputs,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    status: int,
    code: str,
    error: type[Exception],
    expected: str,
) -> None:
    def refused(**_: Any) -> None:
        raise s3_error(operation, status, code)

    monkeypatch.setattr(s3, {"PutObject": "put_object", "HeadObject": "head_object"}[operation], refused)
    with pytest.raises(error, match=expected):
        output(s3, look_first=operation == "HeadObject").put(text())


class TestInAPipeline:
    """`change.output` in the consumer that runs in Lambda."""

    @staticmethod
    def process(change: ObjectChange) -> Commit | None:
        """Keep a copy with the fence."""
        copy = change.output("results", f"copy/{change.key}")
        if change.kind != "created":
            copy.remove()
            return None
        copy.put(b"%d:%b" % (change.fence, change.read(1000)))
        return Commit(copy.key)

    @pytest.mark.parametrize("fault", [one for one in Fault if one is not Fault.CONNECTION_CUT])
    def test_after_each_fault_the_output_is_the_newest_state(self, fault: Fault) -> None:
        pipeline = LocalPipeline(self.process, deletes=True)
        pipeline.put("a", "1")
        pipeline.next(fault)
        pipeline.run()
        assert (pipeline.output("results", "copy/a") or b"").partition(b":")[2] == b"1"
        pipeline.put("a", "2")
        pipeline.next(fault, fault)
        pipeline.run()
        assert (pipeline.output("results", "copy/a") or b"").partition(b":")[2] == b"2"
        pipeline.delete("a")
        pipeline.next(fault)
        pipeline.run()
        assert pipeline.output("results", "copy/a") is None
        assert not pipeline.dead_letters

    def test_a_late_worker_is_refused_twice(self) -> None:
        """By the output and by the ledger. It spends no attempt, and nothing goes to the dead-letter queue."""
        pipeline = LocalPipeline(self.process)
        pipeline.put("a", "1")
        pipeline.next(Fault.OVERTAKEN)
        pipeline.run()
        assert pipeline.outcomes["Fenced"] == 1
        assert (pipeline.output("results", "copy/a") or b"").endswith(b":1")

    def test_a_key_with_a_row_is_looked_at_first(self) -> None:
        """An earlier claim has probably left an output."""
        pipeline = LocalPipeline(self.process)
        pipeline.put("a", "1")
        pipeline.run()
        pipeline.put("a", "2")
        pipeline.run()
        assert pipeline._outputs.requests == ["PutObject", "HeadObject", "PutObject"]

    @staticmethod
    def without_suffix(change: ObjectChange) -> None:
        copy = change.output("results", f"copy/{change.key.partition('.')[0]}")
        if change.kind == "created":
            copy.put(b"%d:%b" % (change.fence, change.read(1000)))
        else:
            copy.remove()

    @pytest.mark.failure_mode("F288")
    @pytest.mark.parametrize("fault", [None, *(one for one in Fault if one is not Fault.CONNECTION_CUT)])
    @pytest.mark.parametrize("is_copied_first", [False, True])
    def test_a_renamed_object_gets_the_output(self, fault: Fault | None, *, is_copied_first: bool) -> None:
        """`aws s3 mv` copies first. Both messages come in any order, some twice, and some calls fail."""
        for seed in range(20):
            pipeline = LocalPipeline(self.without_suffix, deletes=True)
            pipeline.put("a.jpg", "1")
            pipeline.run()
            if is_copied_first:
                pipeline.put("a.jpeg", "2")
                pipeline.delete("a.jpg")
            else:
                pipeline.delete("a.jpg")
                pipeline.put("a.jpeg", "2")
            pipeline.next(fault)
            pipeline.run(seed=seed)
            assert (pipeline.output("results", "copy/a") or b"").endswith(b":2")
            assert not pipeline.dead_letters

    @pytest.mark.failure_mode("F288")
    def test_the_wait_for_a_tombstone_counts_no_attempt(self) -> None:
        removed: list[int] = []

        def process(change: ObjectChange) -> None:
            """The output of another object is removed after this claim has begun."""
            if not removed:
                removed.append(change.fence)
                output(pipeline._outputs, change.fence, key="copy/a").remove()
            self.without_suffix(change)

        pipeline = LocalPipeline(process, max_attempts=2)
        pipeline.put("a.jpeg", "2")
        pipeline.run()
        row = pipeline.row("a.jpeg")
        assert row is not None
        assert (row.status, row.attempts) == ("PROCESSED", 1)
        assert pipeline.outcomes["Failed"] == 1
        assert (pipeline.output("results", "copy/a") or b"").endswith(b":2")

    @staticmethod
    def orphans(process: Callable[[ObjectChange], None], seed: int) -> set[str]:
        """The outputs of a round that the last version of the object does not name.

        Each version names some pages. Messages come in any order, some twice, and some calls fail.
        """
        dice = random.Random(seed)
        pipeline = LocalPipeline(process, deletes=True)
        for _ in range(3):
            pages = dice.sample("abcd", dice.randint(1, 4))
            pipeline.put("book", "".join(pages))
            pipeline.run(seed=seed)
        assert not pipeline.dead_letters
        shown = {page for page in "abcd" if pipeline.output("results", f"book/{page}") is not None}
        assert shown >= set(pages)
        return shown - set(pages)

    @pytest.mark.failure_mode("F289")
    def test_outputs_that_a_newer_state_does_not_write_stay(self) -> None:
        """Unless the processor removes each name that it could have written before."""

        def only_writes(change: ObjectChange) -> None:
            for page in change.read(10).decode():
                change.output("results", f"book/{page}").put(b"%d" % change.fence)

        def writes_or_removes(change: ObjectChange) -> None:
            pages = change.read(10).decode()
            for page in "abcd":
                one = change.output("results", f"book/{page}")
                if page in pages:
                    one.put(b"%d" % change.fence)
                else:
                    one.remove()

        seeds = range(examples(100))
        assert sum(bool(self.orphans(only_writes, seed)) for seed in seeds) > len(seeds) / 2
        assert [seed for seed in seeds if self.orphans(writes_or_removes, seed)] == []

    def test_the_object_itself_is_no_output(self) -> None:
        def process(change: ObjectChange) -> None:
            change.output(change.bucket, change.key)

        pipeline = LocalPipeline(process)
        pipeline.put("a", "1")
        with pytest.raises(InvalidOutputError) as refused:
            pipeline.run()
        assert [one.reason for one in pipeline.dead_letters] == [refused.value.why]

    def test_versions_have_their_own_sources(self) -> None:
        """With EVERY_VERSION, the fences of two versions have no order, so they must not share an output."""
        pipeline = LocalPipeline(self.process, ordering=Ordering.EVERY_VERSION)
        pipeline.put("a", "1")
        pipeline.put("a", "2")
        with pytest.raises(OutputConflict):
            pipeline.run()
        [rejected] = pipeline.dead_letters
        assert rejected.reason == "the output belongs to another object: derive its key from the key of one object"


def test_a_cold_start_does_not_import_outputs() -> None:
    """Nor does the import of the names that a processor needs, until it asks for `Output`."""
    code = (
        "import sys, intake_ledger.consumer\n"
        "from intake_ledger import Commit, ObjectChange, Overtaken\n"
        "assert not [name for name in sys.modules if name.startswith('intake_ledger.outputs')]\n"
        "from intake_ledger import Output\n"
        "assert Output.__module__.startswith('intake_ledger.outputs')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_has_no_other_lazy_names() -> None:
    with pytest.raises(AttributeError, match="module 'intake_ledger' has no attribute 'Outputs'"):
        getattr(intake_ledger, "Outputs")  # noqa: B009 - a type checker knows that it is missing
