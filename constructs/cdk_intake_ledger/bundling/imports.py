"""Reads which modules a processor always imports. It imports none of them."""

import ast
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

LAMBDA_MODULES = frozenset({
    "awslambdaric", "boto3", "botocore", "dateutil", "jmespath", "pip", "runtime_client", "s3transfer", "simplejson",
    "six", "snapshot_restore_py", "urllib3",
})  # fmt: skip
"""Modules of Lambda's Python runtimes, without the standard library: the AWS SDK and Lambda's own client."""

LAYER_MODULES = frozenset({"aws_lambda_powertools", "intake_ledger", "typing_extensions"})
"""Modules of the pipeline's layer."""

# Synthesis may run on an older Python than the function. `__main__` always exists.
_OTHER_MODULES = frozenset({"__main__", "annotationlib", "compression"})

_PATH_CHANGES = (b"sys.path", b"addsitedir", b"meta_path", b"path_hooks")

# Distributions whose name differs from their module.
_DISTRIBUTIONS = {
    "bs4": "beautifulsoup4", "Crypto": "pycryptodome", "cv2": "opencv-python-headless", "docx": "python-docx",
    "fitz": "pymupdf", "jwt": "pyjwt", "magic": "python-magic", "PIL": "pillow", "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary", "sklearn": "scikit-learn", "yaml": "pyyaml",
}  # fmt: skip


@dataclass(frozen=True)
class Import:
    """The top-level name of an imported module, and the place of the import."""

    name: str
    source: Path
    line: int

    @property
    def distribution(self) -> str:
        """The distribution that probably has the module."""
        return _DISTRIBUTIONS.get(self.name, self.name.replace("_", "-").lower())


def missing_imports(directory: Path, module: str, function: str, available: Collection[str]) -> Iterator[Import]:
    """Imports that always run and that would fail, each module once.

    These are the imports of the entry point's module, of the folder's modules that it imports, and of the function's
    body. An import under `if` or `try`, or in another function, may never run. If the code changes Python's search
    path, nothing is reported.

    Args:
        directory: the processor's folder.
        module: the entry point's module.
        function: the entry point's function.
        available: further top-level names, besides those of the folder and of Lambda.

    Yields:
        the imports.

    """
    reader = _Reader(directory)
    imports = reader.read(module, function)
    if reader.changes_path:
        return
    known = sys.stdlib_module_names | _OTHER_MODULES | LAMBDA_MODULES | LAYER_MODULES | modules_in(directory)
    seen: set[str] = set()
    for statement in imports:
        if statement.name not in known and statement.name not in available and statement.name not in seen:
            seen.add(statement.name)
            yield statement


def modules_in(directory: Path) -> frozenset[str]:
    """Top-level names that can be imported from a folder."""
    return frozenset(
        path.name.partition(".")[0]
        for path in directory.iterdir()
        if path.is_dir() or path.suffix in (".py", ".so", ".zip")
    )


class _Reader:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: set[str] = set()
        self._imports: list[Import] = []
        self.changes_path = False
        """True if one of the modules changes Python's search path."""

    def read(self, module: str, function: str) -> list[Import]:
        self._module(module, function)
        return self._imports

    def _module(self, module: str, function: str | None = None) -> None:
        """Read a module of the folder, after the packages above it, as Python imports them."""
        if module in self._read:
            return
        self._read.add(module)
        if parent := module.rpartition(".")[0]:
            self._module(parent)
        base = self._directory.joinpath(*module.split("."))
        package = base / "__init__.py"
        source = package if package.is_file() else base.with_name(f"{base.name}.py")
        if not source.is_file():
            return
        content = source.read_bytes()
        self.changes_path = self.changes_path or any(sign in content for sign in _PATH_CHANGES)
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            return  # `entrypoint.py` reports this for the entry point; other modules may never be imported
        within = module if source is package else parent
        for statement in _certain(tree.body, function):
            self._import(statement, source, within)

    def _import(self, statement: ast.Import | ast.ImportFrom, source: Path, within: str) -> None:
        for name in _modules_of(statement, within):
            top = name.partition(".")[0]
            if top:
                self._imports.append(Import(top, source, statement.lineno))
                self._module(name)


def _modules_of(statement: ast.Import | ast.ImportFrom, within: str) -> Iterator[str]:
    """Full names of the modules that a statement imports. Some of the names may be attributes."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    parts = within.split(".") if within else []
    above = parts[: len(parts) - statement.level + 1] if statement.level else []
    module = ".".join([*above, *([statement.module] if statement.module else [])])
    if module:
        yield module
    # A relative import names modules of the folder only.
    if module or statement.level:
        yield from (f"{module}.{alias.name}".lstrip(".") for alias in statement.names if module and alias.name != "*")


def _certain(body: list[ast.stmt], function: str | None) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run at each import of the module or each call of the function."""
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                yield statement
            case ast.FunctionDef(name=name) if name == function:
                yield from _certain(statement.body, None)
            case ast.ClassDef():
                yield from _certain(statement.body, None)
            case ast.With() if not any("suppress" in ast.dump(item) for item in statement.items):
                yield from _certain(statement.body, None)
            case ast.Try(handlers=[]):
                yield from _certain([*statement.body, *statement.finalbody], function)
        if isinstance(statement, ast.Return | ast.Raise):
            return
