"""`make load` loads CSV files into PostgreSQL, under the faults that S3's events and Lambda's workers have."""
