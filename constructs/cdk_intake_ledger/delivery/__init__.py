"""Deliver the events of the bucket to the queue, for chosen keys."""
