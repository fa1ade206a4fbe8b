"""Reads the facts of `tests/recorded`, and plays their scenarios with a client."""

import tomllib
from itertools import count
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

RECORDED = Path(__file__).parents[1] / "recorded"
Fact = dict[str, Any]
_NAMES = count(1)


def facts(name: str) -> dict[str, Any]:
    """All facts of a file."""
    return tomllib.loads((RECORDED / f"{name}.toml").read_text())


class Uploads:
    """One key of a new bucket, for the steps of a scenario of S3."""

    def __init__(self, client: Any, fact: Fact, *, memory: bool = False) -> None:
        self._client = client
        self._etags: list[str] = []
        self._upload: Any = None
        self._place = {"Bucket": f"recorded-{next(_NAMES)}", "Key": "test-precondition"}
        if not memory:
            client.create_bucket(Bucket=self._place["Bucket"])
            if fact.get("versioned"):
                client.put_bucket_versioning(
                    Bucket=self._place["Bucket"], VersioningConfiguration={"Status": "Enabled"}
                )

    def step(self, step: Fact) -> str:
        """The status and the code of the answer, or `ok`."""
        try:
            answer = getattr(self, step["do"])(step)
        except ClientError as error:
            return f"{error.response['ResponseMetadata']['HTTPStatusCode']} {error.response['Error']['Code']}"
        except LookupError:
            return "crash"  # inside moto
        if step["do"] in ("put", "complete"):
            self._etags.append(answer["ETag"])
        return "ok"

    def put(self, step: Fact) -> Any:
        return self._client.put_object(**self._place, Body=step.get("body", "").encode(), **self._condition(step))

    def delete(self, step: Fact) -> Any:
        del step
        return self._client.delete_object(**self._place)

    def create(self, step: Fact) -> Any:
        del step
        upload = {"UploadId": self._client.create_multipart_upload(**self._place)["UploadId"]}
        part = self._client.upload_part(**self._place, **upload, PartNumber=1, Body=b"test")
        self._upload = upload | {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}

    def complete(self, step: Fact) -> Any:
        return self._client.complete_multipart_upload(**self._place, **self._upload, **self._condition(step))

    def _condition(self, step: Fact) -> dict[str, str]:
        if "if_match" in step:
            return {"IfMatch": self._etags[step["if_match"]]}
        return {"IfNoneMatch": step["if_none_match"]} if "if_none_match" in step else {}


class Messages:
    """An empty queue, for the steps of a scenario of SQS."""

    def __init__(self, client: Any, queue: str) -> None:
        self._client = client
        self._queue = {"QueueUrl": queue}
        self._receipt = "none"

    def step(self, step: Fact) -> str:
        """The code of the answer, `ok`, or `nothing` for an empty receive."""
        try:
            return str(getattr(self, step["do"].replace(" ", "_"))(step))
        except ClientError as error:
            return str(error.response["Error"]["Code"]).removeprefix("AWS.SimpleQueueService.")

    def send(self, step: Fact) -> str:
        attributes = {
            name: {"DataType": "String", "StringValue": value} for name, value in step.get("attributes", {}).items()
        }
        self._client.send_message(**self._queue, MessageBody="x" * step["bytes"], MessageAttributes=attributes)
        return "ok"

    def send_batch(self, step: Fact) -> str:
        entries = [{"Id": str(number), "MessageBody": "x" * size} for number, size in enumerate(step["sizes"])]
        return _failures(self._client.send_message_batch(**self._queue, Entries=entries))

    def receive(self, step: Fact) -> str:
        answer = self._client.receive_message(
            **self._queue, MaxNumberOfMessages=1, VisibilityTimeout=step["seconds"], WaitTimeSeconds=0
        )
        for message in answer.get("Messages", []):
            self._receipt = message["ReceiptHandle"]
            return "ok"
        return "nothing"

    def hide_batch(self, step: Fact) -> str:
        entries = [one | {"VisibilityTimeout": 0} for one in self._entries(step)]
        return _failures(self._client.change_message_visibility_batch(**self._queue, Entries=entries))

    def delete_batch(self, step: Fact) -> str:
        return _failures(self._client.delete_message_batch(**self._queue, Entries=self._entries(step)))

    def _entries(self, step: Fact) -> list[dict[str, Any]]:
        return [{"Id": str(number), "ReceiptHandle": self._receipt} for number in range(step.get("entries", 1))]


def _failures(answer: Any) -> str:
    return ", ".join(sorted({one["Code"] for one in answer.get("Failed", [])})) or "ok"


class Reads:
    """One key of a new bucket, for the steps of a scenario that reads versions."""

    def __init__(self, client: Any, fact: Fact) -> None:
        self._client = client
        self._place = {"Bucket": f"recorded-{next(_NAMES)}", "Key": "key"}
        self._states: list[Any] = []
        client.create_bucket(Bucket=self._place["Bucket"])
        for status in ("Enabled",) * ("versioned" in fact) + ("Enabled", "Suspended") * ("suspended" in fact):
            client.put_bucket_versioning(Bucket=self._place["Bucket"], VersioningConfiguration={"Status": status})

    def step(self, step: Fact) -> str:
        """The answer as the file describes it."""
        version = {"VersionId": self._states[step["version"]]["VersionId"]} if "version" in step else {}
        try:
            return str(getattr(self, step["do"].replace(" ", "_"))(step, version))
        except ClientError as error:
            metadata = error.response["ResponseMetadata"]
            status, headers = metadata["HTTPStatusCode"], metadata["HTTPHeaders"]
            if step["do"] == "get" or version or headers.get("x-amz-delete-marker") != "true":
                return str(status)
            return f"{status} marker {self._number(headers['x-amz-version-id'])}"

    def put(self, step: Fact, _: Fact) -> str:
        self._states.append(self._client.put_object(**self._place, Body=step["body"].encode()))
        return "ok"

    def put_other(self, step: Fact, _: Fact) -> str:
        self._client.put_object(**self._place | {"Key": "key-0"}, Body=step["body"].encode())
        return "ok"

    def delete(self, *_: Fact) -> str:
        self._states.append(self._client.delete_object(**self._place))
        return "ok"

    def remove(self, _: Fact, version: Fact) -> str:
        self._client.delete_object(**self._place, **version)
        return "ok"

    def head(self, _: Fact, version: Fact) -> str:
        return f"object {self._number(self._client.head_object(**self._place, **version).get('VersionId', 'none'))}"

    def get(self, step: Fact, version: Fact) -> str:
        condition = {"IfMatch": self._states[step["if_match"]]["ETag"]} if "if_match" in step else {}
        self._client.get_object(**self._place, **version, **condition)["Body"].close()
        return "ok"

    def list(self, *_: Fact) -> str:
        answer = self._client.list_object_versions(Bucket=self._place["Bucket"], Prefix=self._place["Key"], MaxKeys=1)
        ((kind, one),) = [
            (kind, one)
            for kind, name in (("object", "Versions"), ("marker", "DeleteMarkers"))
            for one in answer.get(name, [])
        ]
        return f"{kind} {self._number(one['VersionId'])}"

    def _number(self, version: str) -> str:
        if version == "null":
            return version
        numbers = [str(number) for number, one in enumerate(self._states) if one.get("VersionId") == version]
        return numbers[0] if numbers else version


class MemoryVersions:
    """The requests of `Reads` that change a bucket, for the store in memory."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create_bucket(self, **_: Any) -> None:
        """It has one."""

    def put_bucket_versioning(self, **_: Any) -> None:
        """It was made with them."""

    def put_object(self, **request: Any) -> Any:
        made = self._store.put(request["Key"], request["Body"])
        return {"VersionId": made.version_id, "ETag": f'"{made.etag}"'}

    def delete_object(self, **request: Any) -> Any:
        if "VersionId" in request:
            self._store.delete_version(request["Key"], request["VersionId"])
            return {}
        return {"VersionId": self._store.delete(request["Key"]).version_id}
