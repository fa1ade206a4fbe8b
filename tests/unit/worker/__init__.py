"""Workers outside of Lambda."""
