"""Large answers of AWS read in place of botocore's general parser, which takes several times as long.

botocore asks before it parses an answer whether somebody else has done so; where a release of it does not ask, nothing
changes but the time. The results are botocore's own, as far as the audit uses them.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

_OK = 200
_LISTS = {"Version": "Versions", "DeleteMarker": "DeleteMarkers"}


def lean_scans(client: "DynamoDBClient") -> None:
    """Make this client read a Scan's rows from its JSON: text and numbers, which is all that the ledger stores, are the
    same there as behind botocore's parser.
    """
    client.meta.events.register("before-parse.dynamodb.Scan", _scan)


def lean_listings(client: "S3Client") -> None:
    """Make this client read a page of ListObjectVersions from its XML."""
    client.meta.events.register("before-parse.s3.ListObjectVersions", _versions)


def _scan(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] == _OK:
        customized_response_dict.update(json.loads(response_dict["body"]))
        response_dict["body"] = b"{}"


def _versions(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] != _OK:
        return
    # botocore reads it with the same parser, and has found by now that it can be read.
    root = ET.fromstring(response_dict["body"] or "<nothing/>")  # noqa: S314
    if _bare(root.tag) != "ListVersionsResult":
        return
    page = customized_response_dict
    for node in root:
        name = _bare(node.tag)
        if name in _LISTS:
            entry: dict[str, Any] = {_bare(child.tag): child.text or "" for child in node}
            page.setdefault(_LISTS[name], []).append(_read(entry))
        elif len(node) == 0:
            page[name] = node.text or ""
    _read(page)
    response_dict["body"] = b""


def _read(texts: dict[str, Any]) -> dict[str, Any]:
    """The same dictionary, in which what is not text has become what it is."""
    for name, read in _TYPES:
        if name in texts:
            texts[name] = read(texts[name])
    return texts


def _flag(text: str) -> bool:
    return text == "true"


_TYPES: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("IsLatest", _flag),
    ("LastModified", datetime.fromisoformat),
    ("Size", int),
    ("IsTruncated", _flag),
)


def _bare(tag: str) -> str:
    """The tag without its namespace."""
    return tag[tag.rfind("}") + 1 :]
