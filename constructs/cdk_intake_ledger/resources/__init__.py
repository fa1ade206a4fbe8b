"""The bucket, the queue and the table of a pipeline, and their fixed names."""
