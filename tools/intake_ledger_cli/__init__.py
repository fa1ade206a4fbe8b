"""`intake-ledger`: to look at a deployed pipeline, and to act on it.

It needs the extra `cli` (`pip install 'cdk-intake-ledger[cli]'`), and never the CDK: nothing here imports it.
"""

import sys

_EXTRA = ("boto3", "botocore", "rich", "typer")


def main() -> None:
    """The command. Ends with 0 when all went well, with 1 and the reason in words otherwise, with 2 for wrong usage."""
    try:
        from intake_ledger_cli.commands import run  # noqa: PLC0415 - what it needs may not be installed
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in _EXTRA:
            raise
        sys.exit(f"intake-ledger needs {name}, which is not installed: pip install 'cdk-intake-ledger[cli]'")
    sys.exit(run())
