"""A stack's template as a test can compare it: what changes without anybody having changed it is taken out."""

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
"""What `logical_ids` lists when it is not told otherwise: a replacement of one of these loses what is in it."""

_HASH = re.compile(r"[0-9a-f]{64}")
_VERSION_HASH = re.compile(r"(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}")
# CDK's handler for notifications of imported buckets is written into the template, and changes with CDK's version.
_CDK_INLINE = "BucketNotificationsHandler"


def stable_template(stack: "Stack") -> dict[str, Any]:
    """The synthesised template, for a snapshot: the same for the same stack, whatever its assets hold.

        def test_the_template_is_the_one_that_was_looked_at(snapshot):
            assert stable_template(stack) == snapshot(extension_class=JSONSnapshotExtension)

    Left out are asset hashes, CDK's check of the bootstrap's version, its metadata, and the source of its own inline
    handlers.

    Args:
        stack: of an app that may be synthesised now; nothing can be added to it afterwards.

    Raises:
        RuntimeError: CDK's own: the app cannot be synthesised, or the template has a dependency cycle.

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

    A resource whose logical id changes is replaced at the next deployment, and what it holds stays behind:

        assert logical_ids(stack, "AWS::S3::Bucket") == {"AWS::S3::Bucket": ["InvoicesBucketC0FFEE42"]}

    Args:
        stack: as for `stable_template`.
        types: which ones; when omitted, buckets, queues, tables, keys and log groups, which hold something.

    Raises:
        RuntimeError: As for `stable_template`.

    """
    found: dict[str, list[str]] = {}
    for name, resource in stable_template(stack)["Resources"].items():
        if resource["Type"] in (types or STATEFUL):
            found.setdefault(resource["Type"], []).append(name)
    return {type_: sorted(found[type_]) for type_ in sorted(found)}


def _stable(value: Any) -> Any:
    match value:
        case dict():
            return {_without_hashes(name): _stable(one) for name, one in value.items()}
        case list():
            return [_stable(one) for one in value]
        case str():
            return _without_hashes(value)
    return value


def _without_hashes(text: str) -> str:
    return _VERSION_HASH.sub(r"\1<hash>", _HASH.sub("<hash>", text))
