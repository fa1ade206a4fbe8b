"""The outputs of one attempt."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from intake_ledger.outputs.conditional_put import FENCE, REMOVED, ConditionalPut, PartsLost, WriteMark
from intake_ledger.outputs.seal import FenceMissing, SealBreaks, seal
from intake_ledger.outputs.upload import PART_BYTES, split, upload
from intake_ledger.protocol.errors import InvalidOutputError, InvalidOutputNameError, InvalidOutputTypeError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

TOMBSTONE_TYPE = "application/vnd.intake-removed+json"
TOMBSTONE_TAG = "intake-tombstone=1"
MAX_UPLOADS = 3
"""A write of the key during an upload makes it worthless. A late worker writes once, so the second upload succeeds."""
_MAX_KEY_BYTES = 1024
_READ_BYTES = 1024 * 1024

Content = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]


class Output:
    """One object that this attempt writes. A worker with an earlier claim cannot overwrite it.

    `ObjectChange.output` makes it. Do not use it from several threads at once.
    """

    def __init__(
        self,
        client: "S3Client",
        bucket: str,
        key: str,
        *,
        fence: int,
        source: str,
        look_first: bool,
        is_version: bool = False,
        removals: bool = True,
        resumes: bool = False,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Make an output. Processors use `ObjectChange.output` instead.

        Args:
            client: of S3.
            bucket: of the output.
            key: of the output.
            fence: of the claim.
            source: the object that it is derived from, as `source_of` gives it.
            look_first: True if an earlier attempt may have written the output.
            is_version: True if it is derived from a version, with EVERY_VERSION. Then another version must not have it.
                It is derived from an object when omitted.
            removals: False if the pipeline processes no removals. Then the output of another object stays. It processes
                them when omitted.
            resumes: True if earlier processes of the same claim may have written the output. Their writes count then,
                so that a later one is not taken for the repeat of an earlier one. There were none when omitted.
            part_bytes: the size of a part; 8 MiB when omitted. Smaller content is one put.

        """
        self.bucket = bucket
        """The output's bucket."""
        self.key = key
        """The output's key."""
        self._client = client
        self._where: Any = {"Bucket": bucket, "Key": key}
        self._fence = fence
        self._writes: int | None = None if resumes else 0
        self._part_bytes = part_bytes
        self._is_version = is_version
        self._put = ConditionalPut(client, bucket, key, source, look_first=look_first, removals=removals)

    def put(self, body: Content, *, content_type: str | None = None) -> None:
        """Write the output, unless a later claim has written it.

        The content must be different for each claim. PNG, JPEG and gzip get the fence inside, where readers ignore
        it. Content for a key that ends in `.gz` is compressed if it is not gzip. Any other content must contain the
        text of `change.fence`. Content above 8 MiB is uploaded in parts as it is read. If another worker writes the
        output meanwhile, it is uploaded again, at most twice. For that, the body must be bytes, a list of bytes, or a
        file with `seek`. Others can be read only once, so the attempt fails and the next one writes the output.

        Args:
            body: bytes, an iterable of bytes, or a binary file, which is read to its end.
            content_type: the media type; S3's default, `binary/octet-stream`, when omitted.

        Raises:
            Overtaken: A worker with a later claim has written it. Let it propagate.
            InvalidOutputError: The content does not contain the fence, the fence would break it (BGZF), or it is too
                long. Let it propagate: no attempt of the same code can succeed, so the change is rejected. Nothing has
                become visible.
            InvalidOutputTypeError: The body is text, or gives other values than bytes, or `content_type` is not ASCII
                text. Let it propagate, too.
            OutputConflict: It shows another object. Let it propagate: the change is retried if the pipeline processes
                removals, because the other object may be renamed. It is rejected otherwise.
            OutputError: S3 refuses. Nothing has become visible. Let it propagate: the change is retried.

        """
        mark = self._next_mark()
        request: Any = {"Metadata": self._put.metadata(mark)}
        if content_type is not None:
            request["ContentType"] = _media_type(content_type)
        rewind = _rewinding(body)
        for uploads_left in reversed(range(MAX_UPLOADS)):
            try:
                self._write(body, mark, request)
            except PartsLost:
                if rewind is None or not uploads_left:
                    raise
                rewind()
            else:
                return

    def remove(self) -> None:
        """Replace the output by a tombstone, unless a later claim has written it.

        A tombstone is a small object with the metadata `intake-removed`. Readers treat it as an absent object. S3 has
        no conditional delete of an absent object, so a late worker could write after a real delete. The lifecycle rule
        of `pipeline.grant_output` deletes tombstones after a day.

        Raises:
            Overtaken: As for `put`.
            OutputConflict: As for `put`.
            OutputError: S3 refuses.

        """
        mark = self._next_mark()
        request: Any = {
            "Metadata": self._put.metadata(mark) | {REMOVED: "1"},
            "ContentType": TOMBSTONE_TYPE,
            "Tagging": TOMBSTONE_TAG,
        }
        content = json.dumps({REMOVED: True, FENCE: str(mark)}).encode()
        self._put.swap(mark, partial(self._put_object, content, request), removes=not self._is_version)

    def _write(self, body: Content, mark: WriteMark, request: Any) -> None:
        parts = split(self._sealed(body, mark), self._part_bytes)
        first, second = next(parts), next(parts, None)
        if second is None:
            self._put.swap(mark, partial(self._put_object, first, request))
            return
        swap = partial(self._put.swap, mark, repeatable=False)
        upload(self._client, self._where, request, chain((first, second), parts), swap)

    def _next_mark(self) -> WriteMark:
        if self._writes is None:
            self._writes = self._put.written(self._fence)
        self._writes += 1
        return WriteMark(self._fence, self._writes)

    def _put_object(self, content: bytes, request: Any, condition: Any) -> str | None:
        return self._client.put_object(**self._where, Body=content, **request, **condition).get("ETag")

    def _sealed(self, body: Content, mark: WriteMark) -> Iterator[bytes]:
        try:
            yield from seal(_chunks(body), str(mark), self._fence, compress=self.key.endswith(".gz"))
        except FenceMissing:
            raise InvalidOutputError(
                f"the content of the output does not contain the fence {self._fence}: write change.fence into it (a "
                "column, a field, a metadata entry), or write PNG, JPEG or gzip, or use a key that ends in .gz",
                detail=f"s3://{self.bucket}/{self.key}",
            ) from None
        except SealBreaks:
            raise InvalidOutputError(
                "the output is a gzip file whose header has an extra field, such as BGZF (.bam, .vcf.gz). Its readers "
                "find its parts by their lengths, and the fence inside would break it: write it with boto3 under a key "
                "that contains change.fence, and return that key in the Commit",
                detail=f"s3://{self.bucket}/{self.key}",
            ) from None


class AttemptOutputs:
    """The outputs of one attempt: one `Output` for each bucket and key, because it counts the writes."""

    def __init__(self, make: Callable[[str, str], Output]) -> None:
        """`make` gives the `Output` of a bucket and a key."""
        self._make = make
        self._outputs: dict[tuple[str, str], Output] = {}

    def output(self, bucket: str, key: str) -> Output:
        """The output with this name. Raises InvalidOutputNameError for a name that S3 does not take."""
        _check_name(bucket, key)
        name = (bucket, key)
        if name not in self._outputs:
            self._outputs[name] = self._make(bucket, key)
        return self._outputs[name]


def _check_name(bucket: object, key: object) -> None:
    for what, name in (("bucket", bucket), ("key", key)):
        if not isinstance(name, str):
            raise InvalidOutputNameError(f"the {what} of the output is {type(name).__name__}: give a text")
    if not bucket:
        raise InvalidOutputNameError("the bucket of the output is empty: give the name of a bucket")
    try:
        size = len(str(key).encode())
    except UnicodeEncodeError:
        raise InvalidOutputNameError("the key of the output is not valid Unicode") from None
    if not 0 < size <= _MAX_KEY_BYTES:
        raise InvalidOutputNameError(f"the key of the output has {size:,} bytes: S3 takes 1 to {_MAX_KEY_BYTES:,}")


def _media_type(value: object) -> str:
    """The value as a header. S3 takes printable ASCII."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise InvalidOutputTypeError("the content_type of the output is not printable ASCII text: give a media type")
    return value


def _rewinding(body: object) -> Callable[[], object] | None:
    """A function after which the body can be read again. None: it can be read only once.

    An iterable of another class than a sequence may give nothing the second time.
    """
    if isinstance(body, Sequence | bytearray | memoryview):
        return lambda: None
    try:
        file = cast("BinaryIO", body)
        return partial(file.seek, file.tell()) if file.seekable() else None
    except (AttributeError, OSError, ValueError):
        return None


def _chunks(body: object) -> Iterator[bytes]:
    if isinstance(body, bytes | bytearray | memoryview):
        # In slices, so that a large value is not copied as a whole.
        view = memoryview(body).cast("B")
        yield from (bytes(view[at : at + _READ_BYTES]) for at in range(0, len(view), _READ_BYTES))
        return
    if isinstance(body, str):
        raise InvalidOutputTypeError("the body of the output is text: encode it, for example with .encode()")
    # A type checker knows that these are bytes. The processor's code may have none.
    chunks = cast("Iterable[object]", body)
    if hasattr(body, "read"):
        file = cast("BinaryIO", body)
        chunks = iter(lambda: file.read(_READ_BYTES), b"")
    elif not isinstance(body, Iterable):
        raise InvalidOutputTypeError(f"the body of the output is {type(body).__name__}: give bytes")
    for chunk in chunks:
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise InvalidOutputTypeError(
                f"the body of the output gives {type(chunk).__name__}: open it in binary mode, or encode it"
            )
        yield chunk if isinstance(chunk, bytes) else bytes(chunk)
