"""The forms in which a change is reported."""
