"""Change one definition of the runtime, wherever it stands: for the defects that are seeded on purpose.

A change names a definition (`Ledger.commit`, `judge`, `MAX_PAUSE_MS`) and two fragments of code, `old` and `new`. Both
are expressions, or statements, or named arguments of a call, or `except` clauses. An empty `new` leaves `old` out. A
body of `...` stands for any body: `if failed: ...`. Code is compared as syntax trees, so neither a module's name nor
the layout of its text matters. The definition `SQL` stands for the runtime's queries, which are compared word by word.
"""

import ast
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import intake_ledger

SQL = "SQL"
"""The definition that stands for queries."""
_ANY_BODY = ast.dump(ast.Expr(ast.Constant(...)))


class Mutant(NamedTuple):
    """A defect: a change of one definition of the runtime."""

    name: str
    definition: str
    """The qualified name of a function, a class or a constant: `Ledger.commit`. Outside of the runtime, its package
    comes first: `intake_ledger_cli/Walls._audit`."""
    old: str
    new: str
    found_by: str
    """The scenario, test or pipeline that has to find the defect."""


class DoesNotFitError(LookupError):
    """The runtime does not have the definition, or not exactly one such place in it."""


class _Place(NamedTuple):
    """Some of the nodes that a field of a node holds, and the module."""

    path: Path
    parent: ast.AST
    field: str
    start: int
    stop: int


class Runtime:
    """The sources of the runtime, or of a copy.

    Args:
        folder: the package, or any folder with its modules.

    """

    def __init__(self, folder: Path) -> None:
        files = {path.relative_to(folder): path for path in sorted(folder.rglob("*.*"))}
        self._modules = {name: ast.parse(path.read_text()) for name, path in files.items() if name.suffix == ".py"}
        self._queries = {name: _words(path.read_text()) for name, path in files.items() if name.suffix == ".sql"}
        self._definitions: dict[str, list[_Place]] = {}
        for path, module in self._modules.items():
            for name, place in _definitions(path, module, ""):
                self._definitions.setdefault(name, []).append(place)

    def change(self, definition: str, old: str, new: str) -> tuple[Path, str]:
        """Return the file that changes, from the folder on, and its new text. Nothing is written.

        Raises:
            DoesNotFitError: The runtime has no such definition, or not exactly one such place in it.

        """
        old, new = dedent(old).strip(), dedent(new).strip()
        if definition == SQL:
            return self._change_query(old, new)
        if definition not in self._definitions:
            near = get_close_matches(definition, self._definitions, n=1)
            raise DoesNotFitError(f"the runtime does not define {definition}" + "".join(f": {one}?" for one in near))
        inside = self._definitions[definition]
        found = [
            (place, added)
            for sought, added in _fragments(old, new)
            for outer in inside
            for place in _places(outer, sought)
        ]
        if len(found) != 1:
            files = ", ".join(dict.fromkeys(str(place.path) for place in inside))
            raise DoesNotFitError(f"{definition} (in {files}) has this {len(found)} times, and not once: {old}")
        [(place, added)] = found
        with _changed(place, added):
            return place.path, ast.unparse(self._modules[place.path]) + "\n"

    def _change_query(self, old: str, new: str) -> tuple[Path, str]:
        sought = _words(old)
        times = sum(text.count(sought) for text in self._queries.values())
        if times != 1:
            raise DoesNotFitError(f"the runtime's SQL has this {times} times, and not once: {old}")
        [(path, text)] = ((path, text) for path, text in self._queries.items() if sought in text)
        return path, text.replace(sought, _words(new))


def _words(sql: str) -> str:
    """SQL without comments and layout, with a space around each word."""
    code = " ".join(line.partition("--")[0] for line in sql.splitlines())
    return f" {' '.join(code.split())} " if code.strip() else " "


def _definitions(path: Path, node: ast.AST, prefix: str) -> Iterator[tuple[str, _Place]]:
    """Functions, classes, and the names that a module or a class assigns, by their qualified names."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST):
                continue
            place = _Place(path, node, field, index, index + 1)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + child.name, place
                yield from _definitions(path, child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                if isinstance(node, ast.Module | ast.ClassDef):
                    targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                    yield from ((prefix + target.id, place) for target in targets if isinstance(target, ast.Name))
            elif isinstance(child, ast.stmt | ast.excepthandler):
                yield from _definitions(path, child, prefix)


def _fragments(old: str, new: str) -> Iterator[tuple[Sequence[ast.AST], Sequence[ast.AST]]]:
    """The possible readings of the two texts. Two expressions have one, since a statement contains its expression."""
    both = _expression(old), _expression(new)
    if both[0] is not None and both[1] is not None:
        yield [both[0]], [both[1]]
        return
    readings = [(read(old), read(new)) for read in (_statements, _arguments, _clauses)]
    possible = [(sought, added) for sought, added in readings if sought and added is not None]
    if not possible:
        raise DoesNotFitError(f"these are not two fragments of code of one kind: {old!r} and {new!r}")
    yield from possible


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text}\n)", mode="eval").body if text else None
    except SyntaxError:
        return None


def _statements(text: str) -> Sequence[ast.stmt] | None:
    try:
        return ast.parse(text).body
    except SyntaxError:
        return None


def _arguments(text: str) -> Sequence[ast.keyword] | None:
    call = _expression(f"call({text})")
    return call.keywords if isinstance(call, ast.Call) and not call.args else None


def _clauses(text: str) -> Sequence[ast.excepthandler] | None:
    [*read] = _statements(f"try:\n    ...\n{text}") or ()
    return read[0].handlers if read and isinstance(read[0], ast.Try) else None


def _places(outer: _Place, sought: Sequence[ast.AST]) -> Iterator[_Place]:
    """Where the nodes stand, one after the other, within a place."""
    value = getattr(outer.parent, outer.field)
    nodes = (value if isinstance(value, list) else [value])[outer.start : outer.stop]
    for index in range(len(nodes) - len(sought) + 1):
        if all(map(_is_like, nodes[index:], sought)):
            start = outer.start + index
            yield outer._replace(start=start, stop=start + len(sought))
    for node in nodes:
        if not isinstance(node, ast.AST):
            continue
        for field, value in ast.iter_fields(node):
            # The constant parts of an f-string are not expressions.
            if not (isinstance(node, ast.JoinedStr) and isinstance(sought[0], ast.Constant)):
                inner = _Place(outer.path, node, field, 0, len(value) if isinstance(value, list) else 1)
                yield from _places(inner, sought)


def _is_like(node: object, sought: ast.AST) -> bool:
    if type(node) is not type(sought):
        return False
    return ast.dump(_with_body(node, _body(sought)) if _is_open(sought) else node) == ast.dump(sought)


def _is_open(node: ast.AST) -> bool:
    """True if the body is `...`."""
    return [ast.dump(one) for one in _body(node)] == [_ANY_BODY]


def _body(node: object) -> list[ast.stmt]:
    body = getattr(node, "body", ())
    return body if isinstance(body, list) else []


def _with_body(node: ast.AST, body: list[ast.stmt]) -> ast.AST:
    return ast.copy_location(type(node)(**dict(ast.iter_fields(node)) | {"body": body}), node)


@contextmanager
def _changed(place: _Place, added: Sequence[ast.AST]) -> Iterator[None]:
    """The change of a tree, for as long as the block lasts."""
    before = getattr(place.parent, place.field)
    after: object = added[0] if added else None
    if isinstance(before, list):
        kept = next(filter(None, map(_body, before[place.start : place.stop])), [])
        added = [_with_body(one, kept) if _is_open(one) else one for one in added]
        after = [*before[: place.start], *added, *before[place.stop :]]
        if place.field == "body" and not after:
            after = [ast.Pass()]
    setattr(place.parent, place.field, after)
    try:
        yield
    finally:
        setattr(place.parent, place.field, before)


@cache
def runtime(package: str) -> Runtime:
    """A package of this repository, such as the runtime, which is parsed once."""
    return Runtime(_sources(package))


def _sources(package: str) -> Path:
    return Path(str(import_module(package).__file__)).parent


def package_of(mutant: Mutant) -> str:
    """The package that a defect changes."""
    return _named(mutant.definition)[0]


def _named(definition: str) -> tuple[str, str]:
    """The package of a definition, and its name in it. That of the runtime is not named."""
    package, _, name = definition.rpartition("/")
    return package or intake_ledger.__name__, name


def seed(mutant: Mutant, folder: Path) -> None:
    """Copy the runtime into a folder, and the package of the defect, with the defect in it.

    Raises:
        DoesNotFitError: The runtime has changed: correct the defect.

    """
    own = package_of(mutant)
    for package in {intake_ledger.__name__, own}:
        # With its byte code, since most modules stay as they are. Python writes it under temporary names first.
        shutil.copytree(_sources(package), folder / package, ignore=shutil.ignore_patterns("*.pyc.*"))
    path, text = changed(mutant)
    file = folder / own / path
    file.write_text(text)
    Path(cache_from_source(file)).unlink(missing_ok=True)


def changed(mutant: Mutant) -> tuple[Path, str]:
    """The file of the runtime that a defect changes, and its text with the defect.

    Raises:
        DoesNotFitError: The runtime has changed: correct the defect.

    """
    package, name = _named(mutant.definition)
    try:
        return runtime(package).change(name, mutant.old, mutant.new)
    except DoesNotFitError as error:
        raise DoesNotFitError(f"the defect '{mutant.name}' does not fit, correct it: {error}") from None
