"""Inject faults from outside into unchanged deployed pipelines. See tests/local/faults/README.md."""

STACK = "Faults"
HOUR = 60
"""Seconds that replace an hour. Waits and outages are shortened by the same factor."""
WIRED_SECONDS = 4
"""The processor's time in the pipeline behind the proxy. A slow answer of S3 takes longer."""
GROUPS, PER_SECOND, BURST, PER_CALL = 6, 5, 10, 10
"""Groups of keys, and the rate of their starts in a second; changes in a call."""
IN_TESTS = ("Killed", "Wired", "Plain", "Outage", "Executions", "Messages", "Sets")
"""The lines of `make thorough`, in their short form. Each source, bus, stream and form of sets is in `make faults`."""
