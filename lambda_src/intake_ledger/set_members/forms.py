"""The forms of sets of files: a manifest, a marker that closes a folder, or a folder that is quiet for a time.

In a pattern, `*` stands for any characters but a slash, and `**` for any characters. Nothing else is special.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import ConsumerSettings, variable_of

MAX_PARTS = 10_000
"""A set with more parts is rejected. A part's commit and a look at the set would take too long."""
_MAX_KEY_BYTES = 1024


class FormKind(StrEnum):
    """What names the parts of a set."""

    MANIFEST = "manifest"
    """An object that lists the keys of the parts."""
    MARKER = "marker"
    """An object, such as `_SUCCESS`, that closes its folder. The parts are the other objects of the folder."""
    QUIET = "quiet"
    """A folder to which nothing was uploaded for some time. The parts are its objects."""


class PartsFormat(StrEnum):
    """The format of a manifest."""

    JSON = "json"
    CSV = "csv"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class FormSettings:
    """The form of the sets of one name. The key of a set is the key of its manifest or marker, or its folder."""

    kind: FormKind
    pattern: str
    """Of the manifest's or marker's key, or of the folder with a slash at its end."""
    quiet_seconds: int = 0
    parts: PartsFormat = PartsFormat.JSON
    absolute: bool = False
    """True if the keys in a manifest begin at the bucket. Otherwise they begin at the manifest's folder."""
    hidden_parts: bool = False
    """True if hidden objects of a folder are parts; see `is_hidden`."""

    def is_hidden(self, key: str, folder: str) -> bool:
        """True if the object is bookkeeping of its writer, and no part: a name below the folder begins with `_` or `.`.

        That is the rule of Hadoop's readers (`hiddenFileFilter` of `FileInputFormat`), for each folder on the way.
        Spark's reads `_a=1` and `_metadata`.
        """
        names = key.removeprefix(folder).split("/")
        return not self.hidden_parts and any(name.startswith(("_", ".")) for name in names)

    def is_control(self, key: str) -> bool:
        """True if the object describes a set and is no part of it."""
        return self.kind is not FormKind.QUIET and _expression(self.pattern).fullmatch(key) is not None

    def set_of(self, key: str) -> str | None:
        """The key of the set that this key alone determines. None: there is none, or a manifest decides."""
        if self.kind is FormKind.MANIFEST:
            return key if self.is_control(key) else None
        *folders, name = self.pattern.split("/")
        own = key.split("/")
        if len(own) <= len(folders):
            return None
        found = "/".join([*own[: len(folders)], name])
        if _expression(self.pattern).fullmatch(found) is None or len(found.encode()) > _MAX_KEY_BYTES:
            return None
        return found

    def folder(self, set_key: str) -> str:
        """The folder of a set, with a slash at its end. Empty: the whole bucket."""
        return set_key[: set_key.rfind("/") + 1]


@dataclass(frozen=True, slots=True)
class SetTarget:
    """Sets that a pipeline wakes after the commits of their parts."""

    name: str
    """Of the pipeline of the sets."""
    queue_url: str
    form: FormSettings


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    words = {"**": ".*", "*": "[^/]*"}
    return re.compile("".join(words.get(text, re.escape(text)) for text in re.split(r"(\*\*|\*)", pattern)), re.DOTALL)


def set_form(content: object, variable: str) -> FormSettings:
    """Read a form from the JSON of a variable.

    Raises:
        SettingsError: A field is missing or malformed.

    """
    if not isinstance(content, Mapping):
        raise SettingsError(f"{variable}: {content!r} is not the object that describes a form")
    kind, pattern = content.get("form"), content.get("pattern")
    if kind not in tuple(FormKind) or not isinstance(pattern, str) or not pattern:
        raise SettingsError(f"{variable} is {content!r}, expected a form (manifest, marker or quiet) and a pattern")
    quiet, parts = content.get("quietSeconds", 0), content.get("parts", PartsFormat.JSON)
    keys = content.get("keys", "relative")
    if kind == FormKind.QUIET and (not isinstance(quiet, int) or quiet < 1 or not pattern.endswith("/")):
        raise SettingsError(f"{variable}: a quiet folder needs quietSeconds of at least 1 and a slash at its end")
    if kind != FormKind.MANIFEST and "**" in pattern:
        raise SettingsError(f"{variable}: only the pattern of a manifest may have **")
    if kind == FormKind.MARKER and (pattern.endswith("/") or "*" in pattern.rpartition("/")[2]):
        raise SettingsError(f"{variable}: the name of a marker has no *")
    if parts not in tuple(PartsFormat) or keys not in ("relative", "absolute"):
        raise SettingsError(f"{variable}: parts is json, csv or lines, and keys is relative or absolute")
    hidden = content.get("hiddenParts", False)
    if not isinstance(hidden, bool):
        raise SettingsError(f"{variable}: hiddenParts is true or false")
    return FormSettings(FormKind(kind), pattern, int(quiet), PartsFormat(parts), keys == "absolute", hidden)


def set_targets(described: str) -> tuple[SetTarget, ...]:
    """The sets that the pipeline's setting `sets` describes.

    Raises:
        SettingsError: It is malformed.

    """
    variable = variable_of(ConsumerSettings, "sets")
    try:
        targets = json.loads(described)
        return tuple(SetTarget(str(one["name"]), str(one["queueUrl"]), set_form(one, variable)) for one in targets)
    except (KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, SettingsError):
            raise
        raise SettingsError(f"{variable} is {described!r}, expected a JSON list of sets: {problem}") from None
