"""Checks the arguments of the public classes against their annotations."""
