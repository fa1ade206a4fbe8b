"""The ordinary pipeline: app.py and its processor. Read these tests first."""
