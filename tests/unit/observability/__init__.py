"""Log lines, metrics, and what they may not quote."""
