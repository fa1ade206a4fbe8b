"""Synthesis reads the processor's source. It refuses an entry point that cannot run, and names the existing ones."""

import re
from pathlib import Path

import pytest

from cdk_intake_ledger import FileSets, IntakePipeline, MessageIntake, MessageSource, Processor, SetForm
from cdk_intake_ledger.bundling.entrypoint import argument_type, entrypoint_problems
from tests.synth.build import new_stack, refused, rules_in


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "invoices.py").write_text(
        "import os\n"
        "from helpers import imported\n"
        "CALLABLE = imported\n"
        "def process(change): ...\n"
        "def with_defaults(change, limit=3, *, loud=False): ...\n"
        "def anything(*arguments): ...\n"
        "def _private(change): ...\n"
        "def none_at_all(): ...\n"
        "def two(change, context): ...\n"
        "def keyword(change, *, needed): ...\n"
        "async def later(change): ...\n"
        "LIMIT = 5\n"
        "class Processor: ...\n"
        "try:\n    import fast\nexcept ImportError:\n    def fallback(change): ...\n"
        "if os.name:\n    def conditional(change): ...\n"
    )
    (tmp_path / "broken.py").write_text("def process(change):\nreturn\n")
    (tmp_path / "starred.py").write_text("from invoices import *\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from package.inner import process\n")
    (tmp_path / "package" / "inner.py").write_text("def process(change): ...\n")
    return tmp_path


@pytest.mark.parametrize(
    "entrypoint",
    [
        "invoices:process",
        "invoices:with_defaults",
        "invoices:anything",
        "invoices:imported",
        "invoices:CALLABLE",
        "invoices:fallback",
        "invoices:conditional",
        "starred:process",
        "package:process",
        "package.inner:process",
    ],
)
def test_what_the_consumer_can_call_is_accepted(source: Path, entrypoint: str) -> None:
    """Defined, imported, assigned, conditional, or in a package."""
    assert list(entrypoint_problems(source, entrypoint)) == []


@pytest.mark.parametrize(
    ("entrypoint", "rule", "text"),
    [
        ("invoices", "entrypoint-format", "entrypoint 'invoices' is not of the form 'module:function'"),
        ("invoices.py:process", "module-missing", "processor module 'invoices.py' does not exist"),
        ("invoices/a:process", "entrypoint-format", "is not of the form"),
        (":process", "entrypoint-format", "is not of the form"),
        (
            "invoice:process",
            "module-missing",
            "module 'invoice' does not exist in '.*': .* are 'broken', 'invoices', 'package'",
        ),
        (
            "invoices:proces",
            "function-missing",
            "function 'proces' does not exist in '.*': .* are 'process', 'with_defaults'",
        ),
        ("invoices:later", "function-kind", "processor 'later' in '.*' is async: the consumer calls a plain function"),
        ("invoices:Processor", "function-kind", "is a class: the consumer calls a plain function"),
        (
            "invoices:LIMIT",
            "function-kind",
            "is a value: the consumer calls a plain function",
        ),
        ("invoices:none_at_all", "function-arguments", "cannot be called with one argument"),
        ("invoices:two", "function-arguments", "cannot be called with one argument"),
        ("invoices:keyword", "function-arguments", "cannot be called with one argument"),
        ("broken:process", "module-syntax", "is not valid Python, line 2"),
        ("package.outer:process", "module-missing", "processor module 'package.outer' does not exist"),
    ],
)
def test_what_the_consumer_cannot_call_is_refused(source: Path, entrypoint: str, rule: str, text: str) -> None:
    """Each refusal names the given value, and the existing or expected ones."""
    (problem,) = entrypoint_problems(source, entrypoint)
    assert re.search(text, problem), problem
    assert rules_in(problem) == [rule]


def test_a_missing_directory_says_from_where_it_was_looked_for(tmp_path: Path) -> None:
    """Synthesis in another working directory is the usual cause."""
    (problem,) = entrypoint_problems(tmp_path / "procesors", "invoices:process")
    assert "procesors' does not exist (looked from '" in problem


def test_a_file_in_place_of_a_directory_is_refused(source: Path) -> None:
    """The module's own path is a natural mistake."""
    (problem,) = entrypoint_problems(source / "invoices.py", "invoices:process")
    assert "is not a directory" in problem
    assert rules_in(problem) == ["processor-path"]


def test_an_asset_that_hides_the_runtime_is_refused(source: Path) -> None:
    """On AWS, a function's code hides modules of its layers."""
    (source / "intake_ledger").mkdir()
    (problem,) = entrypoint_problems(source, "invoices:process")
    assert rules_in(problem) == ["runtime-hidden"]


def test_reading_the_source_does_not_run_it(source: Path) -> None:
    """A processor that needs its environment to be imported can be synthesised."""
    (source / "eager.py").write_text("raise SystemExit('imported')\ndef process(change): ...\n")
    assert list(entrypoint_problems(source, "eager:process")) == []


@pytest.mark.failure_mode("F101")
@pytest.mark.failure_mode("F228")
def test_an_imported_class_is_no_function(tmp_path: Path) -> None:
    """The import is followed within the folder."""
    (tmp_path / "parts.py").write_text("class Invoices:\n    pass\n\n\ndef process(change):\n    pass\n")
    (tmp_path / "main.py").write_text("from parts import Invoices as handle, process\nfrom json import loads\n")
    (problem,) = entrypoint_problems(tmp_path, "main:handle")
    assert rules_in(problem) == ["function-kind"]
    assert not [*entrypoint_problems(tmp_path, "main:process"), *entrypoint_problems(tmp_path, "main:loads")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def process(change: ObjectChange): ...", "ObjectChange"),
        ("def process(change: 'intake_ledger.FileSet'): ...", "FileSet"),
        ("def process(change: intake_ledger.KeyedMessage, /, more=1): ...", "KeyedMessage"),
        ("def process(change: ObjectChange | FileSet): ...", None),
        ("def process(change): ...", None),
        ("def process(*changes: ObjectChange): ...", None),
        ("@decorated\ndef process(change: ObjectChange): ...", None),
        ("from elsewhere import process", None),
        ("def process(", None),
    ],
)
def test_the_type_of_the_argument_is_read(tmp_path: Path, source: str, expected: str | None) -> None:
    (tmp_path / "main.py").write_text(source)
    assert argument_type(tmp_path, "main:process") == expected


@pytest.mark.failure_mode("F228")
def test_a_processor_of_another_kind_of_work_is_refused(tmp_path: Path) -> None:
    """It would fail at each call, and each file or message would be a dead letter."""
    for name in ("ObjectChange", "KeyedMessage", "FileSet"):
        (tmp_path / f"of_{name.lower()}.py").write_text(f"def process(work: {name}): ...")

    def code(name: str) -> Processor:
        return Processor.from_asset(tmp_path, entrypoint=f"of_{name.lower()}:process")

    stack = new_stack()
    for number, wrong in enumerate(("KeyedMessage", "FileSet")):
        with refused("function-argument-type", f"takes a {wrong}: this construct calls it with a ObjectChange"):
            IntakePipeline(stack, f"Pipeline{number}", processor=code(wrong))
    for number, wrong in enumerate(("ObjectChange", "FileSet")):
        with refused("function-argument-type", f"takes a {wrong}"):
            MessageIntake(
                stack, f"Messages{number}", source=MessageSource.sqs(), key="a", identity="b", processor=code(wrong)
            )
    pipeline = IntakePipeline(stack, "Parts", processor=code("ObjectChange"))
    for number, wrong in enumerate(("ObjectChange", "KeyedMessage")):
        with refused("function-argument-type", f"takes a {wrong}"):
            FileSets(
                stack, f"Sets{number}", pipeline=pipeline, form=SetForm.marker("a/*/_SUCCESS"), processor=code(wrong)
            )


@pytest.mark.parametrize(
    "returned",
    [
        "None",
        "str",
        "Commit",
        "intake_ledger.Commit",
        "Commit | str | None",
        "'Commit | None'",
        "Optional[str]",
        "typing.Union[Commit, None]",
        "Annotated[str, int]",
        "Any",
        "OurAlias",
        "NoReturn",
    ],
)
def test_an_annotation_that_may_be_a_commit_is_accepted(tmp_path: Path, returned: str) -> None:
    """An unknown name can be a commit."""
    (tmp_path / "typed.py").write_text(f"def process(change) -> {returned}: ...\n")
    assert list(entrypoint_problems(tmp_path, "typed:process")) == []


@pytest.mark.failure_mode("F101")
@pytest.mark.parametrize(
    ("returned", "named"),
    [
        ("int", "'int'"),
        ("dict", "'dict'"),
        ("dict[str, Any]", "'dict'"),
        ("typing.Dict[str, int]", "'Dict'"),
        ("str | bool | None", "'bool'"),
        ("Optional[list[int]]", "'list'"),
        ("'bytes'", "'bytes'"),
        ("Iterator[str]", "'Iterator'"),
    ],
)
def test_an_annotation_that_is_no_commit_is_refused(tmp_path: Path, returned: str, named: str) -> None:
    """It would be rejected for each file, after its effect. The refusal names the type and the fix."""
    (tmp_path / "typed.py").write_text(f"def process(change) -> {returned}: ...\n")
    (problem,) = entrypoint_problems(tmp_path, "typed:process")
    assert f"because {named} is not a commit. Return a Commit, a text or None" in problem
    assert rules_in(problem) == ["function-return-type"]


@pytest.mark.failure_mode("F101")
def test_a_generator_is_refused(tmp_path: Path) -> None:
    """To call it does nothing. A `yield` in an inner function is another function's."""
    (tmp_path / "lazy.py").write_text(
        "def process(change):\n    for line in change.lines():\n        yield line\n\n"
        "def fine(change):\n    def rows():\n        yield 1\n    list(rows())\n"
    )
    (problem,) = entrypoint_problems(tmp_path, "lazy:process")
    assert "is a generator: a call of it does nothing" in problem
    assert rules_in(problem) == ["function-is-generator"]
    assert list(entrypoint_problems(tmp_path, "lazy:fine")) == []
