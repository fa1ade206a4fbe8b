"""The commands that act, each by `operations.acting`."""
