"""The audit of a deployed pipeline whose bucket S3 kept quiet about for a while. See docs/audit.md."""

STACK = "Audited"
