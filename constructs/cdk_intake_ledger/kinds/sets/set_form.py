"""The forms of sets of files."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from aws_cdk import Duration, Token
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.set_rules import (
    SET_FORM_PATTERN,
    SET_MANIFEST_FORMAT,
    SET_OUTSIDE_FILTERS,
    SET_WITHOUT_PARTS,
)
from cdk_intake_ledger.delivery.key_filters import KeyPattern, key_text_problems, warn_about_key_text
from cdk_intake_ledger.kinds.sets.patterns import ANYTHING, can_match_both, can_pass

_EXAMPLES = {"manifest": "loads/*/manifest.json", "marker": "exports/*/_SUCCESS", "quiet": "drops/*/"}


class ManifestFormat(Enum):
    """The format of a manifest."""

    JSON = "json"
    """A list of keys, or an object with such a list named `parts`, `files` or `entries`. An element may also be an
    object with a `key` or `url`."""
    CSV = "csv"
    """Rows with a column `key`."""
    LINES = "lines"
    """A key in each line."""


@check_arguments
@dataclass(frozen=True)
class SetForm:
    """The way to find the parts of a set: a manifest, a marker file, or a folder that is quiet.

    Make it with `manifest`, `marker` or `quiet_prefix`.

    In a pattern, `*` stands for any characters but a slash, and `**` for any characters.
    """

    kind: str
    """`manifest`, `marker` or `quiet`."""
    pattern: str
    """The pattern of the key of a set."""
    quiet_for: Duration | None = None
    """The time without an upload. None, also when omitted, if the form is not a quiet folder."""
    format: ManifestFormat = ManifestFormat.JSON
    """The format of a manifest; JSON when omitted."""
    absolute_keys: bool = False
    """True if the keys in a manifest begin at the bucket. They begin at its folder when omitted."""
    hidden_parts: bool = False
    """True if hidden objects of a folder are parts. They are none when omitted."""

    @classmethod
    def manifest(
        cls, pattern: str, *, format: ManifestFormat = ManifestFormat.JSON, absolute_keys: bool = False
    ) -> "SetForm":
        """Sets that a manifest lists. The set is complete when each object in the list is committed.

        Args:
            pattern: of the manifests' keys, such as `loads/*/manifest.json` or `**/manifest.json`.
            format: the format of a manifest; JSON when omitted.
            absolute_keys: true if the keys in a manifest begin at the bucket. When omitted, they begin at the folder of
                the manifest. A key that begins with a slash, and a URL with `s3://`, always begin at the bucket.

        """
        return cls("manifest", pattern, format=format, absolute_keys=absolute_keys)

    @classmethod
    def marker(cls, pattern: str, *, hidden_parts: bool = False) -> "SetForm":
        """Sets that a marker file closes. The parts are the other objects of its folder and of folders in it.

        Args:
            pattern: of the markers' keys, such as `exports/*/_SUCCESS`. The name of the marker has no asterisk.
            hidden_parts: true if objects are parts whose name, or a folder of theirs below that of the set, begins with
                `_` or `.`. Writers such as Spark keep their books in them. They are no parts when omitted.

        """
        return cls("marker", pattern, hidden_parts=hidden_parts)

    @classmethod
    def quiet_prefix(cls, pattern: str, *, quiet_for: Duration | None = None, hidden_parts: bool = False) -> "SetForm":
        """Sets that are complete when nothing has arrived for some time. The parts are the objects of the folder.

        Args:
            pattern: of the folders, with a slash at its end, such as `drops/*/`.
            quiet_for: the time without an upload, 1 second to 11 hours; 10 minutes when omitted.
            hidden_parts: as of `marker`; hidden objects are no parts when omitted, and their uploads end the quiet.

        """
        return cls("quiet", pattern, quiet_for=quiet_for or Duration.minutes(10), hidden_parts=hidden_parts)

    @property
    def settings(self) -> dict[str, object]:
        """The form as the functions read it."""
        content: dict[str, object] = {"form": self.kind, "pattern": self.pattern}
        if self.quiet_for is not None:
            content["quietSeconds"] = int(self.quiet_for.to_seconds())
        if self.kind == "manifest":
            content |= {"parts": self.format.value, "keys": "absolute" if self.absolute_keys else "relative"}
        if self.hidden_parts:
            content["hiddenParts"] = True
        return content

    def overlaps(self, other: "SetForm") -> bool:
        """Tell if a key can be the key of a set of both forms.

        Args:
            other: another form.

        """
        return can_match_both(_area(self), _area(other))

    def problems(self, filters: tuple[KeyPattern, ...]) -> Iterator[Problem]:
        """Find reasons why the form cannot work.

        Args:
            filters: those of the pipeline.

        """
        why = self._pattern_refusal()
        if why is not None:
            yield SET_FORM_PATTERN.problem(
                kind=self.kind, pattern=str(self.pattern), why=why, example=_EXAMPLES[self.kind]
            )
            return
        if wrong := [*key_text_problems("the pattern", self.pattern, wildcards=True)]:
            yield from wrong
            return
        for needed in self._needed():
            if not any(can_pass(needed, one) for one in filters):
                listed = ", ".join(str(one) for one in filters)
                yield SET_OUTSIDE_FILTERS.problem(pattern=needed, filters=listed)

        name = self.pattern.rpartition("/")[2]
        if self.kind != "quiet" and all(one.suffix.endswith(name) for one in filters):
            listed = ", ".join(str(one) for one in filters)
            yield SET_WITHOUT_PARTS.problem(pattern=self.pattern, filters=listed)

    def warn(self, scope: Construct) -> None:
        """Warn about a pattern or a format that is probably not the wanted one.

        Args:
            scope: the construct of the sets.

        """
        warn_about_key_text(scope, "the pattern", self.pattern)
        ending = self.pattern.rpartition(".")[2].lower()
        usual = {"csv": ManifestFormat.CSV, "json": ManifestFormat.JSON, "txt": ManifestFormat.LINES}.get(ending)
        if self.kind == "manifest" and usual not in (None, self.format):
            warn(scope, SET_MANIFEST_FORMAT, pattern=self.pattern, format=self.format.name, usual=usual.name)

    def _needed(self) -> Iterator[str]:
        """Patterns of which the pipeline must see at least one key."""
        if self.kind != "manifest":
            yield self.pattern[: self.pattern.rfind("/") + 1] + ANYTHING
        if self.kind != "quiet":
            yield self.pattern

    def _pattern_refusal(self) -> str | None:
        pattern = self.pattern
        if not pattern or Token.is_unresolved(pattern):
            return "the consumer compares each key with it, so it must be a text that is known at synthesis"
        if self.kind == "quiet" and not pattern.endswith("/"):
            return "the key of such a set is a folder, which ends with a slash"
        if self.kind != "quiet" and pattern.endswith("/"):
            return "a manifest and a marker are objects, and not folders"
        if self.kind != "manifest" and "**" in pattern:
            return "the folder of a part must follow from its key, so only a manifest may have **"
        if self.kind == "marker" and "*" in pattern.rpartition("/")[2]:
            return "the key of the marker must follow from the key of a part"
        return None


def _area(form: SetForm) -> str:
    """The pattern of the keys of sets, or of all keys of quiet folders."""
    return form.pattern + ANYTHING if form.kind == "quiet" else form.pattern
