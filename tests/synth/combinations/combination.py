"""One app of the combinations, and helpers for its stacks."""

import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from aws_cdk import App, Environment, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

HERE = Environment(account="111122223333", region="eu-central-1")
ELSEWHERE = Environment(account="111122223333", region="us-east-1")


@dataclass(frozen=True, kw_only=True)
class Combination:
    """An app, and what its synthesis must give."""

    name: str
    build: Callable[[App], object]
    """Adds the stacks to an app."""
    consumers: int | None = 1
    """Consumers of queues in all templates. With None, deliveries and warnings are not checked either."""
    deliveries: frozenset[str] = frozenset()
    """The ways in which events reach the queues: `S3`, `CDK` and `EventBridge`."""
    refused: str | None = None
    """The rule that refuses the app; None if it synthesises."""
    warned: frozenset[str] = frozenset()
    """The rules whose warnings are printed."""
    contains: str = ""
    """A text that one of the templates has."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Context of the app, such as feature flags."""


def combination(
    *deliveries: str,
    consumers: int = 1,
    refused: str | None = None,
    warned: str = "",
    contains: str = "",
    flags: bool = False,
) -> Callable[[Callable[[App], object]], Combination]:
    """Decorate a function that adds stacks to an app.

    Args:
        deliveries: as in `Combination`.
        consumers: as in `Combination`.
        refused: as in `Combination`.
        warned: the rules, separated by spaces.
        contains: as in `Combination`.
        flags: whether the app has all feature flags that `cdk init` recommends.

    """

    def decorate(build: Callable[[App], object]) -> Combination:
        return Combination(
            name=build.__name__.replace("_", "-"),
            build=build,
            consumers=consumers,
            deliveries=frozenset(deliveries),
            refused=refused,
            warned=frozenset(warned.split()),
            contains=contains,
            context=recommended_flags() if flags else {},
        )

    return decorate


@cache
def recommended_flags() -> dict[str, Any]:
    """The feature flags that `cdk init` of the installed CDK writes into a new app."""
    package = next(item for item in files("aws_cdk._jsii").iterdir() if item.name.endswith(".jsii.tgz"))
    with package.open("rb") as file, tarfile.open(fileobj=file, mode="r|gz") as archive:
        for member in archive:
            if member.name == "package/recommended-feature-flags.json":
                content = archive.extractfile(member)
                assert content is not None
                return dict(json.load(content))
    raise FileNotFoundError("this release of aws-cdk-lib has no recommended-feature-flags.json")


def node_function(scope: Construct, id: str = "Theirs") -> lambda_.Function:
    """A function of the team, in another language."""
    return lambda_.Function(
        scope,
        id,
        runtime=lambda_.Runtime.NODEJS_22_X,
        handler="index.handler",
        code=lambda_.Code.from_inline("exports.handler = async (change) => ({commit: change.key});"),
    )


def topic(scope: Construct) -> sns.Topic:
    return sns.Topic(scope, "Topic")


def versioned(scope: Construct, id: str = "Uploads", **options: Any) -> s3.Bucket:
    return s3.Bucket(scope, id, **({"versioned": True} | options))


def prefix(text: str) -> list[s3.NotificationKeyFilter]:
    return [s3.NotificationKeyFilter(prefix=text)]


def two_stacks(app: App, env: Environment | None = None) -> tuple[Stack, Stack]:
    """A stack of the team, and the stack of the pipeline."""
    return Stack(app, "Theirs", env=env), Stack(app, "Ours", env=env)
