"""The thing that an execution works for, made of its input: for code of a durable function or a task."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from botocore.exceptions import ClientError

from intake_ledger.outputs.conditional_put import source_of
from intake_ledger.outputs.output import AttemptOutputs, Output
from intake_ledger.processor.file_set import FileSet, SetFile
from intake_ledger.processor.object_change import KINDS, ObjectChange
from intake_ledger.processor.object_stream import OpenedObject, open_state
from intake_ledger.protocol.change import State, requested_state
from intake_ledger.protocol.errors import ObjectGone, OutputError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


_FORMAT = 1
"""The version of the input, as `intake_ledger.kinds.FORMAT`, which the processor's side does not import."""


_CONSTRUCTS = {"object": "an IntakePipeline", "message": "a MessageIntake", "set": "FileSets"}


def check_input(event: Mapping[str, Any], thing: str) -> str:
    """The sort key of the row of an input for an `object`, a `message` or a `set`.

    Raises:
        ValueError: The event is not the input of an execution for such a thing.

    """
    place = event.get("intake")
    row = str(place.get("sk", "")) if isinstance(place, Mapping) else ""
    found = "set" if "parts" in event else "message" if "body" in event else "object"
    if event.get("format") != _FORMAT or not row or found != thing:
        article = "an" if thing == "object" else "a"
        raise ValueError(
            f"the event is not the input of an execution for {article} {thing}: pass the event of a durable function, "
            f"or the input of the first state, of {_CONSTRUCTS[thing]}"
        )
    return row


def fence_of(event: Mapping[str, Any]) -> int:
    """The fence of an input. A language whose numbers are floating-point may have rounded the number."""
    return int(event.get("fenceText", event["fence"]))


def change_of(
    event: Mapping[str, Any],
    make_client: "Callable[[], S3Client] | None" = None,
    remaining_seconds: Callable[[], float] | None = None,
) -> ObjectChange:
    """See `ObjectChange.of_execution`."""
    row = check_input(event, "object")
    state = requested_state(event.get("kind"), event.get("versionId"), event.get("etag"), event.get("size"))
    if state is None:
        raise ValueError("the event is not the input of an execution for an object: it names no version")
    client = _once(make_client or _s3)
    # The sort key of a row is that of the whole key, or of one state.
    is_version = not row.endswith("@latest")
    bucket, key = event["bucket"], event["key"]
    fence = fence_of(event)
    # No end of an attempt closes them here.
    opened = OpenedObject(partial(_open, client, bucket, key, state), one_of_many=True)
    return ObjectChange(
        bucket=bucket,
        key=key,
        kind=KINDS[state.kind],
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        event_name=event.get("eventName", ""),
        event_time=None,
        attempt=event["attempt"],
        fence=fence,
        fenced_version=state.version_id or state.etag if is_version else None,
        idempotency_key=event["idempotencyKey"],
        group_fence=int(event["groupFence"]) if "groupFence" in event else None,
        _remaining_seconds=remaining_seconds or no_time,
        _open=opened.open,
        _download=opened.download,
        _output=_outputs(client, fence, key, state.identity if is_version else None),
        _begin_rejects=_no_rejects,
    )


def set_of(
    event: Mapping[str, Any],
    make_client: "Callable[[], S3Client] | None" = None,
    remaining_seconds: Callable[[], float] | None = None,
) -> FileSet:
    """See `FileSet.of_execution`."""
    check_input(event, "set")
    client = _once(make_client or _s3)
    bucket, key, place = event["bucket"], event["key"], event["parts"]
    try:
        listed = json.loads(client().get_object(Bucket=place["bucket"], Key=place["key"])["Body"].read())
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchKey":
            raise
        # Its worker died before it had stored the list, and the set has changed since.
        raise ObjectGone(
            f"{key}: the list of the set's parts is not there. The next attempt has its present parts"
        ) from error
    fence = fence_of(event)
    return FileSet(
        bucket=bucket,
        key=key,
        version=event["versionId"],
        manifest=None,
        parts=tuple(_part(client, bucket, one) for one in listed),
        attempt=event["attempt"],
        fence=fence,
        idempotency_key=event["idempotencyKey"],
        group_fence=int(event["groupFence"]) if "groupFence" in event else None,
        _remaining_seconds=remaining_seconds or no_time,
        _output=_outputs(client, fence, key, None),
    )


def _part(client: "Callable[[], S3Client]", bucket: str, listed: Mapping[str, Any]) -> SetFile:
    state = requested_state("created", listed.get("versionId"), listed.get("etag"), None)
    assert state is not None, "each part of a complete set has a version or an ETag"
    opened = OpenedObject(partial(_open, client, bucket, listed["key"], state), one_of_many=True)
    return SetFile(listed["key"], state, opened, _no_rejects)


def _outputs(
    client: "Callable[[], S3Client]", fence: int, key: str, version: str | None
) -> "Callable[[str, str], Output]":
    """Make the outputs of an execution. `version`: of a row that has one, None otherwise."""

    def make(bucket: str, name: str) -> Output:
        return Output(
            client(),
            bucket,
            name,
            fence=fence,
            source=source_of(key, version),
            # An earlier execution, or an earlier run of this step, may have written it.
            look_first=True,
            is_version=version is not None,
            resumes=True,
        )

    return AttemptOutputs(make).output


def _once[Made](make: Callable[[], Made]) -> Callable[[], Made]:
    """Make it at the first call. It lives as long as the change."""
    made: list[Made] = []

    def get() -> Made:
        if not made:
            made.append(make())
        return made[0]

    return get


def _s3() -> "S3Client":
    import boto3  # noqa: PLC0415 - code that only reads the fields needs none

    return boto3.client("s3")


def _open(make_client: "Callable[[], S3Client]", bucket: str, key: str, state: State) -> Any:
    return open_state(make_client(), {"Bucket": bucket}, key, state)


def no_time() -> NoReturn:
    """Stand for a time that is not known."""
    raise RuntimeError("the time of an execution is not known here: pass remaining_seconds to of_execution")


def _no_rejects(_: object) -> NoReturn:
    raise OutputError("on_error keeps no rejected rows in an execution: write them to an output of your own")
