"""A processor that hands each object on to a system of the team's, by HTTP; how it goes is that system's business."""

import hashlib
import json
import os
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import urllib3

from intake_ledger import Commit, ObjectChange, Unprocessable

direct = build_opener(ProxyHandler({}))
if not urllib3.__version__.startswith(os.environ.get("URLLIB3", "")):  # type: ignore[attr-defined] # it is there
    raise ImportError(f"urllib3 is {urllib3.__version__}, and not {os.environ['URLLIB3']}")  # type: ignore[attr-defined]


def _digest(change: ObjectChange) -> str:
    """In small pieces, as many processors read: an end that comes too early looks like the end."""
    digest = hashlib.md5(usedforsecurity=False)
    with change.open() as stream:
        while piece := stream.read(8):
            digest.update(piece)
    return digest.hexdigest()


def process(change: ObjectChange) -> Commit:
    """Delivered means answered with 200; 422 is a refusal for good, anything else a failure."""
    delivery = {
        "key": change.key,
        "version": change.version_id,
        "content": _digest(change),
        "attempt": change.attempt,
        "fence": change.fence,
        "idempotency_key": change.idempotency_key,
        "pid": os.getpid(),
    }
    request = Request(os.environ["DOWNSTREAM_URL"], data=json.dumps(delivery).encode())
    try:
        with direct.open(request):
            return Commit(change.idempotency_key)
    except HTTPError as refused:
        if refused.code == 422:
            raise Unprocessable(refused.read().decode()) from None
        raise
