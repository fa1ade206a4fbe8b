"""The processor, and the parts that all Lambda functions have.

`consumer_function`, `audit_function`, `pipeline`, `audit`, `kinds`, `additions` and `template` import it.
"""
