"""The content of a version, by which `same_content` knows a copy in place. Pure functions."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from intake_ledger.protocol.errors import SettingsError

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")


class ContentRule(NamedTuple):
    """How two versions of a key are known to have the same content, and for how long that counts."""

    hold_seconds: int
    """After this time, the content is processed again."""
    metadata: str | None = None
    """The field of user metadata that names the content. None: S3's SHA-256 does."""

    def digest(self, head: Mapping[str, Any]) -> str | None:
        """The digest of what names the content in S3's answer to a HEAD, and of the size. None: nothing names it.

        An ETag depends on parts and encryption, a composite checksum on parts. CRCs of different contents may be equal,
        and empty files say nothing.
        """
        if self.metadata is not None:
            name = head["Metadata"].get(self.metadata)
        else:
            name = head.get("ChecksumSHA256") if head.get("ChecksumType") == "FULL_OBJECT" else None
        if not name or not head["ContentLength"]:
            return None
        return hashlib.sha256(f"{self.metadata or ''}\n{head['ContentLength']}\n{name}".encode()).hexdigest()


def content_problem(hold_seconds: object, metadata: object) -> str | None:
    """Why a rule cannot be followed. None: it can."""
    if type(hold_seconds) is not int or hold_seconds < 1:
        return "its hold is shorter than a second"
    if metadata is not None and not (isinstance(metadata, str) and _NAME.fullmatch(metadata)):
        return "its metadata is no name of a field in lower case, without x-amz-meta-"
    return None


def content_rule(name: str, text: str) -> ContentRule | None:
    """Read the setting, such as `[86400, null]` or `[86400, "sha256"]`. Raises SettingsError."""
    if not text:
        return None
    try:
        hold_seconds, metadata = json.loads(text)
    except (TypeError, ValueError):
        expected = "a JSON list of seconds and of the name of a metadata field, or null"
        raise SettingsError(f"{name} is {text!r}, expected {expected}") from None
    if problem := content_problem(hold_seconds, metadata):
        raise SettingsError(f"{name} is {text!r}: {problem}")
    return ContentRule(hold_seconds, metadata)
