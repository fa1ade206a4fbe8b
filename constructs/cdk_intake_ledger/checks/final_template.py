"""Reads resources as they will be deployed: after property injectors, mixins, aspects, and overrides.

`properties_of` cannot see `add_property_override`: the CDK merges it when it writes the template. So a second
synthesizer writes the template of a stack while the CDK validates the construct tree, which is after all aspects. The
stack's own synthesizer, its assets and the cloud assembly are not involved.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

import jsii
from aws_cdk import CfnResource, ISynthesisSession, LegacyStackSynthesizer, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk.cx_api import CloudAssemblyBuilder
from constructs import Construct, IConstruct, IValidation

from cdk_intake_ledger.checks.registry import Problem


@dataclass(frozen=True)
class Expected:
    """The values that a resource must have in the template."""

    kind: str
    """It names the rows of the table in `final_rules`."""
    owner: IConstruct
    """The resource, or the construct that has it."""
    wanted: dict[str, Any]
    """Values by the path of the property in CloudFormation's names. They follow from options, and may be tokens."""


class _App:
    """The expectations and templates of one app."""

    def __init__(self) -> None:
        self.expected: dict[tuple[str, int], Expected] = {}
        self.templates: dict[Stack, Mapping[str, Any]] = {}
        self.constructs: list[IConstruct] = []
        self.readers: set[int] = set()


_APPS: "WeakKeyDictionary[IConstruct, _App]" = WeakKeyDictionary()
_PLACES: "WeakKeyDictionary[IConstruct, tuple[_App, str]]" = WeakKeyDictionary()


def _place(scope: IConstruct) -> tuple[_App, str]:
    """The app and the path of a construct. They never change, and the CDK's process is asked only once."""
    if scope not in _PLACES:
        node = scope.node
        _PLACES[scope] = _APPS.setdefault(node.root, _App()), node.path
    return _PLACES[scope]


def expect(scope: Construct, kind: str, owner: IConstruct, wanted: Mapping[str, Any]) -> None:
    """Record what a resource must have in the template. A second call for the same resource adds to the first.

    Args:
        scope: the construct that needs it. The check of a construct covers all scopes in it.
        kind: as in `Expected`; likewise the others.
        owner: an imported one is never checked.
        wanted: values by their paths.

    """
    app, path = _place(scope)
    made = app.expected.setdefault((path, id(owner)), Expected(kind, owner, {}))
    made.wanted.update(wanted)


def expected_in(scope: IConstruct) -> list[Expected]:
    """The records for a construct and for all constructs in it."""
    app, path = _place(scope)
    inside = f"{path}/"
    return [one for (place, _), one in app.expected.items() if place == path or place.startswith(inside)]


def resource_of(owner: IConstruct) -> CfnResource | None:
    """The resource of a construct; None for an imported one, and for a table with replicas."""
    resource = owner if isinstance(owner, CfnResource) else owner.node.default_child
    return resource if isinstance(resource, CfnResource) and not isinstance(resource, dynamodb.CfnGlobalTable) else None


Check = Callable[["FinalTemplates"], Iterable[Problem]]
"""Finds problems of the complete app. It may warn."""


def at_synthesis(scope: Construct, check: Check) -> None:
    """Check the app when it is complete, after all aspects. The CDK ends the synthesis if there are problems.

    Args:
        scope: the construct that the problems are about.
        check: reads the final templates.

    """
    scope.node.add_validation(_Validation(scope, check))


@jsii.implements(IValidation)
class _Validation:
    def __init__(self, scope: Construct, check: Check) -> None:
        self._scope, self._check = scope, check

    def validate(self) -> list[str]:
        try:
            return [str(problem) for problem in self._check(FinalTemplates(self, self._scope))]
        except _UnwritableError:
            # The CDK says so itself, with the place, when it writes the template.
            return []


class _UnwritableError(Exception):
    """The CDK cannot write a template."""


class FinalTemplates:
    """The templates and constructs of one synthesis. Each template is written once for all readers.

    Args:
        reader: a validation. When it reads again, a new synthesis has begun.
        scope: a construct of the app.

    """

    def __init__(self, reader: object, scope: IConstruct) -> None:
        self._scope, (self._app, _) = scope, _place(scope)
        if id(reader) in self._app.readers:
            self._app.readers.clear()
            self._app.templates.clear()
            self._app.constructs.clear()
        self._app.readers.add(id(reader))

    def constructs[T](self, kind: type[T]) -> list[T]:
        """The constructs of the app that are of a class."""
        if not self._app.constructs:
            # Without the app, which comes first: it could not be freed.
            self._app.constructs += self._scope.node.root.node.find_all()[1:]
        return [one for one in self._app.constructs if isinstance(one, kind)]

    def properties(self, resource: CfnResource) -> Mapping[str, Any]:
        """The properties of a resource and its `DeletionPolicy`, in CloudFormation's names."""
        return self.read([(resource, {})])[0][0]

    def read(
        self, asked: Iterable[tuple[CfnResource, Mapping[str, Any]]]
    ) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
        """The properties of resources, and values as the templates of the same resources write them.

        Args:
            asked: resources and values.

        """
        stacks: dict[Stack, list[tuple[int, CfnResource, Mapping[str, Any]]]] = {}
        for place, (resource, values) in enumerate(asked):
            stacks.setdefault(resource.stack, []).append((place, resource, values))
        answers: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        for stack, ours in stacks.items():
            try:
                if stack not in self._app.templates:
                    self._app.templates[stack] = _template_of(stack).get("Resources", {})
                # One call of the CDK's process for all.
                resolved = stack.resolve([[resource.logical_id, values] for _, resource, values in ours])
            except RuntimeError as error:
                raise _UnwritableError from error
            for (place, _, values), (id_, known) in zip(ours, resolved, strict=True):
                written = self._app.templates[stack].get(id_, {})
                removal = written.get("DeletionPolicy", "Delete")
                found = {"DeletionPolicy": removal, **written.get("Properties", {})}
                # The CDK leaves out None.
                answers[place] = found, {path: known.get(path) for path in values}
        return [answers[place] for place in sorted(answers)]


def _template_of(stack: Stack) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        writer = LegacyStackSynthesizer()
        writer.bind(stack)
        # Protected, for other synthesizers. A session has setters, which the CDK does not call.
        writer._synthesize_template(_Session(folder))  # type: ignore[arg-type]  # noqa: SLF001
        content: dict[str, Any] = json.loads((Path(folder) / stack.template_file).read_bytes())
    return content


@jsii.implements(ISynthesisSession)
class _Session:
    """jsii finds the members of an interface in the class only, so each one is a property."""

    def __init__(self, folder: str) -> None:
        self._folder, self._assembly = folder, CloudAssemblyBuilder(folder)

    @property
    def outdir(self) -> str:
        return self._folder

    @property
    def assembly(self) -> CloudAssemblyBuilder:
        return self._assembly

    @property
    def validate_on_synth(self) -> bool:
        return False
