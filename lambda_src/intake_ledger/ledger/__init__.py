"""Write the decisions into the DynamoDB table, each with its condition."""
