"""The requests to AWS: the deployed pipeline, its rows, queues, bucket, executions, metrics and log."""
