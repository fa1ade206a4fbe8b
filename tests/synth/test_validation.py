"""The registry of rules, and the page that is generated from it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts.validation_page import PAGE, page

import cdk_intake_ledger
from cdk_intake_ledger.checks import registry
from cdk_intake_ledger.checks.registry import Rule, Severity, Subject, all_rules

PACKAGE = Path(cdk_intake_ledger.__file__).parent
RULES = list(all_rules())
ONLY_IN = {
    "IntakeConfigurationError": "reporting.py",
    "add_error": "reporting.py",
    "add_info": "reporting.py",
    "add_warning": "reporting.py",
    "add_warning_v2": "reporting.py",
    "Problem": "registry.py",
    "Rule": "registry.py",
}
"""Functions that make refusals, and the module of `checks` that may call them."""


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in PACKAGE.rglob("*.py"):
        yield from ((path, node) for node in ast.walk(ast.parse(path.read_bytes())))


def called(node: ast.AST) -> str:
    """The name of a called function, or an empty text."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id="events"), attr="Rule")):
            return ""  # a rule of EventBridge
        case ast.Call(func=ast.Attribute(value=ast.Name(id="Problem"), attr="of")):
            return "Problem"
        case ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def test_only_the_registry_refuses() -> None:
    """Errors, annotations and problems are made in one place."""
    outside = [
        f"{path.relative_to(PACKAGE)} line {getattr(node, 'lineno', 0)}: {called(node)}"
        for path, node in nodes()
        if (module := ONLY_IN.get(called(node))) and path != PACKAGE / "checks" / module
    ]
    assert outside == []


def test_checks_return_problems() -> None:
    """A function that is named after problems gives those of the registry, not texts."""
    others = [
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef)
        and re.search(r"problems?$", node.name)
        and (node.returns is None or "Problem" not in ast.unparse(node.returns))
    ]
    assert others == []


def test_every_rule_is_on_the_list() -> None:
    """A module of rules that `all_subjects` omits would be missing on the page."""
    assert {rule.id for rule in RULES} == registry._IDS
    assert len(RULES) == len(registry._IDS)
    modules = {path.stem for path in (PACKAGE / "checks" / "rules").glob("[a-z]*.py")}
    assert modules == set(registry._RULE_MODULES)


@pytest.mark.parametrize("id", ["batch-size-range", "single", "Upper-Case", "two--dashes"])
def test_an_id_is_unique_and_in_kebab_case(id: str) -> None:
    with pytest.raises(ValueError, match="rule"):
        Subject("Test").error(id, inputs=("x",), what="x", why="y", fix="Z")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rules_are_written_alike(rule: Rule) -> None:
    """Finding and reason begin in lower case or with a value, the fix is an instruction, and none ends in a period."""
    assert rule.inputs
    for text in (rule.what, rule.why):
        assert re.match(r"[a-z{'0-9]|(Lambda|SQS|S3|CDK|CloudWatch|EventBridge|DuckDB|Athena)\b|CDK's|S3's", text), text
    assert re.match(r"[A-Z]", rule.fix), rule.fix
    assert not any(text.endswith(".") for text in rule.texts().values())


def test_a_message_ends_with_its_id() -> None:
    rule = Rule(id="too-large", inputs=("x",), what="x is {value:,}", why="it must be small", fix="Use {most} or less")
    problem = rule.problem(value=1_000, most=3)
    assert problem == "x is 1,000: it must be small. Use 3 or less [intake-ledger:too-large]"
    assert problem.rule is rule
    assert problem.within("here") == f"here: {problem}"
    assert problem.within("here").rule is rule
    assert rule.acknowledgement == "tooLarge"
    assert rule.values() == {"value", "most"}
    assert rule.severity is Severity.ERROR


def test_every_rule_is_broken_in_a_test() -> None:
    """Its ID is a text of a test, or in the table of wrong inputs. A test that breaks the rule names it."""
    table = (Path(__file__).parent / "wrong_inputs.txt").read_text(encoding="utf-8")
    named = {
        rule for _, rules in re.findall(r"^(refused|warned).*: (.+)$", table, re.MULTILINE) for rule in rules.split()
    }
    for path in Path(__file__).parent.glob("test_*.py"):
        if path != Path(__file__):
            constants = (
                node.value for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant)
            )
            named |= {value for value in constants if isinstance(value, str)}
    assert {rule.id for rule in RULES} - named == set()


def test_the_page_is_up_to_date() -> None:
    """`python -m scripts.validation_page --write` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()
