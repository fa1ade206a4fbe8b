"""The registry of everything that synthesis refuses or warns about. It does not need the CDK.

Each refusal and each warning is a `Rule` with a stable ID. The modules named `*_rules.py` declare the rules, one module
for each subject. Other modules check, and call `Rule.problem` with the values that they found.
`cdk_intake_ledger.checks.reporting` gives the problems to the CDK. docs/validation.md is generated from the rules.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from string import Formatter
from typing import Self

ID_PREFIX = "intake-ledger"
"""Begins the ID at the end of each message: `[intake-ledger:batch-size-range]`."""

_ID = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)+")


class Severity(Enum):
    """The effect of a rule that is broken."""

    ERROR = "error"
    """Synthesis ends."""
    WARNING = "warning"
    """The CDK prints the message. A warning can be acknowledged."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Something that synthesis refuses or warns about.

    The texts are templates with names in braces. A message has values instead.
    """

    id: str
    """In kebab case. It is stable, so that it can be searched for."""
    inputs: tuple[str, ...]
    """The options, or the numbers of the plan, that the rule compares."""
    what: str
    """The finding, with the value. It begins in lower case or with a value, and has no final period."""
    why: str
    """The reason, in lower case and without a final period."""
    fix: str
    """An instruction in the imperative, without a final period."""
    severity: Severity = Severity.ERROR

    def problem(self, **values: object) -> "Problem":
        """Write the message.

        Args:
            values: for each name in the texts.

        Returns:
            The message, which knows its rule.

        """
        text = "{what}: {why}. {fix}".format(**{part: text.format(**values) for part, text in self.texts().items()})
        return Problem.of(self, text)

    def texts(self) -> Mapping[str, str]:
        """The three templates, by their names."""
        return {"what": self.what, "why": self.why, "fix": self.fix}

    def values(self) -> frozenset[str]:
        """The names of the values in the texts."""
        return frozenset(
            name for text in self.texts().values() for _, name, _, _ in Formatter().parse(text) if name is not None
        )

    @property
    def acknowledgement(self) -> str:
        """The ID in camel case, as CDK's IDs of warnings are written."""
        first, *others = self.id.split("-")
        return first + "".join(word.capitalize() for word in others)


class Problem(str):
    """The message of a broken rule: finding, reason, fix and the rule's ID."""

    __slots__ = ("rule", "text")

    rule: Rule
    text: str
    """The message without the ID."""

    @classmethod
    def of(cls, rule: Rule, text: str) -> Self:
        """Add the ID to a message.

        Args:
            rule: the broken rule.
            text: the message without the ID.

        """
        made = cls(f"{text} [{ID_PREFIX}:{rule.id}]")
        made.rule, made.text = rule, text
        return made

    def within(self, place: str) -> "Problem":
        """Name a place before the message, such as a folder.

        Args:
            place: the place.

        """
        return Problem.of(self.rule, f"{place}: {self.text}")


@dataclass(frozen=True)
class Subject:
    """The rules about one subject: a section of docs/validation.md."""

    title: str
    rules: list[Rule] = field(default_factory=list)

    def error(self, id: str, *, inputs: tuple[str, ...], what: str, why: str, fix: str) -> Rule:
        """Register a rule that ends the synthesis.

        Args:
            id: as in `Rule`; likewise the others.
            inputs: at least one.
            what: the finding.
            why: the reason.
            fix: the instruction.

        Raises:
            ValueError: Another rule has the ID, or it is not in kebab case.

        """
        return self._add(Rule(id=id, inputs=inputs, what=what, why=why, fix=fix))

    def warning(self, id: str, *, inputs: tuple[str, ...], what: str, why: str, fix: str) -> Rule:
        """Register a rule that prints a warning, with the arguments and errors of `error`."""
        return self._add(Rule(id=id, inputs=inputs, what=what, why=why, fix=fix, severity=Severity.WARNING))

    def _add(self, rule: Rule) -> Rule:
        if not _ID.fullmatch(rule.id):
            raise ValueError(f"the rule ID {rule.id!r} is not in kebab case: use two or more words")
        if rule.id in _IDS:
            raise ValueError(f"two rules have the ID {rule.id!r}: give each its own")
        _IDS.add(rule.id)
        self.rules.append(rule)
        return rule


_IDS: set[str] = set()
_RULE_MODULES = (
    "argument_rules",
    "number_rules",
    "max_rate",
    "group_rules",
    "time_rules",
    "bucket_rules",
    "tag_rules",
    "content_rules",
    "exclude_rules",
    "queue_rules",
    "key_network_rules",
    "ledger_rules",
    "audit_rules",
    "monitoring_rules",
    "processor_rules",
    "requirement_rules",
    "output_rules",
    "worker_rules",
    "execution_rules",
    "durable_rules",
    "message_rules",
    "set_rules",
    "final_rules",
)


def all_subjects() -> Iterator[Subject]:
    """The subjects in the order of docs/validation.md. The modules are imported here, since they import this one."""
    for name in _RULE_MODULES:
        yield import_module(f"cdk_intake_ledger.checks.rules.{name}").SUBJECT


def all_rules() -> Iterator[Rule]:
    """Every rule, in the order of docs/validation.md."""
    for subject in all_subjects():
        yield from subject.rules
