"""Sets of files: a manifest and its parts, a folder that a marker closes, or a folder that is quiet.

No other folder imports it.
"""
