"""The ledger's requests to DynamoDB."""
