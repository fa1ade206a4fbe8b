"""Generates docs/assumptions.md from the table of assumptions, and the table of checks in docs/acceptance.md.

    python -m scripts.assumptions_page [--write]

Without `--write` it prints the page. If there is a report of a run on AWS (`REPORT`), each line that a check covers has
its result.
"""

import json
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from intake_ledger_cli.acceptance.catalogue import CHECKS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "assumptions.md"
TABLE = ROOT / "tests" / "truth" / "assumptions.toml"
REPORT = ROOT / "tests" / "truth" / "acceptance.json"
"""`acceptance.json` of a run on AWS, which a person has committed: docs/acceptance.md."""
ACCEPTANCE = ROOT / "docs" / "acceptance.md"
HOLDS = "holds"
"""The result of most lines, which the page does not repeat."""
_BEGIN, _END = "<!-- begin: checks -->\n", "<!-- end -->"
_SUBJECTS = {
    "S3": "S3",
    "DDB": "DynamoDB",
    "SQS": "SQS",
    "LAM": "Lambda",
    "LDF": "Durable functions of Lambda",
    "EVB": "EventBridge and Scheduler",
    "SFN": "Step Functions",
    "ATH": "Athena",
    "CW": "CloudWatch",
    "CFN": "CloudFormation",
    "IAM": "IAM",
    "PY": "Wheels",
}
HEAD = """\
# What is assumed of AWS

For reviewers: each line is a behaviour of AWS on which the code relies, its source, the test that checks it without
an account (it holds, if nothing else stands there), and [the check](acceptance.md) that shows it on an account, with
its result. {run} "Read" means that a person compared the code with the source. "Only on AWS" means that no test here
decides it. `make truth` runs the tests of permissions, models, quotas and recordings, `make test` the others.

`python -m scripts.assumptions_page --write` makes the page from [a table](../tests/truth/assumptions.toml), which also
has the places in the code, and the requests that would show each line on AWS.
[Facts that others recorded on AWS](../tests/recorded/README.md) are data of this repository.
"""


def page() -> str:
    """The whole page."""
    found = json.loads(REPORT.read_text()) if REPORT.exists() else None
    return "\n".join((HEAD.format(run=_run(found)), *_sections(tomllib.loads(TABLE.read_text()), results(found))))


def acceptance() -> str:
    """The page of the command, with the table of its checks."""
    head, _, rest = ACCEPTANCE.read_text().partition(_BEGIN)
    lines = ["| check | shows | assumptions | on a local AWS, if not all |", "| --- | --- | --- | --- |"]
    for one in CHECKS:
        ids = ", ".join(one.assumptions)
        lines.append(f"| `{one.name}` | {one.shows} | {ids} | {_here(one.not_local, only_aws=one.only_aws)} |")
    return "".join((head, _BEGIN, "\n".join(lines), "\n", _END, rest.partition(_END)[2]))


def _here(why: str, *, only_aws: bool) -> str:
    if not why:
        return ""
    return f"does not run: {why}" if only_aws else f"its steps run: {why}"


def results(report: dict[str, Any] | None) -> dict[str, str]:
    """The result of each check on AWS with its date, by the check's name. A check that did not run has none.

    Raises:
        ValueError: The report is of a local AWS.

    """
    if report is None:
        return {}
    if report["local"]:
        raise ValueError(f"{REPORT} is a report of a local AWS: copy one of a run on AWS")
    return {one["name"]: f"{one['result']} {_day(report)}" for one in report["outcomes"] if one["result"] != "not here"}


def _run(report: dict[str, Any] | None) -> str:
    return f"The last run on AWS was on {_day(report)}." if report else "Nothing here has run on AWS."


def _day(report: dict[str, Any]) -> str:
    return datetime.fromtimestamp(report["startedAt"] / 1000, UTC).date().isoformat()


def _checks(row: dict[str, Any]) -> str:
    return ", ".join(f"[`{one.name}`](acceptance.md#checks)" for one in CHECKS if row["id"] in one.assumptions)


def _sections(table: dict[str, Any], on_aws: dict[str, str]) -> Iterator[str]:
    for subject, rows in groupby(table["assumption"], lambda row: row["id"].partition("-")[0]):
        yield f"## {_SUBJECTS[subject]}"
        yield ""
        yield "| | assumed | source | here | on an account |"
        yield "| --- | --- | --- | --- | --- |"
        for row in rows:
            source = f"[{row['source']}]({table['sources'][row['source']]})"
            path, _, test = row["here"].partition("#")
            here = f"[✓](../{path}#{test})" if test else row["here"]
            ran = [on_aws[one.name] for one in CHECKS if row["id"] in one.assumptions and one.name in on_aws]
            result = "" if test and row["result"] == HOLDS else row["result"]
            cells = (
                row["id"],
                row["assumed"],
                source,
                (" " if test else ": ").join(filter(None, (here, result))),
                " ".join([_checks(row), *ran]).strip(),
            )
            yield f"| {' | '.join(cells)} |"
        yield ""


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
        ACCEPTANCE.write_text(acceptance())
    else:
        sys.stdout.write(page())
