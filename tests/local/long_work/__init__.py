"""State machines, durable functions and workers."""
