"""Texts of values and annotations for messages."""

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_origin

from constructs import Construct
from typing_extensions import get_protocol_members, is_protocol

from cdk_intake_ledger.checks.arguments.annotations import alternatives

LONGEST = 80
"""Characters of a value."""
NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", NoneType: "None"}


def value_text(value: object) -> str:
    """A value in a message: its Python form, or type and path of a construct."""
    if isinstance(value, Construct):
        return f"the {type_text(type(value))} {value.node.path}"
    if isinstance(value, type):
        return f"the class {type_text(value)}"
    if isinstance(value, list | tuple):
        return _short(f"[{', '.join(map(value_text, value))}]")
    text = repr(value)
    if " object at 0x" in text or text.startswith("<function"):
        name = getattr(value, "__qualname__", "")
        return f"the function {name}" if name else f"an object of the type {type_text(type(value))}"
    return _short(text)


def expected_text(annotation: Any) -> str:
    """An annotation in a message: `a Duration`, `an IBucket or a text`. None is not named.

    Nor is a class beside its interface. Annotations have both, because pyright finds that some classes of the CDK do
    not implement their interfaces: parameters have other names.
    """
    every = [kind for kind in alternatives(annotation) if kind is not NoneType] or [NoneType]
    kinds = [kind for kind in every if not any(_implements(kind, other) for other in every)]
    return " or ".join(dict.fromkeys(map(_one, kinds)))


def type_text(kind: type) -> str:
    """The name of a class, with its CDK module: `aws_sqs.Queue`."""
    package, _, module = kind.__module__.rpartition(".")
    return f"{module}.{kind.__name__}" if package == "aws_cdk" else kind.__name__


def _implements(kind: Any, interface: Any) -> bool:
    if kind is interface or not (isinstance(kind, type) and isinstance(interface, type) and is_protocol(interface)):
        return False
    return all(hasattr(kind, name) for name in get_protocol_members(interface))


def _one(kind: Any) -> str:
    if kind in NAMES:
        return NAMES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Sequence:
        return f"a list, each {expected_text(arguments[0])}" if len(arguments) == 1 else "a list"
    if origin is Mapping:
        return f"a dict, each key {_one(arguments[0])} and each value {_one(arguments[1])}"
    name = type_text(kind) if isinstance(kind, type) else str(kind)
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
