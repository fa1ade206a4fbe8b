# ruff: noqa: INP001 - it is an asset
"""The processors of the smoke: each notes its call in the table of effects."""

import functools
import os
import uuid
from typing import Any

import boto3

from intake_ledger import Commit, FileSet, KeyedMessage, ObjectChange, Unprocessable


def process(change: ObjectChange) -> Commit:
    """Note a file or its removal. A file with the text `bad` is rejected, and `fails` fails once."""
    text = "" if change.kind == "removed" else change.read(100).decode()
    if text == "bad":
        raise Unprocessable("no invoice in it")
    if text == "fails" and change.attempt == 1:
        raise RuntimeError("the service is closed")
    _note(change.key, text or change.kind)
    return Commit(text or change.kind)


def process_set(files: FileSet) -> Commit:
    """Note a set with the contents of its parts."""
    text = "+".join(part.read(100).decode() for part in files.parts)
    _note(files.key, text)
    return Commit(text)


def process_message(message: KeyedMessage) -> Commit:
    """Note a message. An order without pieces is rejected."""
    if not message.body["pieces"]:
        raise Unprocessable("no pieces")
    _note(message.key, str(message.identity))
    return Commit(message.idempotency_key)


def _note(key: str, text: str) -> None:
    _table().put_item(Item={"place": key, "id": uuid.uuid4().hex, "text": text})


@functools.cache
def _table() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["EFFECTS_TABLE"])
