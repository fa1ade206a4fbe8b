"""Generates docs/validation.md from the registry of rules.

    python -m scripts.validation_page [--write]

Without `--write` it prints the page.
"""

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from string import Formatter

from cdk_intake_ledger.checks.registry import Rule, Severity, Subject, all_subjects

PAGE = Path(__file__).parents[1] / "docs" / "validation.md"

_WORD = re.compile(r"[\w=.]*\w")
_VALUES = re.compile(
    r"(?:\b(?:is|be|can last|can take|run for|timeout of|ended for|part for|runs every|after) '?|\} )\{[^}]+\}'?$"
    r"|are both \{\w+\}$|is (?:on|set)$"
)
"""Ends a finding that names the values of options, and not the mistake."""
_ITS_VALUE = re.compile(r" is (?:\*[^*]+\*|on|set)(?= and |$)")
_ONLY_VALUES = re.compile(
    r"(?:(?:^| and )(?:[\w' ]*`[^`*]+`|\*name\*|[\w' ]*\*name\*|[\w' ]+) is (?:\*[^*]+\*|on|set))+$"
)
"""A finding that names options or numbers with their values, and nothing else."""
_MANY = 10
"""Rules with the same finding, of which the page shows the options alone."""
_NOT_PROSE = frozenset({"concurrency", "entrypoint", "threads"})
"""Options of one word that the texts name as options only."""

EXAMPLE = (
    "Stack/Orders: threads is 11 and batch_size is 10: a consumer cannot process more records at the same time than a "
    "batch has. Lower threads, or raise batch_size [intake-ledger:threads-within-batch]"
)

HEAD = f"""\
# Validation at synthesis

For readers who meet the ID of a rule, or ask which mistakes synthesis notices. The page is generated
from the [registry](../constructs/cdk_intake_ledger/checks/registry.py) of rules:
`python -m scripts.validation_page --write`.

A message has the finding with its value, the reason, and the fix. It ends with the ID of its rule:

```
{EXAMPLE}
```

Each rule has its finding, and after an option and a colon its permitted values. *Italics* stand for values.

- An **error** ends the synthesis. Rules about options raise `IntakeConfigurationError` with all problems of a pipeline.
  Rules about the whole app run later.
- A **warning** is printed. Acknowledge it by the ID that the CDK prints after it, for example
  `Annotations.of(pipeline).acknowledge_warning("cdk-intake-ledger:bucketNotVersioned")`.

`queue_retention` is `IntakeQueue(retention=)`, `ledger_retention` is `IntakeLedger(retention=)`, `audit_interval` is
`AuditOptions(interval=)`. A rule is skipped if one of its numbers is a token.
"""


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *(line for subject in all_subjects() for line in _section(subject))))


def _section(subject: Subject) -> Iterator[str]:
    """The rules of a subject. A finding of many rules is there once, above their options."""
    yield f"## {subject.title}"
    yield ""
    common = Counter(rule.what for rule in subject.rules).most_common(1)[0]
    shared = common[0] if common[1] > _MANY else ""
    if shared:
        yield f"Each one finds that {_shown(shared, ())}:"
        yield ""
    for rule in subject.rules:
        warning = " (warning)" if rule.severity is Severity.WARNING else ""
        names = ", ".join(f"`{name}`" for name in rule.inputs)
        if rule.what == shared:
            yield f"- `{rule.id}`{warning}: {names}"
        else:
            yield f"- `{rule.id}`{warning}: {_finding(rule, f' ({names})' if '{name}' in rule.what else '')}"
    yield ""


def _finding(rule: Rule, options: str) -> str:
    """The finding of a rule. The reason follows if it has a limit, or if the finding has only values."""
    finding, reason = (_shown(text, rule.inputs) for text in (rule.what, rule.why))
    if re.fullmatch(r"\{\w+\}", rule.why):
        return f"{finding}{options}"
    if _ONLY_VALUES.match(finding):
        limits = (
            reason.removeprefix("It must be ").partition(", because ")[0] if rule.why.startswith("it must") else reason
        )
        limits = (limits[:1].lower() if rule.why[:1].islower() else limits[:1]) + limits[1:]
        return f"{_ITS_VALUE.sub('', finding)}{options}: {limits}"
    if rule.why.startswith("it must be ") or _VALUES.search(rule.what) or re.search(r"\b\d", rule.why):
        return f"{finding}{options}. {reason}"
    return f"{finding}{options}"


def _shown(template: str, options: Collection[str]) -> str:
    """A text of a rule as Markdown: options as code, and the names of values in italics."""
    parts = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(_marked(literal, options))
        if name is not None:
            parts.append(f"*{name.replace('_', ' ')}*")
    text = "".join(parts)
    return text if text.startswith("pip ") else text[:1].upper() + text[1:]


def _marked(literal: str, options: Collection[str]) -> str:
    """Text with identifiers as code. Text that is code already stays."""
    for_markdown = literal.replace("*", "\\*")
    outside = for_markdown.split("`")
    for index in range(0, len(outside), 2):
        escaped = outside[index].replace("<", "&lt;")
        outside[index] = _WORD.sub(lambda word: f"`{word[0]}`" if _is_code(word[0], options) else word[0], escaped)
    return "`".join(outside)


def _is_code(word: str, options: Collection[str]) -> bool:
    return "_" in word or "=" in word.strip("=") or (word in options and word in _NOT_PROSE)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
