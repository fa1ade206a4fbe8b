"""The stack that `intake-ledger acceptance` deploys and removes.

    python -m cdk_intake_ledger.acceptance FOLDER --assets BUCKET [--architecture arm64]

writes the template and the code of the functions into a folder. Everything else is in the command.
"""
