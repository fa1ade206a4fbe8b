"""Does a value fit an annotation? typeguard decides, as in CDK's own constructs.

Two things are ours. CDK's interfaces (`IBucket`) are protocols that typeguard does not check: a value must have their
members. And tokens, whose values are known at deployment, stand for numbers and texts.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from importlib import import_module
from importlib.metadata import version
from math import isfinite
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin

from aws_cdk import Token
from jsii._reference_map import InterfaceDynamicProxy
from typing_extensions import get_protocol_members, is_protocol

# Its two major versions have other names, so that mypy knows one of them only.
typeguard: Any = import_module("typeguard")
_WRONG_TYPE: tuple[type[Exception], ...]
if version("typeguard").startswith("2."):
    _WRONG_TYPE = (TypeError,)
    _SETTINGS: Mapping[str, Any] = {"argname": "value"}
else:  # Later releases of jsii allow it.
    _WRONG_TYPE = (typeguard.TypeCheckError,)
    _SETTINGS = {"collection_check_strategy": typeguard.CollectionCheckStrategy.ALL_ITEMS}


def accepts(annotation: Any, value: object) -> bool:
    """Whether an argument fits its annotation.

    A text is no sequence of texts, and a truth value is no number, although Python takes them as such.
    """
    kinds = alternatives(annotation)
    if _is_token(value, kinds):
        return True
    if isinstance(value, bool) and bool not in kinds and Any not in kinds:
        return False
    if isinstance(value, str) and not {str, Any} & set(kinds):
        kinds = tuple(kind for kind in kinds if get_origin(kind) is not Sequence)
    return any(_fits(_with_checked_interfaces(kind), value) for kind in kinds)


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _fits(annotation: Any, value: object) -> bool:
    if isinstance(value, Mapping):
        value = dict(value)
    try:
        typeguard.check_type(value=value, expected_type=annotation, **_SETTINGS)
    except _WRONG_TYPE:
        return False
    return True


def _is_token(value: object, kinds: Sequence[Any]) -> bool:
    """A float that stands for a whole number. Tokens of texts and lists are texts and lists."""
    # jsii's process ends at NaN and infinity, which are no JSON.
    return isinstance(value, float) and isfinite(value) and int in kinds and Token.is_unresolved(value)


def _with_checked_interfaces(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        return reduce(or_, map(_with_checked_interfaces, get_args(annotation)))
    if isinstance(annotation, type) and is_protocol(annotation):
        return _interface(annotation)
    if arguments := get_args(annotation):
        # typeguard 2 looks into a dict, and not into a Mapping.
        origin: Any = dict if get_origin(annotation) is Mapping else get_origin(annotation)
        return origin[tuple(_with_checked_interfaces(part) for part in arguments)]
    return annotation


@cache
def _interface(protocol: type) -> type:
    """A class of which each value with the protocol's members is an instance."""
    members = get_protocol_members(protocol)
    missing = object()

    class Members(type):
        def __instancecheck__(cls, value: object) -> bool:
            # Objects that CDK's functions return may know their members only in Node.js.
            if isinstance(value, InterfaceDynamicProxy):
                return True
            if isinstance(value, type):
                return False
            return all(inspect.getattr_static(value, name, missing) is not missing for name in members)

    return Members(protocol.__name__, (), {})
