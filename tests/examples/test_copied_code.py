"""Code to copy is attacked like the product: each processor of docs and examples, under the faults that it may meet.

The effect has to be that of an undisturbed run, whether the connection is cut, a worker dies, or one is late. An empty
file is decided at once. A second type of event takes effect too. The recipes for services and databases have real ones
in `tests/synth/test_output_recipes.py`.
"""

import ast
import csv
import importlib
import io
import json
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from PIL import Image

from cdk_intake_ledger.testing import Fault, LocalMessages, LocalPipeline, LocalSets
from intake_ledger import Commit, FileSet, KeyedMessage, ObjectChange, Unprocessable

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*/processor/*.py"))
ARGUMENTS = {"change": "objects", "changes": "calls", "files": "sets", "message": "messages"}
FAULTS = [Fault.CONNECTION_CUT, Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN]
ELSEWHERE = {
    "README.md process": "tests/ordinary/test_4_timeout.py",
    "docs/recipes.md lines_in_postgresql": "tests/synth/test_output_recipes.py",
    "docs/recipes.md sent_over_http": "tests/synth/test_output_recipes.py",
    "docs/recipes.md lines_in_iceberg": "tests/synth/test_output_recipes.py",
    "docs/outputs.md process_batch": "tests/integration/test_bulk_load.py",
    "examples/load/README.md process": "tests/integration/test_load_example.py",
    "examples/catalogue/processor/catalogue.py process": "tests/local/pipelines/test_catalogue.py",
    "examples/content/processor/content.py process": "tests/integration/test_content_example.py",
    "examples/events_out/processor/invoices.py note": "tests/examples/test_events_out.py",
    "examples/orders/processor/stock.py process": "tests/local/messages/test_messages.py",
    "examples/daily_load/processor/loading.py load": "tests/examples/test_daily_load.py",
}
"""Processors that need a real downstream, and the test that has it."""


def picture() -> bytes:
    file = io.BytesIO()
    Image.effect_noise((60, 60), 50).convert("RGB").save(file, "JPEG")
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("a.csv", "1")
    return file.getvalue()


@dataclass
class Downstream:
    """It refuses a lower fence than it has seen, as the pages want it, and keeps what each fence wrote."""

    taken: dict[int, list[Any]] = field(default_factory=dict)

    def take(self, *what: Any, fence: int) -> str:
        if fence < max(self.taken, default=0):
            raise RuntimeError("a later attempt has written")
        self.taken.setdefault(fence, []).append([list(one) if isinstance(one, Iterator) else one for one in what])
        return "effect 1"

    @property
    def shown(self) -> list[Any]:
        return self.taken[max(self.taken)] if self.taken else []


@dataclass(frozen=True)
class Found:
    """A processor of a page or an example."""

    name: str
    kind: str
    code: str
    line: str

    @property
    def argument(self) -> str:
        return self.name.rpartition(" ")[2].partition(":")[0]


def found() -> dict[str, Found]:
    """All processors, by page or file and name. A name that a page has twice gets a number."""
    texts = [
        (path, text)
        for path in PAGES
        for text in re.findall("^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    ] + [(path, path.read_text()) for path in EXAMPLES]
    processors: dict[str, Found] = {}
    for path, text in texts:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue  # a snippet that leaves something out
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.args.args and (kind := ARGUMENTS.get(node.args.args[0].arg)):
                name = f"{path.relative_to(ROOT)} {node.name}"
                name += f":{count}" if (count := sum(one.startswith(name) for one in processors)) else ""
                # The stack of a page belongs to an app, and the tests in it to another test.
                kept = [
                    one
                    for one in tree.body
                    if not (isinstance(one, ast.FunctionDef) and one.name.startswith("test_"))
                    and not {"self", "table"} & _names(one)
                ]
                processors[name] = Found(name, kind, ast.unparse(ast.Module(kept, [])), node.name)
    return processors


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


ALL = found()
HERE = sorted(ALL.keys() - ELSEWHERE.keys())


CONTENTS: Mapping[str, Callable[[], bytes]] = {
    "docs/getting-started.md process": lambda: b"number,cents\n1,10\n2,20\n",
    "docs/outputs.md process": picture,
    "docs/recipes.md process": lambda: b"amount\n10\n20\n",
    "docs/recipes.md files_in_an_archive": archive,
    "docs/recipes.md booked_in_dynamodb": lambda: b"10\n20\n",
    "docs/recipes.md booked_in_sql": lambda: b"10\n20\n",
    "docs/recipes.md sent_to_a_service": lambda: b"10\n20\n",
    "examples/daily_load/processor/loading.py check": lambda: b"order,amount\n1,10\n2,20\n",
    "examples/events_out/processor/invoices.py check": lambda: b"amount 10 EUR",
    "examples/invoices/processor/invoices.py process": lambda: b"number,cents\n1,10\n2,20\n",
    "examples/pictures/processor/pictures.py process": picture,
}
"""The file of a processor that does not take `10 EUR`."""


def content_of(name: str) -> bytes:
    return CONTENTS[name]() if name in CONTENTS else b"10 EUR"


def pixels(content: bytes | None) -> bytes | None:
    """The picture of an output. Its file has the fence of its attempt too."""
    return None if content is None else Image.open(io.BytesIO(content)).tobytes()


def grey(content: bytes) -> bytes:
    if not content:
        raise Unprocessable("no picture")
    file = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("L").save(file, "PNG")
    return file.getvalue()


class Bench:
    """A processor of the pages with the names that it expects."""

    def __init__(self, one: Found, monkeypatch: pytest.MonkeyPatch) -> None:
        self.one, self.downstream = one, Downstream()
        self.copies: set[str] = set()
        monkeypatch.setenv("TOTALS", "totals")
        monkeypatch.setenv("OUTPUT_BUCKET", "copies")
        client = type("Client", (), {"copy_object": lambda _, **request: self.copies.add(request["Key"])})
        monkeypatch.setattr(boto3, "client", lambda *_: client())
        if one.name.startswith("examples/"):
            path = one.name.split(" ", 1)[0].removesuffix(".py").replace("/", ".")
            self.names = vars(importlib.import_module(path))
        else:
            take = self.downstream.take
            self.names = {
                "save": take,
                "book": take,
                "load": lambda change: take(change.read(100), fence=change.fence),
                "parse": lambda stream: stream.read() or None,
                "grey": grey,
                "item_of": lambda change: {"file": {"S": change.key}, "text": {"S": change.read(100).decode()}},
                "Commit": Commit,
                "FileSet": FileSet,
                "KeyedMessage": KeyedMessage,
                "ObjectChange": ObjectChange,
                "Unprocessable": Unprocessable,
                "Sequence": Sequence,
            }
            exec(compile(one.code, one.name, "exec"), self.names)
        self.process: Callable[..., Any] = self.names[one.line]

    def run(self, content: bytes, *faults: Fault) -> tuple[Any, LocalPipeline | LocalSets]:
        """The effect, and the local pipeline after the run."""
        local: LocalPipeline | LocalSets
        if self.one.kind == "sets":
            local = LocalSets(self.process, marker="in/*/_SUCCESS")
            local.put("in/1/a.csv", content)
            local.put("in/1/_SUCCESS", "")
        else:
            local = LocalPipeline(self.process)
            local.put("in/1/a.csv", content)
        local.duplicate()
        local.next(*faults)
        local.run()
        outputs = list[bytes | None]()
        if isinstance(local, LocalPipeline):
            outputs = [pixels(local.output(bucket, "grey/in/1/a.csv")) for bucket in ("grey-pictures", "copies")]
        sent, rows = sorted(self.names.get("sent", {}).values()), list[Any]()
        if "booked_in_sql" in self.one.name:
            with closing(self.names["database"]) as database:
                rows = database.execute("SELECT file, amount FROM totals").fetchall()
        return (self.downstream.shown, local.transacted, outputs, sent, rows, self.copies), local


def test_each_processor_is_attacked_here_or_elsewhere() -> None:
    """A new one needs an attack."""
    assert ELSEWHERE.keys() <= ALL.keys()
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())
    assert len(HERE) > 12


@pytest.mark.failure_mode("F664")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [one for one in HERE if ALL[one].kind in ("objects", "sets")])
def test_the_effect_is_that_of_an_undisturbed_run(monkeypatch: pytest.MonkeyPatch, name: str, fault: Fault) -> None:
    one = ALL[name]
    content = content_of(name)
    expected, _ = Bench(one, monkeypatch).run(content)
    effect, local = Bench(one, monkeypatch).run(content, fault)
    assert local.outcomes["Committed"] >= 1
    assert not local.dead_letters
    assert effect == expected


@pytest.mark.failure_mode("F664")
@pytest.mark.parametrize("name", [one for one in HERE if ALL[one].kind in ("objects", "sets")])
def test_an_empty_file_is_decided_at_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is committed or rejected with a reason, and not tried again in vain."""
    _, local = Bench(ALL[name], monkeypatch).run(b"")
    assert len(local.calls) == 1
    assert local.outcomes["Failed"] == 0


EVENT: Mapping[str, Any] = {
    "id": "1",
    "event_id": "e-1",
    "detail-type": "Order placed",
    "source": "shop",
    "article": "nuts",
    "order_id": "o-1",
    "pieces": 2,
    "detail": {"id": "d-1", "key": "nuts", "article": "nuts", "order_id": "o-1", "pieces": 2},
}
SECOND_TYPE = {
    **EVENT,
    "id": "2",
    "event_id": "e-2",
    "detail-type": "Order cancelled",
    "detail": {**EVENT["detail"], "id": "d-2"},
}
"""Another event about the same order."""


def intakes() -> dict[str, tuple[str, str]]:
    """The keys and identities of all message intakes that a reader may copy."""
    expressions: dict[str, tuple[str, str]] = {}
    for path in [*PAGES, *sorted((ROOT / "examples").glob("*/stack.py"))]:
        text = path.read_text()
        codes = re.findall("^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if path.suffix == ".md" else [text]
        for code in codes:
            try:
                tree = ast.parse(code)
            except SyntaxError:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("MessageIntake", "LocalMessages"):
                    given = {
                        one.arg: ast.literal_eval(one.value) for one in node.keywords if one.arg in ("key", "identity")
                    }
                    expressions[f"{path.relative_to(ROOT)} {node.lineno} {len(expressions)}"] = (
                        given["key"],
                        given["identity"],
                    )
    return expressions


INTAKES = intakes()


@pytest.mark.failure_mode("F664")
@pytest.mark.parametrize("name", INTAKES)
def test_a_second_type_of_event_takes_effect_too(name: str) -> None:
    """A copy of either takes none."""
    key, identity = INTAKES[name]
    seen: list[Any] = []
    intake = LocalMessages(lambda message: seen.append(message.body), key=key, identity=identity)
    for event in (EVENT, SECOND_TYPE, EVENT):
        intake.send(event)
        intake.run()
    assert seen == [EVENT, SECOND_TYPE]


@pytest.mark.failure_mode("F664")
@pytest.mark.parametrize("fault", [Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN])
@pytest.mark.parametrize("name", [one for one in HERE if ALL[one].kind == "messages"])
def test_a_message_takes_effect_as_in_an_undisturbed_run(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: Fault
) -> None:
    bench = Bench(ALL[name], monkeypatch)
    intake = LocalMessages(bench.process, key="article", identity="event_id")
    intake.send(EVENT)
    intake.duplicate()
    intake.next(fault)
    intake.run()
    assert intake.outcomes["Committed"] == 1
    assert len(bench.downstream.shown) == 1


STUBS = """
class GetObjectCommand { constructor(input) { this.input = input; } }
class S3Client {
  async send(command) {
    console.log(JSON.stringify(command.input));
    return { Body: { transformToString: async () => "10 EUR" } };
  }
}
const parse = (text) => text, save = async () => "invoice 1", forget = async () => "removed";
"""


@pytest.mark.failure_mode("F664")
@pytest.mark.parametrize(
    ("version", "asks"), [("v-1", {"VersionId": "v-1"}), (None, {"IfMatch": '"e-1"'})], ids=["a version", "no version"]
)
def test_the_function_in_node_reads_exactly_the_claimed_state(version: str | None, asks: dict[str, str]) -> None:
    """In a bucket without versions, the object may have been replaced since the claim."""
    page = (ROOT / "docs" / "processor.md").read_text()
    [code] = re.findall("^```js\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    change = {"bucket": "b", "key": "k", "versionId": version, "etag": "e-1", "kind": "created", "idempotencyKey": "i"}
    script = re.sub("^import .*$", STUBS, code, count=1, flags=re.MULTILINE) + f"await handler({json.dumps(change)});"
    ran = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(ran.stdout) == {"Bucket": "b", "Key": "k"} | asks


@pytest.mark.failure_mode("F664")
def test_a_dialect_with_line_ends_in_its_fields_is_read_as_the_docstring_says() -> None:
    """`lines()` has no line ends, so `csv.reader` would join the lines of such a field."""
    rows: list[list[str]] = []

    def process(change: ObjectChange) -> None:
        text = io.TextIOWrapper(change.open(), "utf-8-sig", newline="")
        rows.extend(csv.reader(text, delimiter=";", quotechar="'"))

    assert 'io.TextIOWrapper(change.open(), "utf-8-sig", newline="")' in (ObjectChange.csv_rows.__doc__ or "")
    pipeline = LocalPipeline(process)
    pipeline.put("a.csv", "id;text\n1;'first\nsecond'\n")
    pipeline.run()
    assert rows == [["id", "text"], ["1", "first\nsecond"]]
