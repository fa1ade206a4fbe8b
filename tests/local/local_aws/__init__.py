"""The local AWS itself, and the suite for an account."""
