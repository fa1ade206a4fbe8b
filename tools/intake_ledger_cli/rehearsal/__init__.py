"""Runs processors on files that were committed, without effects. See `intake_ledger_cli.read.rehearse_command`."""
