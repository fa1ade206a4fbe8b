"""Decide about changes, without AWS: states, rows, verdicts, settings, errors and reasons."""
