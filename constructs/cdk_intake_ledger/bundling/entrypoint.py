"""Checks at synthesis that a processor's entry point exists. It reads the source, and does not run it."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.processor_rules import (
    ENTRYPOINT_FORMAT,
    FUNCTION_ARGUMENTS,
    FUNCTION_IS_GENERATOR,
    FUNCTION_KIND,
    FUNCTION_MISSING,
    FUNCTION_RETURN_TYPE,
    MODULE_MISSING,
    MODULE_SYNTAX,
    PROCESSOR_PATH,
    RUNTIME_HIDDEN,
)

FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

NO_COMMITS = frozenset({
    "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "set", "tuple",
    "Awaitable", "Coroutine", "Dict", "Generator", "Iterable", "Iterator", "List", "Mapping", "Sequence", "Set",
    "Tuple",
})  # fmt: skip
"""Names of types that a processor cannot return."""


_MOST_IMPORTS = 5
"""Imports that are followed from the module of the entry point to the function."""

LITERALS = (ast.Constant, ast.JoinedStr, ast.Dict, ast.List, ast.Set, ast.Tuple)
"""Values that are not callable."""


def form_problem(entrypoint: str) -> Problem | None:
    """The problem with the form of an entry point, or None."""
    if FORM.fullmatch(entrypoint):
        return None
    return ENTRYPOINT_FORMAT.problem(entrypoint=entrypoint)


def entrypoint_problems(directory: Path, entrypoint: str, *, returns_commit: bool = True) -> Iterator[Problem]:
    """Reasons why the consumer could not call `module:function` if `directory` were its code.

    With `returns_commit`, the annotation of the return value must be that of a commit.
    """
    if wrong := form_problem(entrypoint):
        yield wrong
        return
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        yield PROCESSOR_PATH.problem(path=directory, state=state, current=Path.cwd())
        return
    if (directory / "intake_ledger").exists() or (directory / "intake_ledger.py").exists():
        yield RUNTIME_HIDDEN.problem(path=directory, source="it")
    module, function = entrypoint.split(":")
    source = _source_of(directory, module)
    if source is None:
        yield MODULE_MISSING.problem(module=module, path=directory, found=_choices(_modules_in(directory)))
        return
    try:
        tree = ast.parse(source.read_bytes(), filename=str(source))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        yield MODULE_SYNTAX.problem(source=source, where=where, error=getattr(error, "msg", error))
        return
    for problem in _function_problems(directory, tree, source, function):
        if returns_commit or problem.rule is not FUNCTION_RETURN_TYPE:
            yield problem


def argument_type(directory: Path, entrypoint: str) -> str | None:
    """The name of the type in the annotation of the processor's argument, such as `ObjectChange`.

    Args:
        directory: the folder with the processor's modules.
        entrypoint: `module:function`.

    Returns:
        the name. None if there is no annotation, it has several types, or the function is not in the folder.

    """
    if form_problem(entrypoint):
        return None
    module, name = entrypoint.split(":")
    tree = _tree_of(_source_of(directory, module))
    found = _imported(directory, _definitions(tree).get(name), name) if tree is not None else None
    if not isinstance(found, ast.FunctionDef) or found.decorator_list:
        return None
    first = next(iter((*found.args.posonlyargs, *found.args.args)), None)
    annotation = first.annotation if first is not None else None
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2]
    return _name_of(annotation) or None if annotation is not None else None


def _source_of(directory: Path, module: str) -> Path | None:
    base = directory.joinpath(*module.split("."))
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


def _tree_of(source: Path | None) -> ast.Module | None:
    """The syntax tree of a module; None if it is not there, or not valid."""
    try:
        return ast.parse(source.read_bytes()) if source is not None else None
    except (SyntaxError, ValueError):
        return None


def _original(statement: ast.ImportFrom, name: str) -> str:
    """The name in the module of an import `from`, for a name that it binds."""
    return next((alias.name for alias in statement.names if (alias.asname or alias.name) == name), name)


def _modules_in(directory: Path) -> list[str]:
    modules = {path.stem for path in directory.glob("*.py")} | {
        path.parent.name for path in directory.glob("*/__init__.py")
    }
    return sorted(modules - {"__init__"})


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """The statements of a module that bind its names. The last one counts."""
    return {bound: statement for statement in _top_level(tree) for bound in _names_bound_by(statement)}


def _imported(directory: Path, statement: ast.stmt | None, name: str) -> ast.stmt | None:
    """The definition behind an import from another module of the folder. Other statements stay as they are."""
    for _ in range(_MOST_IMPORTS):
        if not isinstance(statement, ast.ImportFrom) or statement.level or statement.module is None:
            break
        source = _source_of(directory, statement.module)
        if source is None:
            break
        tree, name = _tree_of(source), _original(statement, name)
        statement = _definitions(tree).get(name) if tree is not None else None
    return statement


def _function_problems(directory: Path, tree: ast.Module, source: Path, name: str) -> Iterator[Problem]:
    definitions = _definitions(tree)
    if name not in definitions:
        if "*" in definitions:
            return  # `from elsewhere import *` may define it
        functions = [key for key, value in definitions.items() if isinstance(value, ast.FunctionDef) and key[0] != "_"]
        yield FUNCTION_MISSING.problem(function=name, source=source, found=_choices(functions))
        return
    statement = _imported(directory, definitions[name], name)
    if statement is not None and (kind := _wrong_kind(statement, name)):
        yield FUNCTION_KIND.problem(function=name, source=source, kind=kind)
    match statement:
        case ast.FunctionDef(args=arguments, decorator_list=[]) | ast.Assign(value=ast.Lambda(args=arguments)) if (
            not _takes_one(arguments)
        ):
            yield FUNCTION_ARGUMENTS.problem(function=name, source=source)
        case ast.FunctionDef(decorator_list=[]) as function:
            yield from _return_problems(function, source)


def _wrong_kind(statement: ast.stmt, name: str) -> str:
    """The kind of a definition that is not a plain function; an empty text if it is one, or may be one."""
    match statement:
        case ast.AsyncFunctionDef():
            return "async"
        case ast.ClassDef():
            return "a class"
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) if isinstance(value, LITERALS):
            return "a value"
        case ast.Import():
            return "a module"
        case ast.ImportFrom():
            return _standard_kind(statement, name)
    return ""


def _standard_kind(statement: ast.ImportFrom, name: str) -> str:
    """`a class` or `a module` if a name is imported from Python's library and is one; an empty text otherwise."""
    module = statement.module or ""
    if statement.level or module.partition(".")[0] not in sys.stdlib_module_names:
        return ""
    try:
        found = getattr(import_module(module), _original(statement, name), None)
    except ImportError:
        return ""
    return "a class" if isinstance(found, type) else "a module" if isinstance(found, ModuleType) else ""


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


def _return_problems(function: ast.FunctionDef, source: Path) -> Iterator[Problem]:
    if _is_generator(function):
        yield FUNCTION_IS_GENERATOR.problem(function=function.name, source=source)
    elif function.returns is not None and (wrong := _wrong_types(function.returns)):
        annotation = ast.unparse(function.returns)
        yield FUNCTION_RETURN_TYPE.problem(
            function=function.name, source=source, annotation=annotation, types=_choices(wrong)
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
