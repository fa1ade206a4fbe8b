"""Generates docs/kinds.md from the conformance tests and their reasons.

    python -m scripts.kinds_page [--write]

Without `--write` it prints the page.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kinds import test_conformance
from tests.kinds.cells import FORMS, HOSTS, RUNNERS
from tests.kinds.conformance import ABSENT, CELLS, REFUSED, TESTS, Absence, Place

PAGE = Path(__file__).parents[1] / "docs" / "kinds.md"
PROMISES_PAGE = PAGE.parents[1] / "tests" / "kinds" / "README.md"
TESTED = Path(test_conformance.__file__).name
RUNNER_NAMES = {
    "inline": "inline",
    "remote": "another function",
    "machine": "state machine",
    "durable": "durable function",
}
HOST_NAMES = {"lambda": "Lambda", "worker": "worker"}

HEAD = """\
# Kinds of work

For readers who choose a kind of work, a runner and a host. Each kind has
[its commands](operating.md#which-command-knows-which-kind) and [its alarms](runbooks.md).
[The promises](../tests/kinds/README.md) that the conformance tests hold in each cell are with the tests.
`python -m scripts.kinds_page --write` makes both pages.

- A **runner** does the work: the function's own process (inline),
  [another function](processor.md#a-processor-in-any-language), [a state machine](long-work.md#a-state-machine), or
  [a durable function](protocol.md#durable-functions).
- A **host** takes the messages: Lambda, or [a worker](long-work.md#workers-outside-of-lambda).
"""
LAST = """\
[Synthesis](../tests/synth/test_cells.py) and [the consumer](../tests/kinds/test_composition.py) refuse the other
cells."""
_COUNTED = "[requests and units](cost.md#counted-requests-and-units-per-change)"


class Kind(NamedTuple):
    """A kind as the page shows it. Each field is there for each kind."""

    purpose: str
    options: str
    tests: str
    operating: str
    cost: str


KINDS = {
    "objects": Kind(
        "The newest state of each key of a bucket takes effect once (`Ordering.LATEST`, the default). The truth is "
        "what S3 shows.",
        "[`IntakePipeline`](api.md#intakepipeline). [Recipes](recipes.md) use them",
        "[`LocalPipeline`](processor.md#test-it)",
        "[Operating a pipeline](operating.md), [the audit](audit.md)",
        _COUNTED,
    ),
    "every version": Kind(
        "Each version of each key takes effect once, in any order (`Ordering.EVERY_VERSION`). The truth is "
        "the version.",
        "Those of objects, with `ordering=Ordering.EVERY_VERSION`",
        "[`LocalPipeline(ordering=...)`](processor.md#test-it)",
        "[Operating a pipeline](operating.md), [the audit](audit.md)",
        _COUNTED,
    ),
    "sets": Kind(
        "Files that mean something only together take effect once for each set. The truth is the manifest, marker "
        "or folder, with the rows of the parts.",
        "[Sets of files](file-sets.md#the-forms)",
        "[`LocalSets`](file-sets.md#test-it)",
        "[Operating](file-sets.md#operating)",
        "[Cost](file-sets.md#cost)",
    ),
    "messages": Kind(
        "Each message of an SQS queue or of EventBridge takes effect once. At most one message of a key is in work. "
        "The truth is the message.",
        "[Messages](messages.md#key-and-identity)",
        "[`LocalMessages`](messages.md#test-it)",
        "[What operators see](messages.md#what-operators-see)",
        _COUNTED,
    ),
    "FIFO messages": Kind(
        "Messages as above, in the order of their message group. A message that fails holds its group back.",
        "[Sources and their order](messages.md#sources-and-their-order)",
        "[`LocalMessages(source=...)`](api.md#tests)",
        "[What operators see](messages.md#what-operators-see)",
        _COUNTED,
    ),
    "stream records": Kind(
        "Records of Kinesis or of a DynamoDB stream, in the order of their shard. A record that fails holds its shard "
        "back, and the other keys of its batch go on.",
        "[Sources and their order](messages.md#sources-and-their-order)",
        "[`LocalMessages(source=...)`](api.md#tests)",
        "[What operators see](messages.md#what-operators-see), [the age of the iterator](runbooks.md#iteratorage)",
        _COUNTED,
    ),
}


def page() -> str:
    """The whole page."""
    assert list(KINDS) == list(FORMS)
    parts = [HEAD, "\n".join(_kinds()), "\n".join(_cells())]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def promises_page() -> str:
    """The page of the promises, beside their tests."""
    return "\n".join(_promises()) + "\n"


def _cells() -> Iterator[str]:
    yield "## Cells"
    yield ""
    columns = [f"{RUNNER_NAMES[runner]}, {HOST_NAMES[host]}" for runner in RUNNERS for host in HOSTS]
    yield f"| kind | {' | '.join(columns)} |"
    yield f"| --- |{' --- |' * len(columns)}"
    for kind in FORMS:
        places = [Place(kind, runner, host) for runner in RUNNERS for host in HOSTS]
        yield f"| {kind} | {' | '.join('yes' if place in CELLS else 'no' for place in places)} |"
    yield ""
    yield LAST
    yield ""
    for kind in FORMS:
        if reasons := dict.fromkeys(one.reason for one in REFUSED if one.kind == kind):
            yield f"- {kind}: {' '.join(reasons)}"


def _kinds() -> Iterator[str]:
    yield "## Kinds"
    yield ""
    yield "| kind | purpose | options | tests | operating | cost |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, kind in KINDS.items():
        yield f"| {name} | {' | '.join(kind)} |"


def _promises() -> Iterator[str]:
    reasons = list(dict.fromkeys(one.reason for one in ABSENT))
    yield "# The promises of each kind"
    yield ""
    yield "For readers who compare [kinds of work](../../docs/kinds.md)."
    yield "`python -m scripts.kinds_page --write` makes the page."
    yield "Each line is a test that runs in each cell of each kind, without the exceptions. A number is a reason below."
    yield ""
    yield "| promise | exceptions |"
    yield "| --- | --- |"
    for test in TESTS:
        shown = f"[{test.replace('_', ' ').capitalize()}]({TESTED}#test_{test})"
        yield f"| {shown} | {'; '.join(_exceptions(test, reasons))} |"
    yield ""
    for number, reason in enumerate(reasons, 1):
        yield f"{number}. {reason}"


def _exceptions(test: str, reasons: list[str]) -> Iterator[str]:
    """The kinds in which a test does not apply, with the runner and the host if not in all, and with their reasons."""
    found: dict[str, list[str]] = {}
    for kind in FORMS:
        lines = [
            one
            for one in ABSENT
            if one.test == test and any(one.covers(place) for place in CELLS if place.kind == kind)
        ]
        if shown := ", ".join(dict.fromkeys(f"{reasons.index(one.reason) + 1}{_where(one)}" for one in lines)):
            found.setdefault(shown, []).append(kind)
    for shown, kinds in found.items():
        yield shown if len(kinds) == len(FORMS) else f"{', '.join(kinds)}: {shown}"


def _where(one: Absence) -> str:
    names = [RUNNER_NAMES.get(one.runner), HOST_NAMES.get(one.host)]
    where = ", ".join(name for name in names if name)
    return f" ({where})" if where else ""


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        PROMISES_PAGE.write_text(promises_page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
