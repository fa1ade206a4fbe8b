"""Write the result of the demo into README.md: `make demo`, then `python -m scripts.demo_table build/demo.json`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
_TABLE = re.compile(r"(?<=<!-- demo -->\n).*(?=<!-- /demo -->)", re.DOTALL)


def table(result: dict[str, Any]) -> str:
    """The mistakes of the naive consumer in a run as a table, with those of the ledger.

    Args:
        result: the content of the demo's JSON file.

    Raises:
        ValueError: the ledger was wrong.

    """
    if not result["right"]:
        raise ValueError("the ledger was wrong in this run: find out why")
    mistakes = {name: m for name, m in result["measures"].items() if m["naive"] and m["right"] == 0}
    rows = [f"| {name} | **{m['naive']}** | {m['ledger']} |\n" for name, m in mistakes.items()]
    head = f"| {result['uploads']} uploads, {result['objects']} objects in the end | by hand | this construct |\n"
    return "".join(["\n", head, "| --- | ---: | ---: |\n", *rows, "\n"])


if __name__ == "__main__":
    content = table(json.loads(Path(sys.argv[1]).read_text()))
    README.write_text(_TABLE.sub(lambda _: content, README.read_text()))
