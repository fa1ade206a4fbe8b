"""Helpers for testing an app that uses this library. Nothing in here is imported by a synthesis."""

from cdk_intake_ledger.testing.local_aws import LocalAws, LocalAwsError

__all__ = ["LocalAws", "LocalAwsError"]
