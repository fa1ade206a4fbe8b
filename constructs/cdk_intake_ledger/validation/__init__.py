"""Refuse at synthesis a pipeline that cannot work.

A rule is imported from the module of its subject by the code that checks it.
"""
