"""A hook of the documentation site: warns of public names, arguments and defaults that no docstring explains.

A strict build fails on a warning. The sources are parsed, not imported.
"""

import logging
from collections.abc import Iterator
from typing import Any

import griffe

PACKAGES = ("cdk_intake_ledger", "intake_ledger", "cdk_intake_ledger.testing")
_ROOTS = ("cdk_intake_ledger", "intake_ledger", "intake_ledger_testing")
"""Packages that define the public names."""
_UNEXPLAINED = (griffe.ParameterKind.var_positional, griffe.ParameterKind.var_keyword)

log = logging.getLogger("mkdocs.hooks.docstrings")


def on_pre_build(config: Any) -> None:
    """Check each public name."""
    paths = config.plugins["mkdocstrings"].config.handlers["python"]["paths"]
    loader = griffe.GriffeLoader(search_paths=paths, docstring_parser="google")
    for package in _ROOTS:
        loader.load(package)
    public = [f"{package}.{name}" for package in PACKAGES for name in loader.modules_collection[package].exports]
    for path in public:
        for gap in gaps(loader.modules_collection[path], path):
            log.warning(gap)


def gaps(found: Any, path: str) -> Iterator[str]:
    """Say which parts of a name and its members have no explanation. Members of foreign base classes are left out."""
    found = found.final_target if found.is_alias else found
    if found.is_function:
        yield from _gaps_of_arguments(found, path)
    if found.name != "__init__" and not found.has_docstring and not _is_member_of_enum(found):
        yield f"{path} has no docstring"
    if found.is_attribute and "dataclass" in found.parent.labels and found.value is not None:
        yield from _unless_told("omitted" in getattr(found.docstring, "value", ""), path, found.name)
    if found.is_module or found.is_class:
        members = found.all_members if found.is_class else found.members
        for name, member in members.items():
            ours = not member.is_alias or (found.is_class and member.target_path.split(".")[0] in _ROOTS)
            if ours and (name == "__init__" or not name.startswith("_")):
                yield from gaps(member, f"{path}.{name}")


def _gaps_of_arguments(function: Any, path: str) -> Iterator[str]:
    if function.name == "__init__" and "dataclass" in function.parent.labels:
        return  # its fields have docstrings
    sections = function.docstring.parsed if function.docstring else []
    told = {
        one.name.lstrip("*"): one.description
        for section in sections
        if section.kind is griffe.DocstringSectionKind.parameters
        for one in section.value
    }
    for one in function.parameters:
        if one.name in ("self", "cls") or one.kind is griffe.ParameterKind.var_keyword:
            continue
        if one.name not in told:
            yield f"{path} does not explain {one.name}"
        elif one.default is not None and one.kind not in _UNEXPLAINED:
            yield from _unless_told("omitted" in told[one.name], path, one.name)


def _unless_told(told: bool, path: str, name: str) -> Iterator[str]:
    if not told:
        yield f"{path} does not say what happens when {name} is omitted"


def _is_member_of_enum(found: Any) -> bool:
    """Tell whether it is a member of an enumeration. Its value may be its explanation."""
    return found.is_attribute and found.parent.is_class and any("Enum" in str(base) for base in found.parent.bases)
