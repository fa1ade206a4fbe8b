"""The Lambda functions of a pipeline, and the processor that a team writes."""
