"""The same messages and faults for our consumers and for Powertools' idempotency, with one DynamoDB and one clock."""
