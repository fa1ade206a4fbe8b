"""Checks the cloud assembly of a combination. It reads files only, so the CDK that wrote them does not matter."""

import json
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from tests.synth.build import NO_ACTION, Json, rules_in
from tests.synth.combinations.combination import Combination
from tests.synth.combinations.synthesis import REFUSAL

LEAST_ACTIONS = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "sqs:SendMessage",
}
"""Actions without which no consumer works."""
MAX_BODY, MAX_RESOURCES = 1_000_000, 500
"""CloudFormation's limits of a template in bytes and resources (user guide, "CloudFormation quotas")."""


def problems(item: Combination, folder: Path) -> Iterator[str]:
    """Compare an assembly with its combination.

    Args:
        item: the combination.
        folder: its cloud assembly, or the refusal.

    Yields:
        a sentence for each difference.

    """
    if (folder / REFUSAL).exists():
        message = json.loads((folder / REFUSAL).read_text())
        if item.refused is None or set(rules_in(message)) != {item.refused}:
            yield f"is refused: {message}"
        return
    if item.refused is not None:
        yield f"is not refused by {item.refused}"
        return
    templates = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*.template.json"))}
    for path, template in templates.items():
        yield from (f"{path.name}: {text}" for text in _template_problems(path, template))
    yield from _stack_cycles(folder)
    if not any(item.contains in path.read_text() for path in templates):
        yield f"has no {item.contains}"
    consumers = [mapping for template in templates.values() for mapping in _consumers(template)]
    if item.consumers is not None and len(consumers) != item.consumers:
        yield f"has {len(consumers)} consumers: expected {item.consumers}"
    if not consumers:
        yield "has no consumer"
    if item.consumers is not None:
        deliveries = {name for template in templates.values() for name in _deliveries(template)}
        if deliveries != item.deliveries:
            yield f"delivers by {sorted(deliveries)}: expected {sorted(item.deliveries)}"
        if (warned := _warned(folder)) != item.warned:
            yield f"warns by {sorted(warned)}: expected {sorted(item.warned)}"


def _template_problems(path: Path, template: Json) -> Iterator[str]:
    resources: Json = template.get("Resources", {})
    graph = {name: set(_references(resource)) & set(resources) - {name} for name, resource in resources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"has a cycle: {' > '.join(map(str, error.args[1]))}"
    if len(resources) > MAX_RESOURCES:
        yield f"has {len(resources)} resources"
    if path.stat().st_size > MAX_BODY:
        yield f"has {path.stat().st_size} bytes"
    for mapping in _consumers(template):
        function = mapping["FunctionName"].get("Ref")
        if function not in resources:
            yield "a mapping has no function in its template"
            continue
        role = resources[function]["Properties"]["Role"]["Fn::GetAtt"][0]
        if missing := LEAST_ACTIONS - set(_actions_of(role, resources)):
            yield f"the role {role} lacks {sorted(missing)}"


def _consumers(template: Json) -> Iterator[Json]:
    """The mappings of consumers: those of queues whose function has a pipeline's name."""
    resources = template.get("Resources", {})
    for mapping in _of_type(template, "AWS::Lambda::EventSourceMapping"):
        function = (
            resources.get(mapping["FunctionName"].get("Ref"), {}) if isinstance(mapping["FunctionName"], dict) else {}
        )
        variables = function.get("Properties", {}).get("Environment", {}).get("Variables", {})
        if "INTAKE_PIPELINE_NAME" in variables and mapping.get("FunctionResponseTypes") == ["ReportBatchItemFailures"]:
            yield mapping


def _actions_of(role: str, resources: Json) -> Iterator[str]:
    for resource in resources.values():
        if resource["Type"] == "AWS::IAM::Policy" and {"Ref": role} in resource["Properties"]["Roles"]:
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                action = statement["Action"]
                yield from action if isinstance(action, list) else [action]


def _deliveries(template: Json) -> Iterator[str]:
    for rule in _of_type(template, "AWS::Events::Rule"):
        if "aws.s3" in rule.get("EventPattern", {}).get("source", ()):
            yield "EventBridge"
    for custom in _of_type(template, "Custom::S3BucketNotifications"):
        if "QueueConfigurations" in custom["NotificationConfiguration"]:
            yield "CDK"
    for bucket in _of_type(template, "AWS::S3::Bucket"):
        if "QueueConfigurations" in bucket.get("NotificationConfiguration", {}):
            yield "S3"


def _of_type(template: Json, type_: str) -> Iterator[Json]:
    for resource in template.get("Resources", {}).values():
        if resource["Type"] == type_:
            yield resource.get("Properties", {})


def _references(value: Any) -> Iterator[str]:
    """The logical IDs that a value needs."""
    match value:
        case {"Ref": str(name)}:
            yield name
        case {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case Mapping():
            depends = value.get("DependsOn", ())
            yield from [depends] if isinstance(depends, str) else (one for one in depends if isinstance(one, str))
            for inner in value.values():
                yield from _references(inner)
        case list():
            for inner in value:
                yield from _references(inner)


def _stack_cycles(folder: Path) -> Iterator[str]:
    for path in folder.rglob("manifest.json"):
        artifacts = json.loads(path.read_text()).get("artifacts", {})
        graph = {name: artifact.get("dependencies", ()) for name, artifact in artifacts.items()}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            yield f"has a cycle of stacks: {error.args[1]}"


def _warned(folder: Path) -> set[str]:
    """The rules whose warnings are in the assembly."""
    texts: Iterable[Path] = (path for path in folder.rglob("*.json") if ".template." not in path.name)
    return {rule for path in texts for rule in rules_in(path.read_text())} - {NO_ACTION}
