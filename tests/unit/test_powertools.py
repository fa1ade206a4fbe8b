"""Powertools without the large module that it takes one decorator from."""

import subprocess
import sys
import warnings

import pytest

needs_the_decorator = pytest.mark.skipif(not hasattr(warnings, "deprecated"), reason="Python has it since 3.13")


def said(code: str) -> str:
    """What an interpreter of its own prints: in this one, others have imported it already."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@needs_the_decorator
@pytest.mark.parametrize("module", ["consumer", "audit.function"])
def test_a_cold_start_does_not_import_it(module: str) -> None:
    assert said(f"import sys, intake_ledger.{module}; print('typing_extensions' in sys.modules)") == "False"


def test_whoever_imports_it_later_gets_all_of_it() -> None:
    """The team's own code, for one."""
    code = "import intake_ledger.consumer; from typing_extensions import TypedDict; print(TypedDict.__name__)"
    assert said(code) == "TypedDict"


def test_who_has_imported_it_before_keeps_it() -> None:
    code = "import sys, typing_extensions as it, intake_ledger.consumer; print(sys.modules['typing_extensions'] is it)"
    assert said(code) == "True"


def test_a_powertools_that_takes_more_of_it_gets_it() -> None:
    """As soon as it asks for something else, and without an error."""
    code = """
from intake_ledger.powertools import _standing_in
with _standing_in():
    from typing_extensions import deprecated, TypedDict
import sys, warnings
print(TypedDict.__name__, "deprecated" in dir(sys.modules["typing_extensions"]), deprecated.__name__)
"""
    assert said(code) == "TypedDict True deprecated"
