"""Outputs of the processor in S3: permissions, lifecycle rules, and checks against loops."""

from cdk_intake_ledger.outputs.grant import OutputGrants
from cdk_intake_ledger.outputs.places import Places

__all__ = ["OutputGrants", "Places"]
