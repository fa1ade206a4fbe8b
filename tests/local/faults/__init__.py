"""Faults injected from outside into deployed pipelines; nothing of theirs is replaced. See docs/faults.md."""

STACK = "Faults"
HOUR = 60
"""Seconds that stand for an hour: waits and outages are shorter than life by the same factor."""
