"""Metrics, alarms and the dashboard of each kind of work.

Only `kinds` imports it.
"""
