"""Inject faults from outside into unchanged deployed pipelines. See docs/faults.md."""

STACK = "Faults"
HOUR = 60
"""Seconds that replace an hour. Waits and outages are shortened by the same factor."""
