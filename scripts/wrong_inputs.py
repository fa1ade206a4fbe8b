"""Counts the answers to the wrong inputs in tests/synth, whose tests compare each of them with synthesis.

python -m scripts.wrong_inputs
"""

import re
from collections import Counter
from pathlib import Path

TABLES = Path(__file__).parents[1] / "tests" / "synth"
_ANSWER = re.compile(r"^(\w[\w ]*): .+\n((?:    .+\n)+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^\S.*\n    .+$", re.MULTILINE)


def answers() -> Counter[str]:
    """The numbers of inputs by their answers. A refusal has the value and the fix."""
    found = Counter({"refused": len(_ARGUMENT.findall((TABLES / "wrong_arguments.txt").read_text(encoding="utf-8")))})
    for answer, inputs in _ANSWER.findall((TABLES / "wrong_inputs.txt").read_text(encoding="utf-8")):
        found[answer] += inputs.count("\n")
    return found


if __name__ == "__main__":
    for answer, number in (counted := answers()).most_common():
        print(f"{answer:24}{number:4}")
    print(f"{'all':24}{counted.total():4}")
