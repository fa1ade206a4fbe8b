"""Stores the files of one run in parts. They are in a separate bucket, where they expire."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.audit.relations import HELD

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PLAN, JOINED = "plan.json", "joined.json"
"""Files of a run: the plan, and the result of the join."""
CANDIDATES, LOOKED = "candidates", "looked"
"""Kinds of files of which each chunk of candidates has one."""
_DOWNLOADS = 8


def part_name(kind: str, number: int) -> str:
    """The name of a part of a run, and of its file."""
    return f"{kind}-{number:05d}"


def relation_of(part: str) -> str:
    """The relation of the query that has a part's entries."""
    return part.partition("-")[0]


def number_of(part: str) -> int:
    """A part's number among the parts of its kind."""
    return int(part.partition("-")[2])


def segments(plan: Mapping[str, Any]) -> list[str]:
    """The names of the parts that scan the table."""
    return [part_name(HELD, number) for number in range(plan["segments"])]


@dataclass(frozen=True, slots=True)
class Scratch:
    """The objects `<run>/<name>` of a bucket."""

    client: "S3Client"
    bucket: str
    run: str

    def put(self, name: str, content: object) -> None:
        """Write JSON."""
        self.put_text(name, json.dumps(content))

    def put_text(self, name: str, content: str) -> None:
        """Write text."""
        self.client.put_object(Bucket=self.bucket, Key=self._key(name), Body=content.encode())

    def get(self, name: str) -> Any:
        """Read JSON, or None if there is no such file."""
        try:
            return json.load(self.client.get_object(Bucket=self.bucket, Key=self._key(name))["Body"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            return None

    def upload(self, path: Path) -> None:
        """Write a file under its own name."""
        self.client.upload_file(str(path), self.bucket, self._key(path.name))

    def download(self, suffix: str, folder: Path) -> None:
        """Read all files with a suffix into a folder, several at a time."""
        with ThreadPoolExecutor(_DOWNLOADS) as pool:
            copies = [
                pool.submit(self.client.download_file, self.bucket, self._key(name), str(folder / name))
                for name in self.etags()
                if name.endswith(suffix)
            ]
        for copy in copies:
            copy.result()

    def end(self, name: str, length: int, etag: str) -> tuple[bytes, int]:
        """The last bytes of a file, and its size. Raises ClientError if the file has another ETag now."""
        answer = self.client.get_object(Bucket=self.bucket, Key=self._key(name), Range=f"bytes=-{length}", IfMatch=etag)
        return answer["Body"].read(), int(answer["ContentRange"].rpartition("/")[2])

    def etags(self) -> dict[str, str]:
        """The ETag of each object of the run, by its name."""
        folder = self._key("")
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=folder)
        return {item["Key"].removeprefix(folder): item["ETag"] for page in pages for item in page.get("Contents", ())}

    def uri(self, name: str) -> str:
        """The URI of an object."""
        return f"s3://{self.bucket}/{self._key(name)}"

    def _key(self, name: str) -> str:
        return f"{self.run}/{name}"
