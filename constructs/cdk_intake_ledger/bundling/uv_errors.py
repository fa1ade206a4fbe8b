"""Explains uv's errors: which line has no wheel, why, and which version to pin."""

import re
from concurrent.futures import ThreadPoolExecutor

from packaging.utils import canonicalize_name

from cdk_intake_ledger.bundling.requirements import RequirementLine, without_marker
from cdk_intake_ledger.bundling.uv import Uv
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.requirement_rules import (
    DISTRIBUTION_MISSING,
    INDEX_UNREACHABLE,
    REQUIREMENTS_CONFLICT,
    UV_FAILED,
    VERSION_MISSING,
    WHEEL_MISSING,
)

_UNREACHABLE = re.compile(r"(?:Failed to fetch: `?|An index URL \()([^\s`)]+)[`)]*(.*)")
_ABSENT = re.compile(r"(\S+) was not found in the ")
_NO_VERSION = re.compile(r"there (?:is|are) no versions? of (\S+)")
_NO_WHEEL = re.compile(
    r"(\S+) (?:has no (?:usable )?wheels|requires Python|depends on Python)|incompatible with the current platform"
)
_NAME = re.compile(r"\w[\w.-]*")
_CHOSEN = re.compile(r"^ \+ (\S+)", re.MULTILINE)

# Marks of uv's output, what its words repeat, and an option that people cannot set here.
_MARKS = re.compile(
    r"^(?:Using|Resolved) .*$|^\W*(?:error:|cause:)?|No solution found when resolving dependencies:?", re.MULTILINE
)
_KNOWN = re.compile(
    r" and you require \S+, we can conclude that your requirements are unsatisfiable| \(i\.e\., with `--no-build`\)"
)


def explain(uv: Uv, output: str) -> list[Problem]:
    """Problems that made uv fail. uv stops at the first one, so this asks for each line again.

    Args:
        uv: the requirements that failed.
        output: uv's messages.

    Returns:
        one text for each problem, with the fix.

    """
    text = _plain(output)
    if not _UNREACHABLE.search(text):
        with ThreadPoolExecutor() as threads:
            if problems := list(filter(None, threads.map(lambda line: _of_line(uv, line), uv.lines))):
                return problems
    return [_problem(uv, text, uv.requirements.origin, "")]


def _of_line(uv: Uv, line: RequirementLine) -> Problem | None:
    done = uv.choose(line.text())
    return _problem(uv, _plain(done.stderr), line.where, without_marker(line.requirement)) if done.returncode else None


def _problem(uv: Uv, text: str, origin: str, requirement: str) -> Problem:
    """The problem in one message of uv.

    Args:
        uv: the requirements.
        text: the message.
        origin: the place of the requirements that uv had.
        requirement: the only one; empty if uv had several.

    """
    absent, no_version, no_wheel = (part.search(text) for part in (_ABSENT, _NO_VERSION, _NO_WHEEL))
    requirement = requirement or next((found[1] for found in (absent, no_version, no_wheel) if found), "") or ""
    name = _NAME.search(requirement)
    named = canonicalize_name(name[0]) if name else None
    where = next((line.where for line in uv.lines if line.name == named), f"{uv.requirements.origin}: a dependency")
    # An index that refused the credentials looks as if it had nothing.
    asked = _plain(uv.choose(name[0], "first-index").stderr) if name and (absent or no_version) else ""
    if found := _UNREACHABLE.search(text) or _UNREACHABLE.search(asked):
        return INDEX_UNREACHABLE.problem(where=origin, url=found[1], error=found[2].strip(" :"))
    if absent:
        return DISTRIBUTION_MISSING.problem(where=where, name=absent[1])
    if name and (no_version or no_wheel):
        chosen = _CHOSEN.search(uv.choose(name[0]).stderr)
        return (VERSION_MISSING if no_version else WHEEL_MISSING).problem(
            where=where,
            requirement=requirement,
            target=uv.platform,
            reason=text.rstrip("."),
            pin=f"a version that has one, such as {chosen[1]}" if chosen else "another distribution",
        )
    if "unsatisfiable" in text:
        return REQUIREMENTS_CONFLICT.problem(origin=origin, conflict=text.rstrip("."))
    return UV_FAILED.problem(origin=origin, target=uv.platform, message=text[-800:].rstrip("."))


def _plain(output: str) -> str:
    """The message in one line."""
    return _KNOWN.sub("", " ".join(_MARKS.sub("", output).split()))
