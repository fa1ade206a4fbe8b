"""The tag that a version must have before it is processed (`ready_when`). Pure functions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from intake_ledger.protocol.commit_tag import tag_problem
from intake_ledger.protocol.errors import RefusedByTag, SettingsError


class AwaitedTag(NamedTuple):
    """A tag of S3, with the values that decide."""

    key: str
    values: Sequence[str]
    """A version with one of these is processed."""
    refuse: Sequence[str] = ()
    """A version with one of these is rejected. One with any other value, or without the tag, waits."""

    def lacks(self, present: Mapping[str, str]) -> str | None:
        """Why a version with these tags has to wait. None: it may be processed.

        Raises:
            RefusedByTag: It must not be processed.

        """
        value = present.get(self.key)
        if value in self.refuse:
            raise RefusedByTag(f"its tag {self.key} is {value}")
        if value in self.values:
            return None
        return f"it has no tag {self.key}" if value is None else f"its tag {self.key} has a value that decides nothing"


def awaited_tag_problems(key: object, values: Sequence[object], refuse: Sequence[object]) -> Iterator[str]:
    """Why no version could get the tag, or why its values decide nothing."""
    if not values:
        yield "it has no value with which a version is processed"
    for value in (*values, *refuse):
        if problem := tag_problem(key, value):
            yield problem
    if both := [value for value in values if value in refuse]:
        yield f"{both[0]!r} is a value that lets a version be processed, and one that rejects it"


def awaited_tag(name: str, text: str) -> AwaitedTag | None:
    """Read the setting, such as `["scan", ["clean"], ["infected"]]`. Raises SettingsError."""
    if not text:
        return None
    try:
        content = json.loads(text)
        key, values, refuse = (*content, []) if len(content) < 3 else content
        lists = isinstance(values, list) and isinstance(refuse, list)
    except (TypeError, ValueError):
        lists = False
    if not lists:
        raise SettingsError(
            f"{name} is {text!r}, expected a JSON list of the tag's key, a list of values that let a version be "
            "processed, and a list of values that reject it"
        )
    for problem in awaited_tag_problems(key, values, refuse):
        raise SettingsError(f"{name} is {text!r}: {problem}")
    return AwaitedTag(key, tuple(values), tuple(refuse))
