"""The tag that a committed version gets after its commit (`after_commit`), by S3's rules for tags. Pure functions."""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from intake_ledger.protocol.errors import SettingsError, TagsFull

MOST_TAGS, LONGEST_KEY, LONGEST_VALUE = 10, 128, 256
"""Tags of a version, and characters:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-tagging.html"""
_CHARACTERS = re.compile(r"(?:[\w+\-=.:/@]|[^\S\t-\r\x1c-\x1f\x85])*")


class CommitTag(NamedTuple):
    """A tag of S3."""

    key: str
    value: str

    def set_among(self, present: Mapping[str, str]) -> dict[str, str] | None:
        """All tags that the version has to have. None: it has the tag already.

        S3 replaces all tags of a version at once, so the others stay.

        Raises:
            TagsFull: S3 would take no further tag.

        """
        if present.get(self.key) == self.value:
            return None
        tags = {**present, self.key: self.value}
        if len(tags) > MOST_TAGS:
            raise TagsFull(f"the version has {MOST_TAGS} tags already, and S3 takes no more: remove one")
        return tags


def tag_problem(key: object, value: object) -> str | None:
    """Why S3 would refuse the tag, or None."""
    for name, text, least, most in (("key", key, 1, LONGEST_KEY), ("value", value, 0, LONGEST_VALUE)):
        if not isinstance(text, str) or not least <= len(text) <= most:
            return f"its {name} is {text!r}: it must be a text of {least} to {most} characters"
        if not _CHARACTERS.fullmatch(text):
            return f"its {name} is {text!r}: S3 takes letters, digits, spaces and + - = . _ : / @"
    if str(key).lower().startswith("aws:"):
        return f"its key is {key!r}: AWS keeps the prefix aws: for itself"
    return None


def commit_tag(name: str, text: str) -> CommitTag | None:
    """Read the setting, such as `["intake", "done"]`. Raises SettingsError."""
    if not text:
        return None
    try:
        content = json.loads(text)
        key, value = content if isinstance(content, list) else []
    except ValueError:
        raise SettingsError(f"{name} is {text!r}, expected a JSON list of the tag's key and value") from None
    if problem := tag_problem(key, value):
        raise SettingsError(f"{name} is {text!r}: {problem}")
    return CommitTag(key, value)
