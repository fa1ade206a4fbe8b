"""A stack's template for snapshot tests, without values that change by themselves."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aws_cdk import Stack

STATEFUL = (
    "AWS::DynamoDB::GlobalTable",
    "AWS::DynamoDB::Table",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
    "AWS::S3::Bucket",
    "AWS::SQS::Queue",
)
"""Default types of `logical_ids`. The replacement of such a resource loses its data."""

_HASH = re.compile(r"[0-9a-f]{64}")
_VERSION_HASH = re.compile(r"(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}")
# The template contains CDK's handler for notifications of imported buckets, which changes with CDK's version.
_CDK_INLINE = "BucketNotificationsHandler"


def stable_template(stack: "Stack") -> dict[str, Any]:
    """The synthesised template for a snapshot. It does not depend on the content of assets.

        def test_the_template_has_not_changed(snapshot):
            assert stable_template(stack) == snapshot(extension_class=JSONSnapshotExtension)

    It has no asset hashes, no check of the bootstrap version, no CDK metadata, and no source of CDK's inline handlers.

    Args:
        stack: a stack. The function synthesises its app, so nothing can be added to the app afterwards.

    Returns:
        the template as JSON values.

    Raises:
        RuntimeError: CDK cannot synthesise the app, or the template has a dependency cycle.

    """
    from aws_cdk.assertions import Template  # noqa: PLC0415 - it starts Node.js, which other helpers do without

    template: dict[str, Any] = _stable(Template.from_stack(stack).to_json())
    for section, name in (
        ("Parameters", "BootstrapVersion"),
        ("Rules", "CheckBootstrapVersion"),
        ("Conditions", "CDKMetadataAvailable"),
        ("Resources", "CDKMetadata"),
    ):
        template.get(section, {}).pop(name, None)
        if not template.get(section, {"": ""}):
            del template[section]
    for name, resource in template.get("Resources", {}).items():
        if name.startswith(_CDK_INLINE) and "ZipFile" in resource.get("Properties", {}).get("Code", {}):
            resource["Properties"]["Code"] = {"ZipFile": "<inline>"}
    return template


def logical_ids(stack: "Stack", *types: str) -> dict[str, list[str]]:
    """The logical ids of a stack's resources, by type.

    If a resource's logical id changes, the next deployment replaces the resource, and its data does not move:

        assert logical_ids(stack, "AWS::S3::Bucket") == {"AWS::S3::Bucket": ["InvoicesBucketC0FFEE42"]}

    Args:
        stack: as for `stable_template`.
        types: types of resources; buckets, queues, tables, keys and log groups when omitted.

    Returns:
        sorted logical ids for each type.

    Raises:
        RuntimeError: as for `stable_template`.

    """
    ids: dict[str, list[str]] = {}
    for name, resource in stable_template(stack)["Resources"].items():
        if resource["Type"] in (types or STATEFUL):
            ids.setdefault(resource["Type"], []).append(name)
    return {type_: sorted(ids[type_]) for type_ in sorted(ids)}


def _stable(value: Any) -> Any:
    match value:
        case dict():
            return {_without_hashes(name): _stable(item) for name, item in value.items()}
        case list():
            return [_stable(item) for item in value]
        case str():
            return _without_hashes(value)
    return value


def _without_hashes(text: str) -> str:
    return _VERSION_HASH.sub(r"\1<hash>", _HASH.sub("<hash>", text))
