"""The parts of the examples that need no AWS."""
