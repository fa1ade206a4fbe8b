"""`intake-ledger`: inspect and operate a deployed pipeline.

The command needs the extra `cli` (`pip install 'cdk-intake-ledger[cli]'`). Only `template` imports the CDK.
"""

import sys
from importlib.util import find_spec

_EXTRA = ("boto3", "botocore", "rich", "typer")


def main() -> None:
    """Run the command. Exit with 0 on success, 1 on failure and 2 for wrong usage."""
    # Most of the extra is imported later, where it is used.
    missing = next((name for name in _EXTRA if find_spec(name) is None), None)
    if missing is not None:
        sys.exit(f"intake-ledger needs {missing}, which is not installed: pip install 'cdk-intake-ledger[cli]'")
    from intake_ledger_cli.commands import run  # noqa: PLC0415 - the extra may be missing

    sys.exit(run())
