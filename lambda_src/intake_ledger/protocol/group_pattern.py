"""The group of a key: a part of it that a pattern names, such as an account. Attempts of a group exclude each other.

`invoices/{account}/` puts `invoices/acme/2026/1.csv` into the group `acme`. A placeholder stands for one or more
characters without a slash, up to the text that follows it in the pattern. `{_}`, or any name that begins with an
underscore, does not belong to the group. A pattern describes the beginning of keys. The rest of a key does not matter.
"""

import re
from dataclasses import dataclass, field
from string import Formatter

from intake_ledger.protocol.errors import SettingsError

SEPARATOR = "/"
"""Stands between the parts of a group. No part has one."""


class GroupPatternError(ValueError):
    """A text is not a pattern of groups. The text of the error says why, and does not quote the pattern."""


@dataclass(frozen=True, slots=True)
class GroupPattern:
    """A pattern of groups."""

    text: str
    """Placeholders in braces. A doubled brace stands for a brace."""
    beginning: str = field(init=False)
    """The text before the first placeholder. Each key with a group begins with it."""
    _names: tuple[str, ...] = field(init=False)
    _ends: tuple[str, ...] = field(init=False, repr=False)
    """The text after each placeholder."""
    _keys: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the text.

        Raises:
            GroupPatternError: It is not a pattern.

        """
        try:
            parts = list(Formatter().parse(self.text))
        except ValueError as error:
            raise GroupPatternError(f"{error}: write a brace that is a part of keys twice") from None
        # A literal may come in several pieces, because a doubled brace ends one.
        literals, names = [""], list[str]()
        for literal, name, spec, conversion in parts:
            literals[-1] += literal
            if name is not None:
                if spec or conversion or not name.isidentifier():
                    raise GroupPatternError(f"the placeholder {{{name}}} is not a plain name")
                if name in names and not name.startswith("_"):
                    raise GroupPatternError(f"the placeholder {{{name}}} is there twice")
                names.append(name)
                literals.append("")
        if all(name.startswith("_") for name in names):
            raise GroupPatternError("it has no placeholder that names a group")
        for name, literal in zip(names, literals[1:], strict=True):
            if not literal:
                raise GroupPatternError(f"no text follows the placeholder {{{name}}}, which would not end")
        kept = [not name.startswith("_") for name in names]
        # Possessive, so that each placeholder has one end and no key takes long.
        values = [
            f"({'' if keep else '?:'}(?:(?!{re.escape(literal)})[^/])++){re.escape(literal)}"
            for keep, literal in zip(kept, literals[1:], strict=True)
        ]
        object.__setattr__(self, "beginning", literals[0])
        object.__setattr__(self, "_names", tuple(name for name, keep in zip(names, kept, strict=True) if keep))
        object.__setattr__(self, "_ends", tuple(literals[1:]))
        object.__setattr__(self, "_keys", re.compile(re.escape(literals[0]) + "".join(values)))

    def group_of(self, key: str) -> str | None:
        """The group of a key. None: it has none, because it does not fit the pattern."""
        found = self._keys.match(key)
        return None if found is None else SEPARATOR.join(found.groups())

    def fits(self, prefix: str) -> bool:
        """False if no key with this prefix has a group."""
        if not prefix.startswith(self.beginning):
            return self.beginning.startswith(prefix)
        rest = prefix.removeprefix(self.beginning)
        for end in self._ends:
            value, found, after = rest.partition(end)
            if not found:
                # The prefix ends in this value, or in the text that follows it.
                slash = rest.find(SEPARATOR)
                return slash < 0 or any(end.startswith(rest[at:]) for at in range(1, slash + 1))
            if not value or SEPARATOR in value:
                return False
            rest = after
        return True

    def __str__(self) -> str:
        """The text, as the variable has it."""
        return self.text


def group_pattern(name: str, text: str) -> GroupPattern | None:
    """Read the variable with this name. Raises SettingsError."""
    if not text:
        return None
    try:
        return GroupPattern(text)
    except GroupPatternError as problem:
        raise SettingsError(f"{name} is {text!r}: {problem}") from None
