"""Stacks and templates for the tests of synthesis."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from aws_cdk import App, Environment, Stack, Stage, Token
from aws_cdk.assertions import Template

from cdk_intake_ledger import IntakeConfigurationError, IntakePipeline, Processor
from cdk_intake_ledger.checks.registry import ID_PREFIX

Json = dict[str, Any]

PROCESSORS = Path(__file__).parent / "processors"
NO_ACTION = "alarms-without-action"
"""The rule of a warning of most stacks of tests."""


def new_app(**options: Any) -> App:
    """An app without CDK's validation of the template, which takes 7 seconds. Two tests enable it."""
    return App(builtin_cloud_formation_validation=False, **options)


def new_stack(name: str = "Stack", app: App | None = None, env: Environment | None = None) -> Stack:
    return Stack(app or new_app(), name, env=env)


def processor(**options: Any) -> Processor:
    return Processor.from_asset(PROCESSORS / "orders", entrypoint="orders:process", **options)


def template_of(stack: Stack) -> Json:
    """The synthesised template. A dependency cycle is an error."""
    return dict(Template.from_stack(stack).to_json())


def template_with(**options: Any) -> Json:
    """The template of a pipeline `Orders` with these options, which are hashable. All tests share the pipeline."""
    return dict(json.loads(_text_with(**options)))


@cache
def _text_with(**options: Any) -> str:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), **options)
    return json.dumps(template_of(stack))


def resources(template: Json, type_: str, path: str = "") -> Json:
    """The resources of a type whose logical id begins with `path`."""
    items = template["Resources"].items()
    return {name: resource for name, resource in items if resource["Type"] == type_ and name.startswith(path)}


def only(template: Json, type_: str, path: str = "") -> Json:
    """The properties of the only resource of a type below a path."""
    (resource,) = resources(template, type_, path).values()
    return dict(resource["Properties"])


def statements(template: Json, path: str = "", type_: str = "AWS::IAM::Policy") -> Iterator[Json]:
    for policy in resources(template, type_, path).values():
        yield from policy["Properties"]["PolicyDocument"]["Statement"]


def actions(statement: Json) -> list[str]:
    action = statement["Action"]
    return action if isinstance(action, list) else [action]


def variables(template: Json, path: str) -> Json:
    """A function's environment, with readable texts instead of references."""
    environment = only(template, "AWS::Lambda::Function", path)["Environment"]["Variables"]
    return {name: value if isinstance(value, str) else "reference" for name, value in environment.items()}


def later() -> Any:
    """A number that CDK knows only at deployment."""
    return Token.as_number({"Ref": "Later"})


def all_warnings(stack: Stack) -> list[str]:
    """Warnings of a stack, as the cloud assembly has them. The CDK's process would be asked thrice for each message."""
    home = Stage.of(stack)
    assert home is not None
    folder = Path(home.synth().directory)
    path = f"/{stack.node.path}/"
    written = (folder / "manifest.json").stat().st_mtime_ns
    return [text for place, text in _warnings_of(folder, written) if place.startswith(path)]


@lru_cache(maxsize=1)
def _warnings_of(folder: Path, written: int) -> list[tuple[str, str]]:
    """Warnings of a cloud assembly with the paths of their constructs. A test asks for each of a hundred stacks.

    The time tells a later synthesis into the same folder apart.
    """
    artifacts = json.loads((folder / "manifest.json").read_bytes())["artifacts"].values()
    return [
        (f"{place}/", str(entry["data"]))
        for artifact in artifacts
        for place, entries in _messages(folder, artifact).items()
        for entry in entries
        if entry["type"] == "aws:cdk:warning"
    ]


def _messages(folder: Path, artifact: Json) -> Json:
    """The metadata of an artifact by paths of constructs. The oldest CDK has them in the manifest."""
    file = artifact.get("additionalMetadataFile")
    return dict(json.loads((folder / file).read_bytes()) if file else artifact.get("metadata", {}))


def warnings(stack: Stack) -> list[str]:
    """All warnings but that of alarms without an action, which most tests have."""
    return [text for text in all_warnings(stack) if NO_ACTION not in rules_in(text)]


def rules_in(text: str) -> list[str]:
    """The IDs of the rules in messages."""
    return re.findall(rf"\[{ID_PREFIX}:([a-z0-9-]+)\]", text)


@contextmanager
def refused(rule: str, text: str = "") -> Iterator[None]:
    """Expect an error of this rule, when the pipeline is created or at synthesis, with a text in its message.

    It does not use pytest, which the environment of the oldest CDK does not have.
    """
    message = ""
    try:
        yield
    except (IntakeConfigurationError, RuntimeError) as error:
        message = str(error)
    assert rule in rules_in(message), message or f"{rule} refused nothing"
    assert re.search(text, message), message


def warned(stack: Stack, rule: str) -> list[str]:
    """The warnings of a rule, after synthesis."""
    return [text for text in all_warnings(stack) if rule in rules_in(text)]
