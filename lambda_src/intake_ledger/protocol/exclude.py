"""Patterns of keys that a pipeline leaves out (`exclude`), and the times at which former ones ended. Pure functions.

| pattern | leaves out |
| --- | --- |
| `*.tmp`: no slash | keys whose last part matches, in each folder |
| `_temporary/`: one slash, at its end | keys below a folder whose name matches, at each depth |
| `in/*.tmp`, `in/tmp/`: other slashes | keys that match part by part from the bucket on, or keys below that folder |

`*`, `?` and `[...]` are those of `fnmatch`, and match within one part of a key. Upper and lower case differ.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import Any

from intake_ledger.protocol.errors import SettingsError

MOST_PATTERNS, LONGEST_PATTERN = 50, 128
"""Patterns of a pipeline, and characters of one: all variables of a function have 4 KB together."""
_ALTERNATIVES = re.compile(r"\{[^{}]*,[^{}]*\}")


def pattern_problem(pattern: object) -> str | None:  # noqa: PLR0911 - one return per reason
    """Why the text is no pattern, or None."""
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= LONGEST_PATTERN:
        return f"a pattern is a text of 1 to {LONGEST_PATTERN} characters"
    if not pattern.strip("*/") or ("*" in pattern and not pattern.strip("*?/")):
        return "it would leave out all keys, or all in folders: use filters to choose keys"
    if "://" in pattern:
        return "a pattern has no URI: it begins at the bucket, or is the last part of keys"
    if pattern.startswith("/"):
        return "it begins with a slash, and keys do not: a pattern with a slash in it begins at the bucket"
    if pattern.startswith("!"):
        return "there are no exceptions from patterns: name what is left out"
    if "**" in pattern:
        return "** has no meaning: a pattern without a slash, or with one at its end, matches at each depth"
    if _ALTERNATIVES.search(pattern):
        return "braces have no meaning: pass a pattern for each alternative"
    return None


def patterns_problem(patterns: Sequence[object]) -> str | None:
    """Why these are no patterns of a pipeline, or None."""
    if len(patterns) > MOST_PATTERNS:
        return f"there are {len(patterns)} patterns, at most {MOST_PATTERNS} are possible"
    problems = ((pattern, pattern_problem(pattern)) for pattern in patterns)
    return next((f"{pattern!r}: {problem}" for pattern, problem in problems if problem), None)


@dataclass(frozen=True, slots=True)
class Exclude:
    """The patterns of a pipeline."""

    patterns: tuple[str, ...]
    former: tuple[tuple[str, int], ...] = ()
    """Patterns that have ended, each with the time of its end in epoch milliseconds. Only audits and commands know
    them: an object from before the end was left out, and is not lost."""
    _matches: tuple[Callable[[str], bool], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile the patterns."""
        object.__setattr__(self, "_matches", tuple(map(_matcher, self.patterns)))

    def matches(self, key: str) -> bool:
        """True if a pattern matches the key."""
        return any(matches(key) for matches in self._matches)

    def leaves_out(self, key: str, created_at: int | None) -> bool:
        """True if an object without a row is left out. `created_at` is in epoch milliseconds, or None if not known."""
        if self.matches(key):
            return True
        return created_at is not None and any(
            created_at < until and _matcher(pattern)(key) for pattern, until in self.former
        )


def read_exclude(name: str, text: str) -> Exclude | None:
    """Read the setting, such as `["_*", "_temporary/"]`. Raises SettingsError."""
    if not text:
        return None
    try:
        patterns = json.loads(text)
    except ValueError:
        patterns = None
    if not isinstance(patterns, list):
        raise SettingsError(f"{name} is {text!r}, expected a JSON list of patterns")
    if problem := patterns_problem(patterns):
        raise SettingsError(f"{name} is {text!r}: {problem}")
    return Exclude(tuple(patterns))


def noted(exclude: Exclude | None, before: str | None, now: int) -> str | None:
    """The record of all patterns: JSON with the end of each, or null while it is in force. None: there never was one.

    Args:
        exclude: the patterns in force.
        before: the former record.
        now: epoch milliseconds, the end of those that are in force no longer.

    """
    ends: dict[str, int | None] = json.loads(before) if before else {}
    present = exclude.patterns if exclude is not None else ()
    ends = {pattern: now if end is None else end for pattern, end in ends.items()} | dict.fromkeys(present)
    return json.dumps(ends) if ends else None


def with_former(exclude: Exclude | None, record: str | None, now: int) -> Exclude | None:
    """The patterns with those that have ended by this record, or end now. None: there never was one."""
    ends: Mapping[str, Any] = json.loads(noted(exclude, record, now) or "{}")
    former = tuple((pattern, end) for pattern, end in ends.items() if end is not None)
    return replace(exclude or Exclude(()), former=former) if former else exclude


def _matcher(pattern: str) -> Callable[[str], bool]:
    *folders, name = [re.compile(translate(part)).match for part in pattern.split("/")]
    if not folders:
        return lambda key: name(key.rpartition("/")[2]) is not None
    is_folder = pattern.endswith("/")
    if is_folder and len(folders) == 1:
        return lambda key: any(folders[0](part) for part in key.split("/")[:-1])
    expected = folders if is_folder else [*folders, name]

    def matches(key: str) -> bool:
        parts = key.split("/")
        fits = len(parts) > len(expected) if is_folder else len(parts) == len(expected)
        return fits and all(match(part) for match, part in zip(expected, parts, strict=False))

    return matches
