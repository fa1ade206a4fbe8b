"""Parse the messages of S3, EventBridge, SNS and this pipeline."""
