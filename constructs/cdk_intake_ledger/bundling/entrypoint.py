"""Checks at synthesis that a processor's entry point exists. It reads the source, and does not import or run it."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

NO_COMMITS = frozenset({
    "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "set", "tuple",
    "Awaitable", "Coroutine", "Dict", "Generator", "Iterable", "Iterator", "List", "Mapping", "Sequence", "Set",
    "Tuple",
})  # fmt: skip
"""Names of types that a processor cannot return."""


def form_problem(entrypoint: str) -> str | None:
    """The problem with the form of an entry point, or None."""
    if FORM.fullmatch(entrypoint):
        return None
    return f"entrypoint {entrypoint!r} is not of the form 'module:function', such as 'invoices:process'"


def entrypoint_problems(directory: Path, entrypoint: str) -> Iterator[str]:
    """Reasons why the consumer could not call `module:function` if `directory` were its code."""
    if wrong := form_problem(entrypoint):
        yield wrong
        return
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        yield (
            f"processor path '{directory}' {state} (looked from '{Path.cwd()}'): give the directory that holds the "
            "processor's module"
        )
        return
    if (directory / "intake_ledger").exists() or (directory / "intake_ledger.py").exists():
        yield (
            f"processor path '{directory}' has an intake_ledger of its own, which would hide the layer's: leave it "
            "out of the asset"
        )
    module, function = entrypoint.split(":")
    source = _source_of(directory, module)
    if source is None:
        modules = _choices(_modules_in(directory))
        yield (
            f"processor module {module!r} does not exist in '{directory}', where there is {modules}: name one of those "
            "in the entrypoint"
        )
        return
    try:
        tree = ast.parse(source.read_bytes(), filename=str(source))
    except (SyntaxError, ValueError) as error:
        where = getattr(error, "lineno", None)
        yield (
            f"processor module '{source}' is not valid Python{f', line {where}' if where else ''}: "
            f"{getattr(error, 'msg', error)}"
        )
        return
    yield from _function_problems(tree, source, function)


def _source_of(directory: Path, module: str) -> Path | None:
    base = directory.joinpath(*module.split("."))
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


def _modules_in(directory: Path) -> list[str]:
    modules = {path.stem for path in directory.glob("*.py")} | {
        path.parent.name for path in directory.glob("*/__init__.py")
    }
    return sorted(modules - {"__init__"})


def _function_problems(tree: ast.Module, source: Path, name: str) -> Iterator[str]:
    definitions: dict[str, ast.stmt] = {}
    for statement in _top_level(tree):
        for bound in _names_bound_by(statement):
            definitions[bound] = statement
    if name not in definitions:
        if "*" in definitions:
            return  # `from elsewhere import *` may define it
        functions = [key for key, value in definitions.items() if isinstance(value, ast.FunctionDef) and key[0] != "_"]
        yield (
            f"processor function {name!r} does not exist in '{source}', where there is {_choices(functions)}: name one "
            "of those in the entrypoint"
        )
        return
    match definitions[name]:
        case ast.AsyncFunctionDef():
            yield f"processor function {name!r} in '{source}' is async: a plain function is needed"
        case ast.ClassDef():
            yield f"processor {name!r} in '{source}' is a class: a plain function is needed"
        case ast.FunctionDef(args=arguments, decorator_list=[]) if not _takes_one(arguments):
            yield (
                f"processor function {name!r} in '{source}' cannot be called with one argument: it is given the "
                "change, and nothing else"
            )
        case ast.FunctionDef(decorator_list=[]) as function:
            yield from _return_problems(function, source)


def _top_level(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements that run at import, including those inside `if` and `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _top_level(child)


def _names_bound_by(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _return_problems(function: ast.FunctionDef, source: Path) -> Iterator[str]:
    where = f"processor function {function.name!r} in '{source}'"
    if _is_generator(function):
        yield f"{where} is a generator: calling it does nothing, take the `yield` out"
    elif function.returns is not None and (wrong := _wrong_types(function.returns)):
        yield (
            f"{where} returns {ast.unparse(function.returns)}: the consumer would reject each change after its effect, "
            f"since {_choices(wrong)} is no commit, return a Commit, a text or None"
        )


def _is_generator(function: ast.FunctionDef) -> bool:
    inner = list(ast.iter_child_nodes(function))
    while inner:
        node = inner.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            inner += ast.iter_child_nodes(node)
    return False


def _wrong_types(annotation: ast.expr) -> list[str]:
    """Types in an annotation that cannot be a commit. An unknown name can be an alias or `Any`."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return [*_wrong_types(left), *_wrong_types(right)]
        case ast.Constant(value=str(text)):
            try:
                return _wrong_types(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return []
        case ast.Subscript(value=of, slice=inner) if _name_of(of) in {"Optional", "Union", "Annotated"}:
            members = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return [
                name
                for member in (members[:1] if _name_of(of) == "Annotated" else members)
                for name in _wrong_types(member)
            ]
        case ast.Subscript(value=of):
            return _wrong_types(of)
    name = _name_of(annotation)
    return [name] if name in NO_COMMITS else []


def _name_of(annotation: ast.expr) -> str:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _takes_one(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    has_room = positional >= 1 or arguments.vararg is not None
    return has_room and required <= 1 and None not in arguments.kw_defaults


def _choices(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:8]) + (" ..." if len(names) > 8 else "") if names else "none at all"
