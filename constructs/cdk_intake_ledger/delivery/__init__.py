"""The path of events from the bucket to the queue, for chosen keys."""
