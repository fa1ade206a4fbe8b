"""Explains uv's errors: which line has no wheel, why, and which version to pin."""

import re
from concurrent.futures import ThreadPoolExecutor

from cdk_intake_ledger.bundling.requirements import RequirementLine, without_marker
from cdk_intake_ledger.bundling.uv import Uv
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.requirement_rules import INDEX_UNREACHABLE, REQUIREMENTS_CONFLICT, WHEEL_MISSING

_UNREACHABLE = re.compile(r"(?:Failed to fetch: `?|An index URL \()([^\s`)]+)[`)]*:?\s*(.*)")
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
    origin, lines = uv.requirements.origin, [line.text() for line in uv.lines]
    # An index that refuses the credentials looks as if it had nothing, except to this strategy.
    for text in (output, uv.choose(lines, "--index-strategy", "first-index")):
        if found := _UNREACHABLE.search(_plain(text)):
            return [INDEX_UNREACHABLE.problem(where=origin, url=found[1], error=found[2])]
    with ThreadPoolExecutor() as threads:
        problems = [problem for problem in threads.map(lambda line: _of_line(uv, line), uv.lines) if problem]
    return problems or [REQUIREMENTS_CONFLICT.problem(origin=origin, target=uv.platform, reason=_plain(output))]


def _of_line(uv: Uv, line: RequirementLine) -> Problem | None:
    """The problem of a line without its dependencies."""
    output = uv.choose([line.text()], "--no-deps")
    if _CHOSEN.search(output):
        return None
    other = _CHOSEN.search(uv.choose([line.name], "--no-deps"))
    return WHEEL_MISSING.problem(
        where=line.where,
        requirement=without_marker(line.requirement),
        target=uv.platform,
        reason=_plain(output),
        pin=f"a version that has one, such as {other[1]}" if other else "another distribution",
    )


def _plain(output: str) -> str:
    """The message in one line."""
    return _KNOWN.sub("", " ".join(_MARKS.sub("", output).split())).rstrip(".")
