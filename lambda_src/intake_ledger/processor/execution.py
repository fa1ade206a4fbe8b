"""The change that an execution was started for, made of its input: for code of a durable function or a task."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from intake_ledger.outputs import AttemptOutputs, source_of
from intake_ledger.processor.object_change import KINDS, ObjectChange
from intake_ledger.processor.object_stream import OpenedObject, open_state
from intake_ledger.protocol import OutputError, requested_state

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_FORMAT = 1
"""The version of the input, as `intake_ledger.kinds.FORMAT`, which the processor's side does not import."""


def change_of(
    event: Mapping[str, Any],
    make_client: "Callable[[], S3Client] | None" = None,
    remaining_seconds: Callable[[], float] | None = None,
) -> ObjectChange:
    """See `ObjectChange.of_execution`."""
    state = None
    place = event.get("intake")
    row = str(place.get("sk", "")) if isinstance(place, Mapping) else ""
    if event.get("format") == _FORMAT and row:
        state = requested_state(event.get("kind"), event.get("versionId"), event.get("etag"), event.get("size"))
    if state is None or "parts" in event or "body" in event:
        raise ValueError(
            "the event is not the input of an execution for an object: pass the event of a durable function, or the "
            "input of the first state, of an IntakePipeline"
        )
    client = _once(make_client or _s3)
    # The sort key of a row is that of the whole key, or of one state.
    is_version = not row.endswith("@latest")
    bucket, key = event["bucket"], event["key"]
    # A language whose numbers are floating-point may have rounded the number.
    fence = int(event.get("fenceText", event["fence"]))
    outputs = _once(
        lambda: AttemptOutputs(
            client(),
            fence=fence,
            source=source_of(key, state.identity if is_version else None),
            # An earlier execution, or an earlier run of this step, may have written it.
            look_first=True,
            is_version=is_version,
            resumes=True,
        )
    )
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
        _remaining_seconds=remaining_seconds or _no_time,
        _open=opened.open,
        _download=opened.download,
        _output=lambda *where: outputs().output(*where),
        _begin_rejects=_no_rejects,
    )


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


def _open(make_client: "Callable[[], S3Client]", bucket: str, key: str, state: Any) -> Any:
    return open_state(make_client(), {"Bucket": bucket}, key, state)


def _no_time() -> NoReturn:
    raise RuntimeError("the time of an execution is not known here: pass remaining_seconds to of_execution")


def _no_rejects(_: object) -> NoReturn:
    raise OutputError("on_error keeps no rejected rows in an execution: write them to an output of your own")
