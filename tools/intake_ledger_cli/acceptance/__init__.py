"""The command `acceptance`: deploys pipelines, runs checks on them, writes a report, and removes everything."""
