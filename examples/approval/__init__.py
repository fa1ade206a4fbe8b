"""A pipeline whose invoices wait for a person: each attempt is an execution of a durable function."""
