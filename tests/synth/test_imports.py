"""Imports are read at synthesis: a module that is nowhere would fail at the first event, and a guess must not."""

from pathlib import Path

import pytest

from cdk_intake_ledger.bundling.imports import missing_imports


def missing(folder: Path, source: str, *available: str) -> list[str]:
    (folder / "orders.py").write_text(source)
    return [missing.name for missing in missing_imports(folder, "orders", "process", available)]


@pytest.mark.parametrize(
    "source",
    [
        "import pandas",
        "import os, pandas.io as p",
        "from pandas import DataFrame",
        "from pandas.io import x",
        "class A:\n    import pandas",
        "with open('x') as f:\n    import pandas",
        "try:\n    import pandas\nfinally:\n    pass",
        "def process(change):\n    import pandas",
        "import pandas\nimport pandas.io",
        "from helpers import inner",
        "import helpers.inner",
        "from helpers.inner import a",
        "import direct",
    ],
)
def test_an_import_that_runs_for_certain_and_finds_nothing(tmp_path: Path, source: str) -> None:
    """At the top, in the function itself, or in a module of the folder that is imported so."""
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("from . import other\nfrom .. import above\n")
    (tmp_path / "helpers" / "inner.py").write_text("from .deep import more\n")
    (tmp_path / "helpers" / "deep.py").write_text("from .. import helpers\nimport pandas\n")
    (tmp_path / "direct.py").write_text("import pandas\n")
    assert missing(tmp_path, source) == ["pandas"]
    assert missing(tmp_path, source, "pandas") == []


@pytest.mark.parametrize(
    "source",
    [
        "import os, sys, annotationlib, __main__",
        "import boto3, botocore.config, dateutil, urllib3, six, jmespath, s3transfer",
        "from intake_ledger import Commit\nfrom aws_lambda_powertools import Logger\nimport typing_extensions",
        "try:\n    import pandas\nexcept ImportError:\n    pandas = None",
        "try:\n    import pandas\nexcept Exception:\n    import polars",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas",
        "import typing as t\nif t.TYPE_CHECKING:\n    import pandas\nelse:\n    import polars",
        "if __name__ == '__main__':\n    import pandas",
        "from contextlib import suppress\nwith suppress(ImportError):\n    import pandas",
        "def other():\n    import pandas",
        "def process(change):\n    if change.key.endswith('.parquet'):\n        import pandas",
        "def process(change):\n    return None\n    import pandas",
        "import helper",
        "from helpers.package import x",
        "import compiled",
        "from . import sibling",
        "import namespace.part",
        "for name in ():\n    import pandas",
        "while True:\n    import pandas",
        "async def later():\n    import pandas",
    ],
)
def test_everything_else_may_be_there(tmp_path: Path, source: str) -> None:
    """An import that may never run, or that finds its module, is not refused."""
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "unused.py").write_text("import pandas")
    (tmp_path / "broken.py").write_text("import (")
    (tmp_path / "compiled.cpython-313-aarch64-linux-gnu.so").write_bytes(b"")
    (tmp_path / "helpers" / "package").mkdir(parents=True)
    (tmp_path / "namespace" / "part").mkdir(parents=True)
    assert missing(tmp_path, f"import broken\n{source}\n") == []


def test_each_is_named_once_with_its_place(tmp_path: Path) -> None:
    """And with the distribution, whose name may be another one."""
    (tmp_path / "helper.py").write_text("import PIL\nimport yaml\n")
    (tmp_path / "orders.py").write_text("import PIL\nimport helper\nimport google_thing\n")
    imports = list(missing_imports(tmp_path, "orders", "process", ()))
    assert [(missing.name, missing.distribution, missing.source.name, missing.line) for missing in imports] == [
        ("PIL", "pillow", "orders.py", 1),
        ("yaml", "pyyaml", "helper.py", 2),
        ("google_thing", "google-thing", "orders.py", 3),
    ]


def test_a_package_as_entry_point(tmp_path: Path) -> None:
    """The packages above a module are imported before it."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "__init__.py").write_text("import pandas\n")
    (tmp_path / "orders" / "main.py").write_text("from .helpers import x\nfrom orders.helpers import y\n")
    (tmp_path / "orders" / "helpers.py").write_text("import polars\n")
    imports = missing_imports(tmp_path, "orders.main", "process", ())
    assert [missing.name for missing in imports] == ["pandas", "polars"]


def test_modules_that_import_each_other(tmp_path: Path) -> None:
    """Reading ends."""
    (tmp_path / "helper.py").write_text("import orders\nimport pandas\n")
    assert missing(tmp_path, "import helper\n") == ["pandas"]


@pytest.mark.parametrize("change", ["sys.path.insert(0, 'vendor')", "site.addsitedir('vendor')"])
def test_code_that_changes_the_path_may_import_anything(tmp_path: Path, change: str) -> None:
    """Only modules that are imported count. Others do not run."""
    (tmp_path / "unused.py").write_text(f"import sys, site\n{change}\n")
    (tmp_path / "path.py").write_text(f"import sys, site\n{change}\n")
    assert missing(tmp_path, "import pandas\n") == ["pandas"]
    assert missing(tmp_path, "import path, pandas\n") == []
