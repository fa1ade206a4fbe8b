"""Parts of the audit's function: settings, reports, schedule, and the state machine and engines of an audit in parts.

`audit_function`, `pipeline` and `kinds` import it.
"""
