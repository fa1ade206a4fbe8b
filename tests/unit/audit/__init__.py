"""The audit: its rule, its runs, and random worlds with an oracle."""
