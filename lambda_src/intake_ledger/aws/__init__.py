"""Requests to S3 and SQS, and the clients that make them."""
