"""Upload an output in parts. It becomes visible with its completion, which has the condition."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.errors import InvalidOutputError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 8 * 1024 * 1024
"""S3 takes 10,000 parts, so 78 GiB. A Lambda function cannot write more within its 15 minutes."""
MAX_PARTS = 10_000


def split(chunks: Iterable[bytes], size: int = PART_BYTES) -> Iterator[bytes]:
    """Yield the content in parts of `size` bytes. The last one may be shorter, and there is at least one."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) > size:
            yield bytes(held[:size])
            del held[:size]
    yield bytes(held)


def upload(
    client: "S3Client",
    where: Mapping[str, Any],
    request: Mapping[str, Any],
    parts: Iterable[bytes],
    swap: Callable[[Callable[[dict[str, str]], str | None]], None],
) -> None:
    """Upload the parts, each once, and complete them under a condition.

    After any failure the upload is aborted, also if the processing limit interrupts it. S3 charges for the parts of an
    upload until it is completed or aborted.

    Args:
        client: of S3.
        where: bucket and key.
        request: metadata and content type.
        parts: the content.
        swap: sends the completion with a condition, until S3 accepts it.

    """
    created: Any = client.create_multipart_upload(**where, **request, ChecksumAlgorithm="CRC32")
    target: Any = {**where, "UploadId": created["UploadId"]}
    try:
        done: Any = [_upload_part(client, target, number, part) for number, part in enumerate(parts, 1)]

        def complete(condition: Any) -> str | None:
            answer = client.complete_multipart_upload(**target, MultipartUpload={"Parts": done}, **condition)
            return answer.get("ETag")

        swap(complete)
    except BaseException:
        # If S3 does not answer, the bucket's lifecycle rule aborts it.
        with suppress(Exception):
            client.abort_multipart_upload(**target)
        raise


def _upload_part(client: "S3Client", target: Mapping[str, Any], number: int, part: bytes) -> dict[str, Any]:
    if number > MAX_PARTS:
        raise InvalidOutputError(f"the output has more than {MAX_PARTS:,} parts of 8 MiB: write several outputs")
    answer: Any = client.upload_part(**target, PartNumber=number, Body=part, ChecksumAlgorithm="CRC32")
    return {"PartNumber": number} | {name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}
