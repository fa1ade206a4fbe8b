"""The runtime's clients and its requests to S3."""
