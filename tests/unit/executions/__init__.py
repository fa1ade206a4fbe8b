"""State machines, durable functions and other functions as the processor."""
