"""Engines that run the query of `audit.sql`: SQLite, DuckDB and Athena."""
