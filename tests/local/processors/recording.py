"""A processor that notes its effects, keeps the catalogue where there is one, and dies or hangs when told to."""

import functools
import os
import signal
import uuid
from threading import Event
from typing import Any

import boto3
from examples.catalogue.processor import catalogue
from probing import probe  # type: ignore[import-not-found] # it is in the same folder where it is deployed

from intake_ledger import Commit, ObjectChange


def process(change: ObjectChange) -> Commit:
    if "worker-dies-once" in change.key and change.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if "hangs-always" in change.key or ("hangs-once" in change.key and change.attempt == 1):
        Event().wait()
    commit = catalogue.process(change) if "CATALOGUE_TABLE" in os.environ else Commit(change.idempotency_key)
    entry = {
        "place": f"{change.bucket}/{change.key}",
        "id": uuid.uuid4().hex,
        "version": change.version_id or "",
        "kind": change.kind,
        "attempt": change.attempt,
        "process": os.getpid(),
        "event": change.event_name,
        "content": _content(change),
    }
    table().put_item(Item=entry)
    return commit


def _content(change: ObjectChange) -> str:
    if change.kind == "removed":
        return ""
    return probe(change) if "probe" in change.key else change.open().read()[:40].decode("latin-1")


@functools.cache
def table() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["EFFECTS_TABLE"])
