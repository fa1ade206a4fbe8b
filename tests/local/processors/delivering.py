"""A processor that hands each object on to a system of the team's, by HTTP; how it goes is that system's business."""

import hashlib
import json
import os
from collections.abc import Sequence
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import urllib3

from intake_ledger import Commit, FileSet, KeyedMessage, ObjectChange, Rejects, Unprocessable

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
    """Deliver the bytes of an object. Rows of a file of rows are numbers, and others are rejected."""
    if change.key.startswith("rows/"):
        for _ in change.csv_rows(columns={"number": int}, on_error=Rejects(max_share=None)):
            pass
    return _deliver(change, change.key, change.version_id or "", _digest(change))


def process_batch(changes: Sequence[ObjectChange]) -> dict[str, object]:
    """Deliver the bytes of several objects, each with its own result."""
    results: dict[str, object] = {}
    for change in changes:
        try:
            results[change.idempotency_key] = process(change)
        except Exception as error:  # noqa: BLE001 - it is the result of this object only
            results[change.idempotency_key] = error
    return results


def process_message(message: KeyedMessage) -> Commit:
    """Deliver a message, whose version is its identity."""
    return _deliver(message, message.key, message.identity, message.raw)


def process_set(files: FileSet) -> Commit:
    """Deliver a set, with key, version and content of each part in the order of the manifest."""
    parts = [[part.key, part.version_id, part.read(1000).decode()] for part in files.parts]
    return _deliver(files, files.key, files.version, json.dumps(parts))


def _deliver(claimed: ObjectChange | KeyedMessage | FileSet, key: str, version: str, content: str) -> Commit:
    """Delivered means answered with 200; 422 is a refusal for good, anything else a failure."""
    delivery = {
        "key": key,
        "version": version,
        "content": content,
        "attempt": claimed.attempt,
        "fence": claimed.fence,
        "idempotency_key": claimed.idempotency_key,
        "pid": os.getpid(),
    }
    request = Request(os.environ["DOWNSTREAM_URL"], data=json.dumps(delivery).encode())
    try:
        with direct.open(request):
            return Commit(claimed.idempotency_key)
    except HTTPError as refused:
        if refused.code == 422:
            raise Unprocessable(refused.read().decode()) from None
        raise
