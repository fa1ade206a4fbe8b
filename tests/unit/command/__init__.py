"""The operator's command: each command with its arguments, on moto and in memory."""
