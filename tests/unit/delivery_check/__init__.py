"""The check of the deployed path from S3 and from the sources of messages."""
