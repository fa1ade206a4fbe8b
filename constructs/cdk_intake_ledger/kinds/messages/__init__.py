"""Intakes of keyed messages: their sources, consumer and alarms.

Only `additions` imports it.
"""
