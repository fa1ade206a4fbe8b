"""Grants the use of encryption keys, also of a key that was imported by the name of its alias.

Each grant of this library takes the actions below, for functions and for people.
"""

import re

from aws_cdk import Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

BUCKET_READ_KEY_ACTIONS = ("kms:Decrypt",)
"""For GetObject. S3 user guide, "Using server-side encryption with AWS KMS keys"."""
BUCKET_WRITE_KEY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")
"""For PutObject and uploads in parts, which S3 decrypts to complete them. The same page."""
QUEUE_KEY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")
"""For SendMessage, which needs both, and ReceiveMessage. SQS developer guide, "Key management"."""
TABLE_READ_KEY_ACTIONS = ("kms:Decrypt", "kms:DescribeKey")
"""For principals that only read a table. CDK's `Table.grantReadData` gives the same."""
TABLE_KEY_ACTIONS = (
    *TABLE_READ_KEY_ACTIONS,
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""For principals that write into a table. DynamoDB developer guide, "Authorizing use of your KMS key". It also requires
CreateGrant of the principal that makes the table. CDK's `Table.grantWriteData` leaves it out, too."""


def grant_key(key: kms.IKey, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
    """Grant the use of a key.

    CDK drops the grant of an alias that was imported by its name, unless the app has the feature flag
    `@aws-cdk/aws-kms:applyImportedAliasPermissionsToPrincipal`. A statement cannot name a key by its alias (KMS
    developer guide, "Use aliases to control access to KMS keys"). Its condition names the alias instead.

    Args:
        key: the key, or an alias of it.
        grantee: the principal.
        actions: actions of KMS.

    Returns:
        the grant.

    """
    if (alias := imported_alias(key)) is None:
        return key.grant(grantee, *actions)
    keys = Stack.of(key).format_arn(service="kms", resource="key", resource_name="*")
    grant = iam.Grant.add_to_principal(
        grantee=grantee,
        actions=list(actions),
        resource_arns=[keys],
        conditions={"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}},
    )
    # The name of a statement is unique in its policy. It explains the asterisk to a reader of the template.
    verbs = "".join(action.partition(":")[2] for action in actions)
    readable = "" if Token.is_unresolved(alias) else re.sub("[^A-Za-z0-9]", "", alias.removeprefix("alias/").title())
    for statement in grant.principal_statements:
        statement.sid = f"KeyOfTheAlias{readable}For{verbs}"
    return grant


def imported_alias(key: kms.IKey) -> str | None:
    """The name of an alias whose key CDK does not know; None for other keys.

    Args:
        key: a key, or an alias.

    """
    if isinstance(key, kms.Alias) or not hasattr(key, "alias_name"):
        return None
    try:
        key.alias_target_key  # type: ignore[attr-defined]  # noqa: B018 - CDK raises an error
    except RuntimeError:
        return str(key.alias_name)
    return None
