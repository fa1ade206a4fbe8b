"""`intake-ledger`: inspect and operate a deployed pipeline.

The command needs the extra `cli` (`pip install 'cdk-intake-ledger[cli]'`). Only `template` imports the CDK.
"""

import sys

_EXTRA = ("boto3", "botocore", "rich", "typer")


def main() -> None:
    """Run the command. Exit with 0 on success, 1 on failure and 2 for wrong usage."""
    try:
        from intake_ledger_cli.commands import run  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in _EXTRA:
            raise
        sys.exit(f"intake-ledger needs {name}, which is not installed: pip install 'cdk-intake-ledger[cli]'")
    sys.exit(run())
