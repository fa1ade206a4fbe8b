"""Messages that are not events of S3: how they are read, and their settings. See also `kinds.messages`.

The messages come from SQS (standard or FIFO), Kinesis, the stream of a DynamoDB table, or EventBridge. Each message has
a row of the ledger, and each key a lock.
"""
