"""Sets of files."""
