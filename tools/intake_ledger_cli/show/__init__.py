"""The output: for people, and JSON."""
