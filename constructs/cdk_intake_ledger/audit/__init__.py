"""The audit: its function, its schedule, and the state machine and engines of an audit in parts."""
