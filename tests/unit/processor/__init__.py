"""What a processor gets and returns: changes, streams of content, and `once`."""
