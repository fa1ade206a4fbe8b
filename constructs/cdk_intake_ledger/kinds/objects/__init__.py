"""The checks, numbers, delivery and grants of `pipeline`.

`pipeline`, `additions` and the other kinds import it.
"""
