"""Generates tests/truth/README.md from the table of assumptions and the marks of the suite.

    python -m scripts.assumptions_page [--write]

Without `--write` it prints the page. If there is a report of a run on AWS (`REPORT`), each line that a test covers has
its result.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from itertools import groupby
from os.path import relpath
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "truth" / "README.md"
TABLE = ROOT / "tests" / "truth" / "assumptions.toml"
SUITE = ROOT / "suite" / "intake_ledger_suite"
REPORT = ROOT / "tests" / "truth" / "account.xml"
"""pytest's report of a run on AWS, which a person has committed: docs/account.md."""
HOLDS = "holds"
"""The result of most lines, which the page does not repeat."""
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
an account (it holds, if nothing else stands there), and the test that shows it [on an
account](../../docs/account.md), with its result. {run} "Read" means that a person compared the code with the source.
"Only on AWS" means that no test here decides it. `make truth` runs the tests of permissions, models, quotas and
recordings, and `make test` the others.

`python -m scripts.assumptions_page --write` makes the page from [a table](assumptions.toml), which also
has the places in the code, and the requests that would show each line on AWS.
[Facts that others recorded on AWS](../recorded/README.md) are data of this repository.
"""


def page() -> str:
    """The whole page."""
    found = ET.parse(REPORT).getroot() if REPORT.exists() else None
    return "\n".join((HEAD.format(run=_run(found)), *_sections(tomllib.loads(TABLE.read_text()), results(found))))


def suite() -> dict[str, list[str]]:
    """The tests of the suite that show an assumption, as `file#test`, by the ID of the assumption."""
    found: dict[str, list[str]] = {}
    for path in sorted(SUITE.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            for id_ in _assumptions(node):
                found.setdefault(id_, []).append(f"{path.name}#{getattr(node, 'name', '')}")
    return found


def _assumptions(node: ast.stmt) -> Iterator[str]:
    """The IDs in the mark of a test."""
    for mark in getattr(node, "decorator_list", ()):
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.assumptions":
            yield from (ast.literal_eval(one) for one in mark.args)


def results(report: ET.Element | None) -> dict[str, str]:
    """The result of each test on AWS with its date, by the ID of the assumption. A skipped test has none.

    Raises:
        ValueError: The report is of a local AWS.

    """
    if report is None:
        return {}
    if "local" not in (said := {one.attrib["name"]: one.attrib["value"] for one in report.iterfind("*/properties/*")}):
        raise ValueError(f"{REPORT} is no report of the suite")
    if said["local"] != "False":
        raise ValueError(f"{REPORT} is a report of a local AWS: copy one of a run on AWS")
    found: dict[str, str] = {}
    for case in report.iter("testcase"):
        if case.find("skipped") is None:
            failed = any(case.find(tag) is not None for tag in ("failure", "error"))
            for one in case.iterfind("properties/property[@name='assumptions']"):
                for id_ in one.attrib["value"].split():
                    # One of several tests that failed decides.
                    if failed or not found.get(id_, "").startswith("failed"):
                        found[id_] = f"{'failed' if failed else 'passed'} {_day(report)}"
    return found


def _run(report: ET.Element | None) -> str:
    return "Nothing here has run on AWS." if report is None else f"The last run on AWS was on {_day(report)}."


def _day(report: ET.Element) -> str:
    return next(report.iter("testsuite")).attrib["timestamp"][:10]


def _sections(table: dict[str, Any], on_aws: dict[str, str]) -> Iterator[str]:
    tests = suite()
    for subject, rows in groupby(table["assumption"], lambda row: row["id"].partition("-")[0]):
        yield f"## {_SUBJECTS[subject]}"
        yield ""
        yield "| | assumed | source | here | on an account |"
        yield "| --- | --- | --- | --- | --- |"
        for row in rows:
            source = f"[{row['source']}]({table['sources'][row['source']]})"
            path, _, test = row["here"].partition("#")
            here = f"[✓]({relpath(ROOT / path, PAGE.parent)}#{test})" if test else row["here"]
            shown = [
                f"[`{test.partition('#')[2].removeprefix('test_')}`]({relpath(SUITE, PAGE.parent)}/{test})"
                for test in tests.get(row["id"], ())
            ]
            result = "" if test and row["result"] == HOLDS else row["result"]
            cells = (
                row["id"],
                row["assumed"],
                source,
                (" " if test else ": ").join(filter(None, (here, result))),
                " ".join(filter(None, (", ".join(shown), on_aws.get(row["id"])))),
            )
            yield f"| {' | '.join(cells)} |"
        yield ""


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
