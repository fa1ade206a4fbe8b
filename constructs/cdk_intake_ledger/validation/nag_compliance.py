"""Accepted findings of cdk-nag: regulated data (HIPAA Security, NIST 800-53 R5, PCI DSS 3.2.1), keys and roles.

A finding that an option or a resource of the app satisfies is not accepted. `docs/compliance.md` lists both kinds.
"""

from cdk_intake_ledger.validation.nag_suppressions import INLINE_POLICIES, Suppression

_HIPAA, _NIST, _PCI = "HIPAA.Security", "NIST.800.53.R5", "PCI.DSS.321"

CONCURRENCY = Suppression(
    tuple(f"{pack}-LambdaConcurrency" for pack in (_HIPAA, _NIST)),
    "the audit's functions",
    "One audit runs at a time. A reserved concurrency would be missing in the account for the rest of the day.",
)
FILE_COPIES = Suppression(
    tuple(
        f"{pack}-{rule}"
        for rule in ("S3BucketReplicationEnabled", "S3BucketVersioningEnabled")
        for pack in (_HIPAA, _NIST, _PCI)
    ),
    "the bucket with the files of an audit in parts, and that with the lists of parts of sets",
    "The files are copies of listings and rows, and expire after 3 or 30 days. The next run or attempt makes new ones.",
)
WORKER_VARIABLES = Suppression(
    ("AwsSolutions-ECS2",),
    "the task definition of workers",
    "The variables are names and numbers. They contain no secrets.",
)

ALIASED_KEY = Suppression(
    ("AwsSolutions-IAM5",),
    "both roles, `key/*`, with a key that was imported by the name of its alias",
    "A policy cannot name a key by its alias. The condition `kms:ResourceAliases` limits the statement to its key.",
)
READERS = Suppression(
    ("AwsSolutions-IAM5",),
    "the policy of another stack's role, `<bucket>/<prefix>*`, after `grant_read`",
    "Two named actions read the objects that the filters accept. Their keys are known only when they arrive.",
)

COMPLIANCE_SUPPRESSIONS = (INLINE_POLICIES, CONCURRENCY, FILE_COPIES, WORKER_VARIABLES, ALIASED_KEY, READERS)
"""All of them."""
