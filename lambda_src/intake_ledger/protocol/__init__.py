"""Decide about changes, without AWS: states, rows, leases, verdicts, settings, errors and reasons."""
