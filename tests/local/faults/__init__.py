"""Inject faults from outside into unchanged deployed pipelines. See docs/faults.md."""

STACK = "Faults"
HOUR = 60
"""Seconds that replace an hour. Waits and outages are shortened by the same factor."""
WIRED_SECONDS = 4
"""The processor's time in the pipeline behind the proxy. A slow answer of S3 takes longer."""
