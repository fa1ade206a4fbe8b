"""The layout of the repository: source roots, imports and public names."""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import cdk_intake_ledger

ROOT = Path(__file__).parents[2]
_CACHES = {"cache", "cached_property", "lru_cache"}


def test_constructs_is_no_package() -> None:
    """With an `__init__.py`, Python would import this folder instead of the library `constructs`."""
    assert not (ROOT / "constructs" / "__init__.py").exists()
    assert not (ROOT / "lambda_src" / "__init__.py").exists()


def test_the_library_of_that_name_is_found_from_the_root() -> None:
    """`python app.py` has the root first on its path."""
    done = subprocess.run(
        [sys.executable, "-c", "import constructs; print(constructs.__file__)"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(Path(sys.prefix).resolve()) or "site-packages" in done.stdout


def test_the_app_runs_from_the_root(tmp_path: Path) -> None:
    """cdk.json runs `python app.py`. A new process is needed, since pytest changes the path of this one."""
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=os.environ | {"CDK_OUTDIR": str(tmp_path), "CDK_VALIDATION": "false"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "Billing.template.json").is_file()


def test_the_imports_keep_their_directions() -> None:
    """The contracts of import-linter hold."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_all_packages_are_typed() -> None:
    """Type checkers of users need this file."""
    for name in ("cdk_intake_ledger", "intake_ledger", "intake_ledger_cli", "intake_ledger_testing"):
        spec = find_spec(name)
        assert spec
        assert spec.origin
        assert Path(spec.origin).with_name("py.typed").is_file()


def test_testing_a_processor_starts_no_node() -> None:
    """The import of the CDK takes seconds and starts Node.js. Only synthesis needs it."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, cdk_intake_ledger.testing as t; t.LocalAws; print('jsii' in sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "False"


def test_the_public_names_are_the_ones_that_are_promised() -> None:
    """They are imported at their first use, so this test uses each of them."""
    for name in cdk_intake_ledger.__all__:
        assert getattr(cdk_intake_ledger, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'IntakePipe'"):
        _ = cdk_intake_ledger.IntakePipe  # type: ignore[attr-defined] # the test uses a wrong name


def test_each_cache_is_on_the_page_of_the_architecture() -> None:
    """A warm function keeps it, so the page has its owner and its rule for errors."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    _, _, section = page.partition("## State that is kept between invocations")
    table = section.partition("\n## ")[0]
    caches = {
        function.name
        for path in (ROOT / "lambda_src").rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(node, ast.Name) and node.id in _CACHES for node in ast.walk(function))
    }
    assert {"make_consumer", "make_parts", "_session"} <= caches
    assert not {name for name in caches if f"`{name}`" not in table}


def test_the_app_is_the_short_one_of_the_start_page() -> None:
    """Its processor is the one of docs/getting-started.md, so a reader sees one pipeline everywhere."""
    assert len((ROOT / "app.py").read_text().splitlines()) <= 35
    processor = (ROOT / "examples" / "invoices" / "processor" / "invoices.py").read_text()
    assert processor in (ROOT / "docs" / "getting-started.md").read_text()
