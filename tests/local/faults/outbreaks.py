"""Faults of DynamoDB and S3, for the proxy."""

from collections import Counter

from tests.local.faults import WIRED_SECONDS
from tests.local.faults.proxy import Fault, Outbreak, Trouble

TABLE = ("BatchExecuteStatement", "BatchGetItem", "DeleteItem", "GetItem", "PutItem", "UpdateItem")


def of_dynamodb(times: int) -> tuple[Fault, ...]:
    """Return faults for about `times` requests."""
    claims = ("BatchExecuteStatement", "PutItem")
    return (
        Fault(Trouble.EACH_THROTTLED, 1, ("BatchExecuteStatement",)),
        Fault(Trouble.ANSWER_LOST, 2, claims),
        Fault(Trouble.THROTTLED, times // 2, TABLE),
        Fault(Trouble.INTERNAL_ERROR, times // 6, TABLE),
        Fault(Trouble.CUT, times // 6, TABLE),
        Fault(Trouble.ANSWER_LOST, times // 6, ("UpdateItem",)),
        Fault(Trouble.SLOW, 1, ("UpdateItem",), seconds=5.5),  # the consumer's own limit is five
    )


def of_s3(times: int) -> tuple[Fault, ...]:
    """Return faults of S3. GET opens a version, HEAD reads the current one."""
    # The processor reads half a body. More of them in a row would open the consumer's circuit breaker. Another run
    # tests its pauses.
    halves = [
        (Fault(Trouble.HALF_AN_ANSWER, 2, ("GET",)), Fault(Trouble.NONE, 6, ("GET",))) for _ in range(times // 12)
    ]
    return (
        Fault(Trouble.THROTTLED, times // 4, ("HEAD",)),
        Fault(Trouble.THROTTLED, times // 4, ("GET",)),
        Fault(Trouble.INTERNAL_ERROR, times // 6, ("GET", "HEAD")),
        Fault(Trouble.CUT, times // 6, ("GET", "HEAD")),
        *(fault for few in halves for fault in few),
        Fault(Trouble.SLOW, 2, ("GET", "HEAD"), seconds=1),
        Fault(Trouble.SLOW, 2, ("GET",), seconds=WIRED_SECONDS + 1),
    )


def one_get_in(every: int, gets: int) -> tuple[Fault, ...]:
    """End one of `every` answers in the middle of the body. This pipeline's HTTP client does not notice."""
    return tuple(
        fault
        for _ in range(gets // every)
        for fault in (Fault(Trouble.NONE, every - 1, ("GET",)), Fault(Trouble.HALF_AN_ANSWER, 1, ("GET",)))
    )


def described(outbreak: Outbreak) -> str:
    struck = Counter[str]()
    for fault in outbreak.faults:
        if fault.trouble is not Trouble.NONE:
            struck[fault.trouble] += fault.struck
    return ", ".join(f"{times} {trouble}" for trouble, times in struck.items())


def not_over(outbreak: Outbreak) -> list[str]:
    """Report faults that did not happen: such a run has shown nothing."""
    return [] if outbreak.over else [f"the trouble did not come about: {outbreak.faults}"]
