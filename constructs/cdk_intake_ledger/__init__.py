"""CDK constructs."""
