"""Constructs that an app adds to its intakes: workers outside of Lambda, and events of outcomes.

No other folder imports it.
"""
