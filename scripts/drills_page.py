"""Write the times of the drills: `python -m scripts.drills_page build/drills.xml`."""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

PAGE = Path(__file__).parents[1] / "tests" / "local" / "README.md"
_TIMES = re.compile(r"(?<=<!-- times -->\n).*(?=<!-- /times -->)", re.DOTALL)


def table(report: str) -> str:
    """The times of a JUnit report of pytest as a table.

    Args:
        report: the report's XML.

    Raises:
        ValueError: a drill failed.

    """
    cases = [case for case in ET.fromstring(report).iter("testcase") if case.find("skipped") is None]
    if failed := [case.get("name") for case in cases if len(case)]:
        raise ValueError(f"these drills failed, so their times say nothing: {failed}")
    lines = ["\n| drill | seconds |\n| --- | --- |\n"]
    for case in cases:
        name = re.sub(r"\[.*\]$", "", str(case.get("name"))).removeprefix("test_").replace("_", " ")
        lines.append(f"| {name} | {float(str(case.get('time'))):.0f} |\n")
    return "".join([*lines, "\n"])


if __name__ == "__main__":
    content = table(Path(sys.argv[1]).read_text())
    PAGE.write_text(_TIMES.sub(lambda _: content, PAGE.read_text()))
