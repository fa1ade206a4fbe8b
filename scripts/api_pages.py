"""Writes docs/api: a page for each public name, made of the signatures and docstrings in the sources (`make docs`).

The sources are parsed, not imported: types and defaults stand there as they were written, and no Node.js is started.
A docstring is prose, then `Args:` and `Raises:`; the text under an attribute is its docstring.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "api"
SOURCES = {"cdk_intake_ledger": ROOT / "constructs", "intake_ledger": ROOT / "lambda_src"}
PACKAGES = ("cdk_intake_ledger", "intake_ledger", "cdk_intake_ledger.testing")
MODULES = {"cdk_intake_ledger.testing": ("events",)}
"""Modules that are public as a whole, beside the names of `__all__`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Value:
    """A parameter, a field, an attribute, a property or a member of an enumeration."""

    name: str
    type: str
    default: str | None
    meaning: str
    required: bool = False


@dataclass(frozen=True)
class Routine:
    """A function, a method or a constructor."""

    name: str
    signature: str
    prose: str
    parameters: tuple[Value, ...]
    raises: Mapping[str, str]
    raised: frozenset[str]
    """The exceptions of the `raise` statements in its body."""


@dataclass(frozen=True)
class Page:
    """One public name."""

    package: str
    name: str
    kind: str
    prose: str
    constructor: Routine | None = None
    values: tuple[Value, ...] = ()
    properties: tuple[Value, ...] = ()
    routines: tuple[Routine, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence."""
        return _sentence(self.prose)


@dataclass
class _Docstring:
    prose: str = ""
    args: dict[str, str] = field(default_factory=dict)
    raises: dict[str, str] = field(default_factory=dict)


def pages() -> Iterator[Page]:
    """All of them, package by package."""
    for package in PACKAGES:
        for name in sorted(_names(package)):
            module, node = _definition(package, name)
            yield (
                _page_of_class(package, module, node)
                if isinstance(node, ast.ClassDef)
                else _page_of_function(package, node)
            )
        for name in MODULES.get(package, ()):
            tree = _module(f"{package}.{name}")
            functions = (one for one in tree.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"))
            prose = _parsed(tree).prose
            yield Page(package, name, "module", prose, routines=tuple(_routine(one) for one in functions))


def files() -> dict[str, str]:
    """The Markdown of docs/api, by file name."""
    every = list(pages())
    known = {page.name for page in every}
    return {"README.md": _index(every)} | {f"{page.name}.md": _markdown(page, known) for page in every}


# Reading.


@cache
def _module(name: str) -> ast.Module:
    path = SOURCES[name.partition(".")[0]].joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _names(package: str) -> list[str]:
    for node in _module(package).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise LookupError(f"{package} has no __all__")


def _definition(module: str, name: str) -> tuple[str, ast.ClassDef | Function]:
    """Where a name is defined, through however many modules it is handed on."""
    for node in ast.walk(_module(module)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return module, node
    for node in ast.walk(_module(module)):
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            return _definition(str(node.module), name)
    raise LookupError(f"{module} has no {name}")


def _page_of_function(package: str, node: Function) -> Page:
    return Page(package, node.name, "function", _parsed(node).prose, routines=(_routine(node),))


def _page_of_class(package: str, module: str, node: ast.ClassDef) -> Page:
    properties, routines, constructor = [], [], None
    members = [one for owner in _with_bases(module, node) for one in owner.body if isinstance(one, Function)]
    seen: set[str] = set()
    for one in members:
        decorators = {ast.unparse(decorator) for decorator in one.decorator_list}
        if one.name == "__init__" and constructor is None:
            constructor = _routine(one, node.name)
        if one.name.startswith("_") or one.name in seen:
            continue
        seen.add(one.name)
        if "property" in decorators:
            properties.append(Value(one.name, _type(one.returns), None, _parsed(one).prose))
        else:
            routines.append(_routine(one, f"{node.name}.{one.name}" if "classmethod" in decorators else one.name))
    return Page(
        package,
        node.name,
        "class",
        _parsed(node).prose,
        constructor,
        tuple({one.name: one for one in reversed(list(_values(node)))}.values())[::-1],
        tuple(properties),
        tuple(routines),
    )


def _with_bases(module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The class and its own bases that are ours too: what they offer, it offers."""
    yield node
    for base in node.bases:
        name = ast.unparse(base)
        for one in _module(module).body:
            if isinstance(one, ast.ImportFrom) and any(alias.name == name for alias in one.names):
                if str(one.module).partition(".")[0] in SOURCES:
                    yield from _with_bases(*_class(str(one.module), name))
            elif isinstance(one, ast.ClassDef) and one.name == name:
                yield from _with_bases(module, one)


def _class(module: str, name: str) -> tuple[str, ast.ClassDef]:
    where, node = _definition(module, name)
    assert isinstance(node, ast.ClassDef)
    return where, node


def _values(node: ast.ClassDef) -> Iterator[Value]:
    """Fields and members from the body, attributes from the constructor; each with the text under it."""
    bodies = [node.body, *(one.body for one in node.body if isinstance(one, Function) and one.name == "__init__")]
    for body in bodies:
        for statement, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(statement, ast.Assign | ast.AnnAssign):
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            name = ast.unparse(target)
            if body is not node.body:
                if not name.startswith("self."):
                    continue
                name = name.removeprefix("self.")
            if name.startswith("_"):
                continue
            annotation = statement.annotation if isinstance(statement, ast.AnnAssign) else None
            meaning = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                meaning = inspect.cleandoc(str(after.value.value))
            elif name.isupper() and isinstance(statement.value, ast.Constant):
                meaning = str(statement.value.value)  # a member whose value is its meaning
            is_field = body is node.body and annotation is not None
            default = ast.unparse(statement.value) if statement.value is not None and is_field else None
            yield Value(name, _type(annotation), default, meaning)


def _routine(node: Function, shown: str | None = None) -> Routine:
    doc = _parsed(node)
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [pair for pair in zip(positional, defaults, strict=True) if pair[0].arg not in ("self", "cls")]
    parts = [_parameter(one, default) for one, default in pairs]
    if arguments.vararg:
        parts.append("*" + _parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    keywords = list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    parts += [_parameter(one, default) for one, default in keywords]
    if arguments.kwarg:
        parts.append("**" + _parameter(arguments.kwarg, None))
    named = [*pairs, *keywords]
    every = [*named, *((one, None) for one in (arguments.vararg, arguments.kwarg) if one)]
    called = shown or node.name
    head, tail = f"{called}(", ")" if node.name == "__init__" else f") -> {_type(node.returns)}"
    line = head + ", ".join(parts) + tail
    return Routine(
        name=node.name,
        signature=line if len(line) <= 100 else head + "".join(f"\n    {part}," for part in parts) + "\n" + tail,
        prose=doc.prose,
        parameters=tuple(
            Value(
                one.arg,
                _type(one.annotation),
                ast.unparse(default) if default else None,
                doc.args.get(one.arg, ""),
                required=default is None and (one, default) in named,
            )
            for one, default in every
        ),
        raises=doc.raises,
        raised=frozenset(_raised(node)),
    )


def _parameter(node: ast.arg, default: ast.expr | None) -> str:
    return f"{node.arg}: {_type(node.annotation)}" + (f" = {ast.unparse(default)}" if default else "")


def _raised(node: Function) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call):
            name = ast.unparse(one.exc.func)
            if not name.startswith("_"):
                yield name


def _type(node: ast.expr | None) -> str:
    return ast.unparse(node).replace("'", "") if node is not None else ""


def _parsed(node: ast.ClassDef | Function | ast.Module) -> _Docstring:
    text = ast.get_docstring(node) or ""
    prose, *sections = re.split(r"^(Args|Raises):\n", text, flags=re.MULTILINE)
    found = _Docstring(prose.strip())
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", body, re.MULTILINE)
        into = found.args if title == "Args" else found.raises
        into |= {name: " ".join(line.strip() for line in meaning.splitlines()) for name, meaning in entries}
    return found


# Writing.


def _index(every: list[Page]) -> str:
    lines = ["# API", "", "A page for each public name, made from the docstrings by `make docs`."]
    for package in PACKAGES:
        module = _parsed(_module(package)).prose
        lines += ["", f"## {package}", "", _sentence(module), "", "| name | what it is |", "| --- | --- |"]
        lines += [
            f"| [`{page.name}`]({page.name}.md) | {_cell(page.summary)} |" for page in every if page.package == package
        ]
    return "\n".join(lines) + "\n"


def _markdown(page: Page, known: set[str]) -> str:
    parts = [f"# {page.name}", f"`from {page.package} import {page.name}`", page.prose]
    if page.constructor is not None:
        parts += _body(page.constructor, known)
    if page.values:
        title = "Members" if _is_enumeration(page) else "Attributes" if page.constructor else "Fields"
        parts.append(_table(title, page.values, known))
    if page.properties:
        parts.append(_table("Properties", page.properties, known))
    if page.kind == "function":
        parts += _body(page.routines[0], known, prose=False)
    elif page.routines:
        parts.append("## Functions" if page.kind == "module" else "## Methods")
        for one in page.routines:
            parts += [f"### {one.name}", *_body(one, known)]
    # The pages are a folder below the others.
    return re.sub(r"(?<![\w/`])docs/(\w[\w-]*\.md)", r"[docs/\1](../\1)", "\n\n".join(parts)) + "\n"


def _body(routine: Routine, known: set[str], *, prose: bool = True) -> list[str]:
    parts = [f"```python\n{routine.signature}\n```"]
    if prose and routine.prose:
        parts.append(routine.prose)
    if routine.parameters and any(one.meaning for one in routine.parameters):
        lines = ["| argument | type | meaning |", "| --- | --- | --- |"]
        lines += [_row(one, known) for one in routine.parameters]
        parts.append("\n".join(lines))
    if routine.raises:
        parts.append("\n".join(f"- raises `{name}`: {meaning}" for name, meaning in routine.raises.items()))
    return parts


def _is_enumeration(page: Page) -> bool:
    return all(one.name.isupper() for one in page.values)


def _table(title: str, values: tuple[Value, ...], known: set[str]) -> str:
    typed = any(one.type for one in values)
    lines = [f"## {title}", "", "| name | type | meaning |" if typed else "| name | meaning |"]
    lines.append("| --- | --- | --- |" if typed else "| --- | --- |")
    lines += [_row(one, known, typed=typed) for one in values]
    return "\n".join(lines)


def _row(one: Value, known: set[str], *, typed: bool = True) -> str:
    needed = " (required)" if one.required else ""
    type_ = f" {_linked(one.type, known) if one.type else ''} |" if typed else ""
    return f"| `{one.name}`{needed} |{type_} {_cell(one.meaning)} |"


def _linked(type_: str, known: set[str]) -> str:
    """A type for a table: without `None`, whose meaning is told in words, and with links to our own."""
    parts = [one for one in re.split(r" \| (?![^\[]*\])", type_) if one != "None"]
    shown = []
    for one in parts:
        code = f"`{one}`".replace("|", r"\|")
        shown.append(f"[{code}]({one}.md)" if one in known else code)
    return " or ".join(shown)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0].replace("\n", " ").rstrip(".:")


def main() -> None:
    """Write the pages, and take away what belongs to no name any more."""
    wanted = files()
    PAGES.mkdir(exist_ok=True)
    for path in PAGES.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text)


if __name__ == "__main__":
    main()
