"""One CloudFormation template of a pipeline, for teams that have no CDK app in Python.

Only the command `intake-ledger template` imports it.
"""
