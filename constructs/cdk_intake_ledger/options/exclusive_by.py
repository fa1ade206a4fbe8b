"""The option `exclusive_by`: its field, its permission, and what it needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aws_cdk import Token

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.group_rules import (
    GROUP_COMMIT_TOGETHER,
    GROUP_OUTSIDE_FILTERS,
    GROUP_PATTERN,
    GROUP_PER_CALL,
)
from intake_ledger.protocol.group_pattern import GroupPattern, GroupPatternError
from intake_ledger.protocol.settings import KeyFilter


@dataclass(frozen=True, kw_only=True)
class KeyGroups:
    """The option of groups of keys that exclude each other."""

    exclusive_by: str | None = None
    """A pattern that names the group of a key, such as `invoices/{account}/`; no groups when omitted. At most one live
    attempt works on a group. The other keys of the group wait, without an attempt, and keys without a group never do. A
    placeholder stands for text without a slash, up to the text after it. `{_}` stands for text that is not a part of
    the group. The order of a group's keys is not promised: see docs/options.md."""

    @property
    def table_actions(self) -> Sequence[str]:
        """More actions of the consumer on the table: it reads the line of the keys that wait for a group."""
        return ["dynamodb:Query"] if self.exclusive_by else []

    def group_problems(
        self, filters: Sequence[KeyFilter], *, max_per_call: int, commit_together: bool
    ) -> Iterator[Problem]:
        """Reasons why the groups cannot work.

        Args:
            filters: the keys that are processed; all keys when empty.
            max_per_call: of the processor.
            commit_together: of the same options.

        """
        if (text := self.exclusive_by) is None:
            return
        if Token.is_unresolved(text):
            yield GROUP_PATTERN.problem(pattern=text, why="it is a token, and its value is needed at synthesis")
            return
        try:
            pattern = GroupPattern(text)
        except GroupPatternError as error:
            yield GROUP_PATTERN.problem(pattern=text, why=str(error))
            return
        prefixes = [one.prefix for one in filters if not Token.is_unresolved(one.prefix)]
        if prefixes and len(prefixes) == len(filters) and not any(map(pattern.fits, prefixes)):
            yield GROUP_OUTSIDE_FILTERS.problem(pattern=text, prefixes=" or ".join(map(repr, prefixes)))
        if max_per_call > 1:
            yield GROUP_PER_CALL.problem(pattern=text, most=max_per_call)
        if commit_together:
            yield GROUP_COMMIT_TOGETHER.problem(pattern=text)
