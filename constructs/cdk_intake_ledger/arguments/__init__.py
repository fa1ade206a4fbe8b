"""Checks the arguments of the public classes against their annotations."""

from cdk_intake_ledger.arguments.checking import check_arguments

__all__ = ["check_arguments"]
