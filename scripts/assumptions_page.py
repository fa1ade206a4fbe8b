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

Each line is a behaviour of AWS on which the code relies: its place in the code, its source, the test that checks it
without an account, and the requests that would show it on AWS. Nothing here has run on AWS. `make truth` runs the
checks of permissions, models, quotas and recordings, `make test` the others. "Read" means that a person compared the
code with the source. "Only on AWS" means that no check here decides it.

The page is generated from [a table](../tests/truth/assumptions.toml): `python -m scripts.assumptions_page --write`.
[Facts that others recorded on AWS](../tests/recorded/README.md) are data of this repository.
"""


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *_sections(tomllib.loads(TABLE.read_text()))))


def _sections(table: dict[str, Any]) -> Iterator[str]:
    for subject, rows in groupby(table["assumption"], lambda row: row["id"].partition("-")[0]):
        yield f"## {_SUBJECTS[subject]}"
        yield ""
        yield "| | assumed | place | source | checked here | on AWS | result |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for row in rows:
            places = ", ".join(f"`{_short(place)}`" for place in row["places"])
            source = f"[{row['source']}]({table['sources'][row['source']]})"
            path, _, test = row["here"].partition("#")
            here = f"[✓](../{path}#{test})" if test else row["here"]
            cells = (row["id"], row["assumed"], places, source, here, row["aws"], row["result"])
            yield f"| {' | '.join(cells)} |"
        yield ""


def _short(place: str) -> str:
    """`aws.bucket:Bucket.look` for a place of the runtime. Other packages keep their names."""
    return place.removeprefix("intake_ledger.")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
