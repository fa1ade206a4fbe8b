"""Measures of the structure of the code: names, imports and the arrows between modules. `make house` reports them."""

import ast
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Place = tuple[str, str]
"""A module, and the name of a definition in it."""


class Overhead(NamedTuple):
    """Lines of a package that only connect its parts, and all its lines of code. The lines of doors are imports."""

    imports: int
    constructors: int
    code: int

    @property
    def share(self) -> float:
        """The share of these lines in the code."""
        return (self.imports + self.constructors) / self.code


class Arrows(NamedTuple):
    """The arrows of a graph of modules: one for each module that uses definitions of another one when it is loaded."""

    total: int
    median_fan_out: int


def doubled_names(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Name the public classes that several files define, with these files."""
    found = defaultdict[str, list[str]](list)
    for file, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(file)
    return {name: files for name, files in sorted(found.items()) if len(files) > 1}


def glossary_terms(text: str) -> int:
    """Count the terms of the tables of the glossary."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return sum(not line.startswith(("| term |", "| --- |")) for line in rows)


def overhead(sources: Mapping[str, str], code: int) -> Overhead:
    """Count the lines of imports and constructors. `code` is the number of lines of code."""
    imports = constructors = 0
    for source in sources.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += _lines(node)
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                texts = (one for one in node.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
                constructors += _lines(node) - sum(map(_lines, texts))
    return Overhead(imports, constructors, code)


def arrows(package: Path) -> Arrows:
    """Count the arrows between the modules of a package.

    An import from a package's door leads to the module that defines the name. Imports in functions and for types are
    not counted.
    """
    modules = {_module(file, package): ast.parse(file.read_text(encoding="utf-8")) for file in package.rglob("*.py")}
    imported = {module: dict(_imports(tree.body)) for module, tree in modules.items()}
    doors = {module: dict(_imports(ast.walk(tree))) for module, tree in modules.items()}
    defined = {module: dict(_definitions(tree)) for module, tree in modules.items()}

    def home(target: Place) -> str | None:
        for _ in modules:
            module, name = target
            if name not in defined.get(module, {}):
                if f"{module}.{name}" in modules:
                    return f"{module}.{name}"
                if name in doors.get(module, {}):
                    target = doors[module][name]
                    continue
            return module if module in modules else None
        return None

    fan_out = []
    for module, definitions in defined.items():
        used = {one.id for node in definitions.values() for one in ast.walk(node) if isinstance(one, ast.Name)}
        targets = {home(target) for name, target in imported[module].items() if name in used}
        fan_out.append(len(targets - {module, None}))
    known = [number for number in fan_out if number]
    return Arrows(sum(known), round(statistics.median_high(known)))


def _module(file: Path, package: Path) -> str:
    return ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Place]]:
    """Yield each name that some statements import, with its place."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((one.asname or one.name, (node.module, one.name)) for one in node.names)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the definitions of a module, without the list of the names that it exports."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.TypeAlias):
            targets: Iterable[ast.expr] = node.targets if isinstance(node, ast.Assign) else ()
            single = node.name if isinstance(node, ast.TypeAlias) else getattr(node, "target", None)
            names = (one.id for one in (*targets, single) if isinstance(one, ast.Name))
            yield from ((name, node) for name in names if name != "__all__")


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
