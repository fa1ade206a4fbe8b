"""Many files that wait, and few that are ready, in a queue whose messages in flight have a limit."""

STACK = "Waiting"
