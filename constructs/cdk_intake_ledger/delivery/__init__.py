"""The path of events from the bucket to the queue, for chosen keys.

`functions`, and all that import `functions`, may import it.
"""
