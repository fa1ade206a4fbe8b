"""Correct the answers of MiniStack that differ from those of AWS.

Each rule has its source in `tests/recorded`, or the page of AWS in its docstring. `tests/truth/test_recorded.py` plays
the recorded scenarios against MiniStack with and without them.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape, unescape
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote_plus, unquote, urlsplit

MAX_MESSAGE_BYTES = 1_048_576
_ENCODED = re.compile(r"<(Key|Prefix|Delimiter|Marker|NextMarker|KeyMarker|NextKeyMarker|StartAfter)>([^<]*)</")
_CONDITIONS = ("if-match", "if-none-match")


class Request(NamedTuple):
    """A request. The names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


Send = Callable[[Request], Answer]


@dataclass
class Corrections:
    """Answer as AWS would, with the help of `send`, which asks MiniStack."""

    send: Send
    in_flight_limit: int | None = None
    """Messages of a queue that may be in flight. About 120,000 on AWS."""
    unread_every: int = 0
    """Each such batch of DynamoDB does not process its last key or item. 0 for none."""
    refused_receives: int = 0
    """Receives in a row that got nothing because of the limit."""
    _writes: Counter[str] = field(default_factory=Counter)
    """By bucket and key, as the path of a request: successful writes."""
    _uploads: dict[str, int] = field(default_factory=dict)
    """By the ID of an upload: the writes of its key when it was created."""
    _versioned: set[str] = field(default_factory=set)
    """Buckets whose versioning was set."""
    _batches: int = 0
    _lock: Lock = field(default_factory=Lock)

    def answer(self, request: Request) -> Answer:
        service, _, operation = request.headers.get("x-amz-target", "").rpartition(".")
        if service.startswith("AmazonSQS"):
            return self._queue(operation, request)
        if service.startswith("DynamoDB"):
            return self._table(operation, request)
        return self.send(request) if service else self._bucket(request)

    def _queue(self, operation: str, request: Request) -> Answer:
        asked = json.loads(request.body)
        if operation == "SendMessage" and (problem := message_problem(asked)):
            return sqs_error("InvalidParameterValue", problem)
        if operation == "ReceiveMessage" and self.in_flight_limit is not None:
            room = self.in_flight_limit - self._in_flight(asked["QueueUrl"], request)
            if room <= 0:
                # "If you reach this quota while using short polling, SQS returns the OverLimit error message. If you
                # use long polling, SQS returns no error messages." Quotas of messages, SQS Developer Guide.
                self.refused_receives += 1
                if not asked.get("WaitTimeSeconds"):
                    return sqs_error("OverLimit", "too many in flight")
                time.sleep(min(asked["WaitTimeSeconds"], 1))
                return _json(200, {})
            self.refused_receives = 0
            fewer = asked | {"MaxNumberOfMessages": min(asked.get("MaxNumberOfMessages", 1), room)}
            return self.send(request._replace(body=json.dumps(fewer).encode()))
        return self.send(request)

    def _in_flight(self, queue: str, request: Request) -> int:
        name = "ApproximateNumberOfMessagesNotVisible"
        asked = json.dumps({"QueueUrl": queue, "AttributeNames": [name]}).encode()
        headers = {**request.headers, "x-amz-target": "AmazonSQS.GetQueueAttributes"}
        answer = self.send(request._replace(headers=headers, body=asked))
        return int(json.loads(answer.body)["Attributes"][name])

    def _table(self, operation: str, request: Request) -> Answer:
        """Leave a key of some batches for later, as a table does that is throttled (BatchGetItem, API Reference)."""
        if operation not in ("BatchGetItem", "BatchWriteItem") or not self.unread_every:
            return self.send(request)
        asked = json.loads(request.body)
        with self._lock:
            self._batches += 1
            turn = self._batches % self.unread_every == 0
        rest = _shortened(asked["RequestItems"]) if turn else {}
        if not rest:
            return self.send(request)
        answer = self.send(request._replace(body=json.dumps(asked).encode()))
        if answer.status != 200:
            return answer
        name = "UnprocessedKeys" if operation == "BatchGetItem" else "UnprocessedItems"
        return _json(200, json.loads(answer.body) | {name: rest}, "application/x-amz-json-1.0")

    def _bucket(self, request: Request) -> Answer:
        url = urlsplit(request.path)
        place = unquote(url.path)
        query = parse_qs(url.query, keep_blank_values=True)
        conditional = any(name in request.headers for name in _CONDITIONS)
        if (
            request.method == "POST"
            and "uploadId" in query
            and conditional
            and self._overtaken(url.path, query, request)
        ):
            return s3_error(409, "ConditionalRequestConflict", "A conflicting operation occurred.")
        answer = self.send(request)
        if answer.status < 300:
            self._note(request, place, query, answer)
        if "encoding-type" in query:
            answer = _encoded(answer)
        bucket = url.path.split("/")[1]
        reads = request.method in ("GET", "HEAD") and url.path.count("/") > 1 and answer.status < 300
        if reads and bucket in self._versioned and not _header(answer, "x-amz-version-id"):
            return answer._replace(headers=answer.headers | {"x-amz-version-id": "null"})
        return answer

    def _overtaken(self, place: str, query: Mapping[str, list[str]], request: Request) -> bool:
        """True if the condition holds, and the key was written since the creation of the upload."""
        with self._lock:
            begun = self._uploads.get(query["uploadId"][0])
            unchanged = begun is None or begun == self._writes[place]
        if unchanged:
            return False
        kept = {name: value for name, value in request.headers.items() if name not in (*_CONDITIONS, "content-length")}
        seen = self.send(Request("HEAD", urlsplit(request.path).path, kept, b""))
        if (wanted := request.headers.get("if-match")) is not None:
            return seen.status == 200 and _header(seen, "etag").strip('"') == wanted.strip('"')
        return seen.status != 200

    def _note(self, request: Request, place: str, query: Mapping[str, list[str]], answer: Answer) -> None:
        with self._lock:
            if "versioning" in query and request.method == "PUT":
                self._versioned.add(place.split("/")[1])
            elif "uploads" in query and request.method == "POST":
                found = re.search(rb"<UploadId>([^<]+)</UploadId>", answer.body)
                assert found, answer
                self._uploads[unescape(found[1].decode())] = self._writes[place]
            elif request.method in ("PUT", "DELETE") and "uploadId" not in query and place.count("/") > 1:
                self._writes[place] += "tagging" not in query
            elif request.method == "POST" and "uploadId" in query:
                self._writes[place] += 1
            elif request.method == "POST" and "delete" in query:
                for key in re.findall(rb"<Key>([^<]*)</Key>", request.body):
                    self._writes[f"{place.rstrip('/')}/{unescape(key.decode())}"] += 1


def message_problem(asked: Mapping[str, Any]) -> str:
    """Why SQS refuses a message: attributes count, and may not be empty (`tests/recorded/sqs.toml`)."""
    size = len(asked["MessageBody"].encode())
    for name, value in asked.get("MessageAttributes", {}).items():
        content = value.get("StringValue", value.get("BinaryValue", ""))
        if not content:
            return f"Message (user) attribute '{name}' must contain a non-empty value."
        size += len(name.encode()) + len(value["DataType"].encode()) + len(content.encode())
    return "One or more parameters are invalid: message is too long." if size > MAX_MESSAGE_BYTES else ""


def _shortened(items: dict[str, Any]) -> dict[str, Any]:
    """Take the last key or item out of a batch of several, and return it as a batch."""
    table, asked = next(reversed(items.items()))
    keys = asked["Keys"] if isinstance(asked, dict) else asked
    if len(keys) < 2:
        return {}
    last = keys.pop()
    return {table: asked | {"Keys": [last]} if isinstance(asked, dict) else [last]}


def _encoded(answer: Answer) -> Answer:
    """Encode a listing as the request asked. MiniStack sends keys as they are (ListObjectVersions, API Reference)."""
    text = answer.body.decode()
    if answer.status != 200 or "<EncodingType>" in text:
        return answer
    text = _ENCODED.sub(lambda one: f"<{one[1]}>{escape(quote_plus(unescape(one[2]), safe='/'))}</", text)
    text = re.sub(
        r"(<List\w+Result[^>]*>|<ListBucketResult[^>]*>)", r"\1<EncodingType>url</EncodingType>", text, count=1
    )
    return answer._replace(body=text.encode())


def _header(answer: Answer, name: str) -> str:
    return next((value for one, value in answer.headers.items() if one.lower() == name), "")


def sqs_error(code: str, message: str) -> Answer:
    return _json(400, {"__type": f"com.amazonaws.sqs#{code}", "message": message}, "application/x-amz-json-1.0")


def s3_error(status: int, code: str, message: str) -> Answer:
    """S3's answer, from its list of error responses."""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Answer(status, {"Content-Type": "application/xml"}, text.encode())


def _json(status: int, answer: object, kind: str = "application/x-amz-json-1.0") -> Answer:
    return Answer(status, {"Content-Type": kind}, json.dumps(answer).encode())
