"""The name and the input of a claim's execution. Both are functions of the row, so that a repeated start is the same.

Step Functions answers a repeated StartExecution with success only if name and input are the same. Therefore nothing of
the message is in them: two messages may start the execution of one row.
"""

import hashlib
import json
import re
from typing import Any, NoReturn

from intake_ledger.ledger import Claim
from intake_ledger.processor import OpenedObject, make_object_change
from intake_ledger.processor.lambda_processor import request_of
from intake_ledger.protocol import Change, Ordering, Origin, RowKey, Unprocessable

_NAME = re.compile(r"[0-9a-f]{40}-\d{1,39}")
"""Step Functions takes 80 characters. The local AWS takes any name, so names are checked here."""
MAX_INPUT_BYTES = 256 * 1024


def execution_name(key: RowKey, fence: int) -> str:
    """The name of the only execution of this fence.

    Raises:
        ValueError: The fence is not a positive number.

    """
    name = f"{hashlib.sha256(f'{key.pk}\n{key.sk}'.encode()).hexdigest()[:40]}-{fence}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"{fence} is not the fence of an execution")
    return name


def execution_input(claim: Claim, *, pipeline: str, ordering: Ordering) -> str:
    """The input of the claim's execution: the fields of docs/processor-json.md, and the key of the row.

    Raises:
        Unprocessable: It is longer than Step Functions takes.

    """
    row, change = claim.row, claim.change
    given = make_object_change(
        Change(change.bucket, change.key, Origin.EXECUTION, row.event_name or "", ""),
        claim.state,
        row,
        pipeline=pipeline,
        ordering=ordering,
        remaining_seconds=_nothing,
        opened=OpenedObject(_nothing),
        output=_nothing,
    )
    request: dict[str, Any] = request_of(given)
    # Of several messages about one state, each has another time.
    del request["eventTime"]
    # A language whose numbers are floating-point may round the fence.
    request |= {"fenceText": str(row.fence), "intake": {"pk": claim.key.pk, "sk": claim.key.sk}}
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    if len(text) > MAX_INPUT_BYTES:
        raise Unprocessable(f"the input of the execution has {len(text)} bytes, Step Functions takes {MAX_INPUT_BYTES}")
    return text


def _nothing(*_: object) -> NoReturn:
    raise NotImplementedError("an execution opens the object by itself")
