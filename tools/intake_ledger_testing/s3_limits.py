"""S3's limits for keys and user metadata.

The numbers are those of https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html and
https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html.
"""

import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ParamValidationError

from intake_ledger_testing.memory_s3 import s3_error

MAX_KEY_BYTES = 1_024
MAX_METADATA_BYTES = 2 * 1_024
"""Of all names and values together, in UTF-8."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110. The name is a part of a header's name."""


def check_key(operation: str, key: Any) -> None:
    """Refuse a key that boto3 or S3 would refuse.

    Raises:
        ClientError: It has more than 1,024 bytes in UTF-8.
        ParamValidationError: It is empty, or is no text that UTF-8 can encode.

    """
    if not isinstance(key, str) or not key:
        raise ParamValidationError(report=f"the key is {key!r}: it must be a text with 1 to 1,024 bytes")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ParamValidationError(report=f"the key is {key!r}, which UTF-8 cannot encode") from None
    if size > MAX_KEY_BYTES:
        raise s3_error(operation, 400, "KeyTooLongError", text=f"the key has {size:,} bytes, at most 1,024 are allowed")


def stored_metadata(operation: str, metadata: Mapping[Any, Any]) -> dict[str, str]:
    """Return user metadata as S3 returns them: names in lower case, values without spaces at their ends.

    Raises:
        ClientError: Names and values have more than 2 KB.
        ParamValidationError: boto3 would not send a name or a value: it is no text in US-ASCII.

    """
    stored: dict[str, str] = {}
    for name, value in metadata.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ParamValidationError(report=f"the metadata name {name!r} cannot be a part of an HTTP header's name")
        if not isinstance(value, str) or not value.isascii() or "\n" in value or "\r" in value:
            raise ParamValidationError(
                report=f"the metadata {name} is {value!r}: boto3 sends one line of US-ASCII text only. Encode it, for "
                "example with urllib.parse.quote"
            )
        stored[name.lower()] = value.strip()
    size = sum(len(name) + len(value) for name, value in stored.items())
    if size > MAX_METADATA_BYTES:
        text = f"names and values of the metadata have {size:,} bytes, at most 2,048 are allowed"
        raise s3_error(operation, 400, "MetadataTooLarge", text=text)
    return stored
