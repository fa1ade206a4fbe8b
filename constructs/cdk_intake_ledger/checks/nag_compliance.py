"""Accepted findings of cdk-nag: regulated data (HIPAA Security, NIST 800-53 R5, PCI DSS 3.2.1), keys and roles.

A finding that an option or a resource of the app satisfies is not accepted. `docs/security.md` lists both kinds.
"""

from cdk_intake_ledger.checks.nag_suppressions import INLINE_POLICIES, Suppression

_HIPAA, _NIST, _PCI = "HIPAA.Security", "NIST.800.53.R5", "PCI.DSS.321"

CONCURRENCY = Suppression(
    tuple(f"{pack}-LambdaConcurrency" for pack in (_HIPAA, _NIST)),
    "the audit's functions",
    "One audit runs at a time. The account would lack the reserved concurrency for the rest of the day.",
)
FILE_COPIES = Suppression(
    tuple(
        f"{pack}-{rule}"
        for rule in ("S3BucketReplicationEnabled", "S3BucketVersioningEnabled")
        for pack in (_HIPAA, _NIST, _PCI)
    ),
    "the buckets of an audit in parts, and of lists of parts",
    "They have copies of listings and rows, which expire after 3 or 30 days. The next run or attempt makes new ones.",
)
WORKER_VARIABLES = Suppression(
    ("AwsSolutions-ECS2",),
    "the task definition of workers",
    "The variables are names and numbers, not secrets.",
)

ALIASED_KEY = Suppression(
    ("AwsSolutions-IAM5",),
    "both roles, `key/*`, with a key imported by its alias",
    "A policy cannot name a key by its alias. The condition `kms:ResourceAliases` limits the statement to it.",
)
READERS = Suppression(
    ("AwsSolutions-IAM5",),
    "a role of another stack, `<bucket>/<prefix>*`, after `grant_read`",
    "Two actions read the objects that the filters accept, whose keys are known only when they arrive.",
)

COMPLIANCE_SUPPRESSIONS = (INLINE_POLICIES, CONCURRENCY, FILE_COPIES, WORKER_VARIABLES, ALIASED_KEY, READERS)
"""All of them."""
