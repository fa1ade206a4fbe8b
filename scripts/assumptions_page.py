"""Generates docs/assumptions.md from the table of assumptions.

    python -m scripts.assumptions_page [--write]

Without `--write` it prints the page.
"""

import sys
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "assumptions.md"
TABLE = ROOT / "tests" / "truth" / "assumptions.toml"
_SUBJECTS = {
    "S3": "S3",
    "DDB": "DynamoDB",
    "SQS": "SQS",
    "LAM": "Lambda",
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

For reviewers: each line is a behaviour of AWS on which the code relies, its source, and the test that checks it without
an account. Nothing here has run on AWS. `make truth` runs the checks of permissions, models, quotas and recordings,
`make test` the others. "Read" means that a person compared the code with the source. "Only on AWS" means that no check
here decides it.

`python -m scripts.assumptions_page --write` makes the page from [a table](../tests/truth/assumptions.toml). It also
has the places in the code, and the requests that would show each line on AWS.
[Facts that others recorded on AWS](../tests/recorded/README.md) are data of this repository.
"""


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *_sections(tomllib.loads(TABLE.read_text()))))


def _sections(table: dict[str, Any]) -> Iterator[str]:
    for subject, rows in groupby(table["assumption"], lambda row: row["id"].partition("-")[0]):
        yield f"## {_SUBJECTS[subject]}"
        yield ""
        yield "| | assumed | source | checked here | result |"
        yield "| --- | --- | --- | --- | --- |"
        for row in rows:
            source = f"[{row['source']}]({table['sources'][row['source']]})"
            path, _, test = row["here"].partition("#")
            here = f"[✓](../{path}#{test})" if test else row["here"]
            cells = (row["id"], row["assumed"], source, here, row["result"])
            yield f"| {' | '.join(cells)} |"
        yield ""


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
