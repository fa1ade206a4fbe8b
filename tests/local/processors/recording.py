"""A processor that notes each of its effects, keeps the catalogue where there is one, and can be told to die."""

import functools
import os
import signal
import uuid
from typing import Any

import boto3
from examples.catalogue import catalogue

from intake_ledger import Commit, ObjectChange


def process(change: ObjectChange) -> Commit:
    if "worker-dies-once" in change.key and change.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    commit = catalogue.process(change) if "CATALOGUE_TABLE" in os.environ else Commit(change.idempotency_key)
    entry = {
        "place": f"{change.bucket}/{change.key}",
        "id": uuid.uuid4().hex,
        "version": change.version_id or "",
        "kind": change.kind,
        "attempt": change.attempt,
        "event": change.event_name,
        "content": "" if change.kind == "removed" else change.open().read()[:40].decode("latin-1"),
    }
    table().put_item(Item=entry)
    return commit


@functools.cache
def table() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["EFFECTS_TABLE"])
