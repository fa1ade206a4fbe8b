"""The decorator that checks the arguments of a class's constructor and public methods."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from typing import Any, get_type_hints

from constructs import Construct

from cdk_intake_ledger.checks.arguments.annotations import accepts
from cdk_intake_ledger.checks.arguments.conversion import convert
from cdk_intake_ledger.checks.arguments.fixes import right_argument
from cdk_intake_ledger.checks.arguments.wording import expected_text, value_text
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.checks.rules.argument_rules import ARGUMENT_TYPE


def check_arguments[C: type](cls: C) -> C:
    """Decorate a public class, so that a wrong argument ends the synthesis with a clear error.

    The constructor and each public method check their arguments from their annotations, before they run. A `timedelta`
    becomes a `Duration`, and the name of an enum's member becomes the member.

    Raises:
        IntakeConfigurationError: at the call. It lists all wrong arguments with their values and fixes.

    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(_checked(cls, member.__func__)))
        elif inspect.isfunction(member):
            setattr(cls, name, _checked(cls, member))
    return cls


def _checked(cls: type, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    # CDK's constructs check the options that `**options` passes on.
    named = [one.name for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]

    @cache
    def annotations() -> Mapping[str, Any]:
        hints = get_type_hints(inspect.unwrap(function), localns={cls.__name__: cls})
        return {name: hints[name] for name in named if name in hints}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*args, **options)
        except TypeError:
            # Python's own error says which argument is missing or unknown.
            return function(*args, **options)
        for name, value in bound.arguments.items():
            if name in annotations():
                bound.arguments[name] = convert(value, annotations()[name])
        if problems := list(_problems(bound.arguments, annotations())):
            refuse(_place(cls, function, bound.arguments), problems)
        return function(*bound.args, **bound.kwargs)

    return call


def _problems(arguments: Mapping[str, Any], annotations: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in arguments.items():
        if name in annotations and not accepts(annotations[name], value):
            yield ARGUMENT_TYPE.problem(
                name=name,
                value=value_text(value),
                expected=expected_text(annotations[name]),
                right=right_argument(annotations[name], value),
            )


def _place(cls: type, function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """The path of the construct, or the call if it has none."""
    scope, construct = arguments.get("scope"), arguments.get("self")
    if function.__name__ == "__init__":
        if isinstance(scope, Construct) and isinstance(arguments.get("id"), str):
            return "/".join(part for part in (scope.node.path, arguments["id"]) if part)
        return cls.__name__
    if isinstance(construct, Construct):
        return f"{construct.node.path}.{function.__name__}"
    return f"{cls.__name__}.{function.__name__}"
