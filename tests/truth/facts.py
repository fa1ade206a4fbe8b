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
