"""Refuse at synthesis a pipeline that cannot work, also in the final template, and explain the findings of cdk-nag.

All folders import it, and it imports none of them.
"""
