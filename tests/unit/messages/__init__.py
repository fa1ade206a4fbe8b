"""Keyed messages of queues and streams."""
