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
    """Make this client read a page of ListObjectVersions from its XML, once: before botocore reads all of it to see
    whether it is an error in spite of its status. What cannot be read, or is no page, is left to botocore.
    """
    # With a star in this place it comes before botocore's own handlers, which are for `before-parse.s3.*`.
    client.meta.events.register_first("before-parse.*.ListObjectVersions", _versions)


def _scan(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] == _OK:
        customized_response_dict.update(json.loads(response_dict["body"]))
        response_dict["body"] = b"{}"


def _versions(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] != _OK:
        return
    try:
        # botocore reads it with the same parser.
        root = ET.fromstring(response_dict["body"])  # noqa: S314
    except ET.ParseError:
        return
    # Names begin behind their namespace, which is the same for all of them.
    bare = root.tag.rfind("}") + 1
    if root.tag[bare:] != "ListVersionsResult":
        return
    page = customized_response_dict
    for node in root:
        name = node.tag[bare:]
        if name in _LISTS:
            entry: dict[str, Any] = {child.tag[bare:]: child.text or "" for child in node}
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
