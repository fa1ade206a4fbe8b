"""Requests to S3 and SQS, and the clients that make them.

The audit also imports `page_parsing`. It is apart, because each cold start of the consumer would import it.
"""
