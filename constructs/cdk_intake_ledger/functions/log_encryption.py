"""Encrypts log groups with the key of a pipeline, and lets CloudWatch Logs use the key.

The statement is that of the CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs using AWS Key Management
Service". CloudFormation chooses the names of the log groups, and each begins with the name of its stack.
"""

from aws_cdk import ArnFormat, Aws, Resource, Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk.region_info import RegionInfo
from constructs import Construct, IConstruct

from cdk_intake_ledger.checks.rules.key_network_rules import KEY_POLICY_UNKNOWN
from cdk_intake_ledger.delivery.queue_access import add_statement
from cdk_intake_ledger.resources.cloudformation import outermost

LOG_KEY_ACTIONS = ("kms:Decrypt*", "kms:Describe*", "kms:Encrypt*", "kms:GenerateDataKey*", "kms:ReEncrypt*")
"""The actions that the user guide names."""


class LogEncryption:
    """The key of the log groups that a pipeline and its parts make."""

    def __init__(self, scope: Construct, key: kms.IKey | None) -> None:
        """Encrypt log groups.

        Args:
            scope: the pipeline, which gets the warning about an imported key.
            key: the key; None for the key of CloudWatch Logs.

        """
        self._scope, self._key = scope, key
        self._allowed: set[str] = set()

    def key_for(self, scope: Construct) -> kms.IKey | None:
        """The key of a log group, which CloudWatch Logs may use for the log groups of this stack.

        Args:
            scope: the scope of the log group.

        Returns:
            the key, or None.

        """
        if self._key is not None:
            stack = outermost(Stack.of(scope))
            if stack.node.path not in self._allowed:
                self._allowed.add(stack.node.path)
                self._allow(self._key, stack)
        return self._key

    def _allow(self, key: kms.IKey, stack: Stack) -> None:
        owner: IConstruct = key.alias_target_key if isinstance(key, kms.Alias) else key
        # The pseudo parameter stays right if the template is deployed under another name.
        same = Resource.is_owned_resource(owner) and Stack.of(owner).node.path == stack.node.path
        groups = stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{Aws.STACK_NAME if same else stack.stack_name}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        known = not Token.is_unresolved(stack.region)
        suffix = (RegionInfo.get(stack.region).domain_suffix if known else None) or Aws.URL_SUFFIX
        statement = iam.PolicyStatement(
            actions=list(LOG_KEY_ACTIONS),
            principals=[iam.ServicePrincipal(f"logs.{stack.region}.{suffix}")],
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        )
        effect = "CloudWatch Logs refuses to make the log groups"
        add_statement(self._scope, key, statement, KEY_POLICY_UNKNOWN, effect=effect)
