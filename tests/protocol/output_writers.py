"""Writers of one output that advance by one request to S3 at a time.

The code of a writer is deterministic, and depends only on S3's answers. Each step runs it from its start with the
recorded answers, sends the first request that has none, and records its answer.
"""

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from botocore.exceptions import ClientError

from intake_ledger import Output, OutputError, Overtaken
from intake_ledger.outputs import output as implementation
from intake_ledger.outputs.conditional_put import REMOVED, source_of
from intake_ledger.outputs.upload import PART_BYTES

BUCKET = "outputs"
PART = 64
"""The size of a part in bytes. S3's minimum is 5 MiB, which the stores of these tests do not check."""


class Action(StrEnum):
    """The work of a writer."""

    PUT = "put"
    UPLOAD = "upload"
    REMOVE = "remove"


class Way(StrEnum):
    """The implementation of the writes."""

    PLAIN = "plain put"
    ETAG = "ETag without the fence in the content"
    OUTPUT = "change.output"


@dataclass(frozen=True)
class Job:
    """One attempt's write to the output."""

    fence: int
    action: Action
    value: bytes
    look_first: bool = True
    source: str = "in/a"
    """The key of the object that the output is derived from."""

    @property
    def expected(self) -> bytes | None:
        """The content that readers see after this job. None: it is absent."""
        return None if self.action is Action.REMOVE else self.value


class Paused(KeyboardInterrupt):
    """Stops a writer where its recorded answers end."""


@dataclass
class Writer:
    """One attempt. `run` is called again for each step."""

    run: Callable[[Any], None]
    fence: int = 0
    answers: list[Any] = field(default_factory=list)
    """S3's answers, and its errors."""
    ended: bool = False
    error: Exception | None = None
    """The error with which the attempt ended."""

    def step(self, s3: Any, *, answer_is_lost: bool = False) -> None:
        """Send the next request. If its answer is lost, the next step sends it again, as botocore does."""
        client = _Recorded(s3, self.answers, keep=not answer_is_lost)
        try:
            self.run(client)
        except Paused:
            return
        except (Overtaken, OutputError) as error:
            self.error = error
        self.ended = True


class _Recorded:
    def __init__(self, s3: Any, answers: list[Any], *, keep: bool) -> None:
        self._s3, self._answers, self._keep = s3, answers, keep
        self._next = 0
        self._sent = False

    def __getattr__(self, operation: str) -> Any:
        def request(**arguments: Any) -> Any:
            if self._next == len(self._answers):
                if self._sent:
                    raise Paused
                self._sent = True
                answer = self._answer(operation, arguments)
                if not self._keep:
                    raise Paused
                self._answers.append(answer)
            answer = self._answers[self._next]
            self._next += 1
            if isinstance(answer, ClientError):
                raise answer
            return answer

        return request

    def _answer(self, operation: str, arguments: dict[str, Any]) -> Any:
        try:
            return getattr(self._s3, operation)(**arguments)
        except ClientError as error:
            return error


class Unsealed(Output):
    """The seeded defect: compare and swap on the ETag, without the fence in the content."""

    def _sealed(self, body: Any, _: Any) -> Any:
        return implementation._chunks(body)


def writer(way: Way, key: str, job: Job) -> Writer:
    """The writer of a job."""
    return Writer(lambda s3: _plain(s3, key, job) if way is Way.PLAIN else _fenced(s3, way, key, job), job.fence)


def _fenced(s3: Any, way: Way, key: str, job: Job) -> None:
    output = (Unsealed if way is Way.ETAG else Output)(
        s3,
        BUCKET,
        key,
        fence=job.fence,
        source=source_of(job.source, None),
        look_first=job.look_first,
        part_bytes=PART if job.action is Action.UPLOAD else PART_BYTES,
    )
    if job.action is Action.REMOVE:
        output.remove()
    elif way is Way.ETAG or key.endswith(".gz"):
        output.put(job.value)
    else:
        output.put(job.value + b",%d" % job.fence)


def _plain(s3: Any, key: str, job: Job) -> None:
    where = {"Bucket": BUCKET, "Key": key}
    if job.action is Action.REMOVE:
        s3.delete_object(**where)
    elif job.action is Action.PUT:
        s3.put_object(**where, Body=job.value)
    else:
        target = where | {"UploadId": s3.create_multipart_upload(**where)["UploadId"]}
        parts = []
        for number, at in enumerate(range(0, len(job.value), PART), 1):
            answer = s3.upload_part(**target, PartNumber=number, Body=job.value[at : at + PART])
            parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        try:
            s3.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})
        except ClientError as error:
            # The answer was lost, and the request was sent again.
            if error.response["Error"]["Code"] != "NoSuchUpload":
                raise


def visible(s3: Any, key: str) -> bytes | None:
    """The value that readers see. None: a tombstone, or the object does not exist."""
    try:
        answer = s3.get_object(Bucket=BUCKET, Key=key)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise
        return None
    if REMOVED in answer["Metadata"]:
        return None
    content = cast("bytes", answer["Body"].read())
    if content.startswith(b"\x1f\x8b"):
        return gzip.decompress(content)
    return content.partition(b",")[0]
