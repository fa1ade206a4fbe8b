"""Run the snippets of the README and of the page about processors."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_lambda as lambda_
from PIL import Image

from cdk_intake_ledger import Processor
from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import ObjectChange
from tests.synth.build import new_stack

ROOT = Path(__file__).parents[2]
TEXT = "".join((ROOT / name).read_text() for name in ("README.md", "docs/processor.md"))
TEXT = TEXT.partition("\n## Dependencies")[0]
SNIPPETS = re.findall("^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def snippet(beginning: str) -> str:
    (text,) = (text for text in SNIPPETS if text.startswith(beginning))
    return str(text)


def test_the_snippets_of_the_readme_are_those_of_the_app() -> None:
    """`tests/ordinary` runs both files."""
    files = [(ROOT / name).read_text() for name in ("app.py", "examples/invoices/processor/invoices.py")]
    own = re.findall("^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert [[text in file for file in files] for text in own] == [[True, False], [False, True]]


def test_rows_and_writes() -> None:
    """The snippets that read a CSV file and that write in the ledger's transaction."""
    indented = "".join(f"    {line}\n" for line in snippet("return Commit").splitlines())
    text = f"def process(change):\n    invoice = Invoice()\n{indented}"
    names: dict[str, Any] = {
        "Invoice": type("Invoice", (), {"id": "4711", "account": "a", "amount": 10}),
        "TOTALS": "t",
    }
    exec("from intake_ledger import Commit\n" + text, names)
    pipeline = LocalPipeline(names["process"])
    pipeline.put("a.csv", "")
    pipeline.duplicate()
    pipeline.run()
    assert [write["Update"]["TableName"] for write in pipeline.transacted] == ["t"]

    booked: list[tuple[str, Any]] = []
    indented = "".join(f"    {line}\n" for line in snippet("for row in").splitlines())
    names = {"book": lambda *row: booked.append(row)}
    exec(f"from decimal import Decimal\ndef process(change):\n{indented}", names)
    pipeline = LocalPipeline(names["process"])
    pipeline.put("b.csv", "account;amount\nMüller;10.50\n".encode("cp1252"))
    pipeline.run()
    assert [(account, str(amount)) for account, amount in booked] == [("Müller", "10.50")]


def test_the_test_of_the_readme_fails_without_a_fence() -> None:
    """A processor that compares fences passes the test. A processor that does not compare them fails it."""
    saved: dict[str, int] = {}
    fences: dict[str, int] = {}

    def careful(change: ObjectChange) -> None:
        with change.open() as stream:
            amount = int(stream.read().split()[0])
        if change.fence > fences.get(change.key, 0):
            fences[change.key], saved[change.key] = change.fence, amount

    def adding(change: ObjectChange) -> None:
        with change.open() as stream:
            saved[change.key] = saved.get(change.key, 0) + int(stream.read().split()[0])

    names: dict[str, Any] = {"process": careful, "saved": saved}
    exec(snippet("from cdk_intake_ledger.testing"), names)
    names["test_every_invoice_counts_once"]()
    saved.clear()
    names["process"] = adding
    with pytest.raises(AssertionError):
        names["test_every_invoice_counts_once"]()


def test_the_output() -> None:
    """The picture is in the other bucket."""
    file = io.BytesIO()
    Image.new("L", (1, 1)).save(file, "PNG")

    def grey(change: ObjectChange) -> None:
        exec(snippet("change.output("), {"change": change, "png_bytes": file.getvalue()})

    pipeline = LocalPipeline(grey)
    pipeline.put("a.png", file.getvalue())
    pipeline.run()
    written = pipeline.output("grey-pictures", "grey/a.png")
    assert written is not None
    assert Image.open(io.BytesIO(written)).size == (1, 1)


def test_the_version_of_an_existing_function() -> None:
    """It is that of the option."""
    function = lambda_.Function.from_function_name(new_stack(), "Fn", "orders")
    made = eval(snippet("Processor.from_function("), {"Processor": Processor, "fn": function})
    assert made.processor_version == "3f2a9c41d07e"


def test_every_snippet_is_run() -> None:
    """A new snippet needs a test here."""
    assert len(SNIPPETS) == 7
