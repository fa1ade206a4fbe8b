"""The testing kit. Tests import its names from `cdk_intake_ledger.testing`."""
