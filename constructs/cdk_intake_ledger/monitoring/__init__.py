"""Metrics, alarms and the dashboard of a pipeline."""
