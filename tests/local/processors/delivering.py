"""A processor that hands each object on to a system of the team's, by HTTP; how it goes is that system's business."""

import hashlib
import json
import os
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from intake_ledger import Commit, ObjectChange, Unprocessable

direct = build_opener(ProxyHandler({}))


def process(change: ObjectChange) -> Commit:
    """Delivered means answered with 200; 422 is a refusal for good, anything else a failure."""
    delivery = {
        "key": change.key,
        "version": change.version_id,
        "content": hashlib.md5(change.open().read(), usedforsecurity=False).hexdigest(),
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
