"""Outputs of the processor in S3: permissions, lifecycle rules, and checks against loops.

`pipeline` and `kinds` import it.
"""
