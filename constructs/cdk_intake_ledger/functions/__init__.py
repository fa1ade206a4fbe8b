"""The Lambda functions of a pipeline, and the processor."""
