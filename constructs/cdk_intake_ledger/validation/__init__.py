"""Refuse at synthesis a pipeline that cannot work."""
