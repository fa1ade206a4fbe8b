"""Fixed names of pipelines and ledgers, and the logical IDs that follow from them.

Tags name the pipeline of a bucket, a table and queues. `intake-ledger status` finds retained resources by these tags.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jsii
from aws_cdk import Aspects, CfnElement, CfnResource, IAspect, Resource, Stack, Stage, Tags, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IConstruct

from cdk_intake_ledger.checks.limits import MAX_NAME
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import WARNING_PREFIX, warn
from cdk_intake_ledger.checks.rules.ledger_rules import (
    NAME_FORMAT,
    NAME_IN_USE,
    NAME_IS_TOKEN,
    PIPELINE_NAME_ON_LEDGER,
    PIPELINE_NAME_TWICE,
)
from cdk_intake_ledger.resources.cloudformation import arn_identity
from intake_ledger.protocol.settings import PIPELINE_TAG

_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")
_MAX_READABLE = 240
"""Characters before the hash. CloudFormation allows 255 in all."""
_NOT_SHOWN = ("Default", "Resource")
"""CDK also omits these parts of a path in its logical IDs."""
_PATH_METADATA = "aws:cdk:path"

PIPELINES = f"{WARNING_PREFIX}:pipelines"
"""Metadata of the app: name, path, environment, stack and table of each pipeline with a fixed name."""
LEDGERS = f"{WARNING_PREFIX}:ledgers"
"""Metadata of the app: name, path and stack of each ledger with a fixed name."""


_TAGGED = ["AWS::DynamoDB::Table", "AWS::Lambda::Function", "AWS::S3::Bucket", "AWS::SQS::Queue"]


class FixedIds:
    """Logical IDs from a fixed name and the place of a construct below it, instead of its path in the app.

    The path in a resource's metadata also follows from the name, so that `cdk diff` stays empty.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._done: set[str] = set()

    def fix(self, root: Construct, *place: str) -> None:
        """Fix the IDs of all elements below a construct: existing elements now, later elements at synthesis.

        Args:
            root: the construct.
            place: its place below the name. It is empty for the construct that has the name.

        """
        for element in root.node.find_all():
            self.fix_one(element, root.node.path, place)
        Aspects.of(root).add(_Late(self, root.node.path, place))

    def fix_one(self, element: IConstruct, root: str, place: tuple[str, ...]) -> None:
        """Fix the ID of an element once. An ID that is set later stays.

        Args:
            element: any construct.
            root: the path of the construct that was given to `fix`.
            place: the place that was given to `fix`.

        """
        if not isinstance(element, CfnElement) or (path := element.node.path) in self._done:
            return
        self._done.add(path)
        fixed = (self._name, *place, *path.removeprefix(root).strip("/").split("/"))
        element.override_logical_id(_logical_id(fixed))
        if not isinstance(element, CfnResource):
            return
        if element.get_metadata(_PATH_METADATA) is not None:
            element.add_metadata(_PATH_METADATA, "/".join((Stack.of(element).node.path, *fixed)))
        if isinstance(element, ec2.CfnSecurityGroup):
            # CDK writes the path into the description, and another description replaces the security group.
            element.group_description = f"Intake ledger: {'/'.join(fixed)}"


@jsii.implements(IAspect)
class _Late:
    """Fixes the IDs of elements that are added later, for example of a permission by a grant."""

    def __init__(self, ids: FixedIds, root: str, place: tuple[str, ...]) -> None:
        self._ids, self._root, self._place = ids, root, place

    def visit(self, node: IConstruct) -> None:
        self._ids.fix_one(node, self._root, self._place)


def _logical_id(path: tuple[str, ...]) -> str:
    """The letters and digits of the path, and a hash of the whole path that differs from all hashes of CDK."""
    readable = "".join(re.sub("[^A-Za-z0-9]", "", one) for one in path if one not in _NOT_SHOWN)
    digest = hashlib.sha256("/".join(("intake-ledger:", *path)).encode()).hexdigest()
    return readable[:_MAX_READABLE] + digest[:8].upper()


def _text_problems(option: str, name: str) -> Iterator[Problem]:
    if Token.is_unresolved(name):
        yield NAME_IS_TOKEN.problem(option=option)
    elif len(name) > MAX_NAME or not _NAME.fullmatch(name):
        yield NAME_FORMAT.problem(option=option, name=name)


def ledger_name_problems(scope: Construct, name: str) -> Iterator[Problem]:
    """Find reasons why a ledger cannot have a fixed name, and reserve the name in the stack.

    Args:
        scope: the ledger.
        name: the name.

    """
    yield from _text_problems("ledger_name", name)
    root, stack = scope.node.root.node, Stack.of(scope).node.path
    for entry in root.metadata:
        if entry.type == LEDGERS and entry.data[:2] == [name, stack]:
            yield NAME_IN_USE.problem(option="ledger_name", name=name, other=entry.data[2])
    root.add_metadata(LEDGERS, [name, stack, scope.node.path])


def pipeline_name_problems(scope: Construct, name: str, table: dynamodb.ITable | None) -> Iterator[Problem]:
    """Find reasons why a pipeline cannot have a fixed name: its format, or another pipeline of the app.

    Args:
        scope: the pipeline.
        name: the name.
        table: the table of an existing ledger, or None.

    """
    yield from (found := list(_text_problems("name", name)))
    if found:
        return
    stack, used = Stack.of(scope), _table_identity(scope, table)
    for other in _pipelines(scope):
        if other["name"] != name:
            continue
        if other["stack"] == stack.node.path:
            yield NAME_IN_USE.problem(option="name", name=name, other=other["path"])
        elif used is not None and other["table"] == used:
            yield PIPELINE_NAME_ON_LEDGER.problem(name=name, other=other["path"])
        elif other["environment"] == _environment(scope):
            warn(scope, PIPELINE_NAME_TWICE, name=name, other=other["path"])


def fix_names(scope: Construct, name: str | None, *, table: dynamodb.ITable, queue: Construct | None = None) -> None:
    """Fix the logical IDs of a pipeline with a fixed name, and register it for later checks.

    Args:
        scope: the pipeline.
        name: its fixed name. None: nothing is done, since other names contain a hash of the path.
        table: its ledger's table.
        queue: its queue if another construct made it. No other pipeline uses it, so the name fixes its IDs too.

    """
    if name is None:
        return
    ids = FixedIds(name)
    ids.fix(scope)
    if queue is not None:
        ids.fix(queue, "Queue")
    scope.node.root.node.add_metadata(
        PIPELINES,
        {
            "name": name,
            "path": scope.node.path,
            "stack": Stack.of(scope).node.path,
            "environment": _environment(scope),
            "table": _table_identity(scope, table),
        },
    )


def tag(root: Construct, name: str) -> None:
    """Tag bucket, table, queues and functions with the pipeline's name.

    `intake-ledger status` without a stack finds pipelines by it, and takes those without a function for retained ones.

    Args:
        root: the construct whose resources get the tag.
        name: the pipeline's name.

    """
    Tags.of(root).add(PIPELINE_TAG, name, include_resource_types=_TAGGED)


def _pipelines(scope: Construct) -> Iterator[dict[str, Any]]:
    return (entry.data for entry in scope.node.root.node.metadata if entry.type == PIPELINES)


def _environment(scope: Construct) -> str:
    """Account and region. Stacks of one stage whose environment is unknown share it."""
    stack, stage = Stack.of(scope), Stage.of(scope)
    return f"{stack.environment} {stage.node.path if stage and 'unknown' in stack.environment else ''}"


def _table_identity(scope: Construct, table: dynamodb.ITable | None) -> str | None:
    if table is None:
        return None
    return arn_identity(scope, table.table_arn, owned=Resource.is_owned_resource(table))
