"""A pipeline whose work takes hours: each attempt is an execution of a state machine."""
