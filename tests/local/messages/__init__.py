"""Keyed messages of all sources."""
