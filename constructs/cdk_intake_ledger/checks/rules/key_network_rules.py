"""Rules about encryption keys, and about the network of the functions."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Keys and network")

KEY_IN_SAME_REGION = SUBJECT.error(
    "key-in-same-region",
    inputs=("encryption_key",),
    what="the key's region is {theirs} and the pipeline's region is {ours}",
    why="a service encrypts with keys of its own region only",
    fix="Pass a key of {ours}, for example a replica of a multi-Region key",
)
KEY_POLICY_UNKNOWN = SUBJECT.warning(
    "key-policy-unknown",
    inputs=("queue", "encryption_key"),
    what="the key {path} is imported, so CDK cannot extend its policy",
    why="without this statement {effect}",
    fix="Add the statement: {statement}",
)
NETWORK_WITHOUT_ENDPOINTS = SUBJECT.warning(
    "network-without-endpoints",
    inputs=("network",),
    what="the functions run in isolated subnets of {vpc}, which has no endpoint for {services}",
    why="they cannot call these services",
    fix="Add the endpoints, or set vpc_subnets with a NAT gateway",
)
