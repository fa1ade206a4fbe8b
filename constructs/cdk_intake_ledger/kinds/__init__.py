"""The kinds of work: the members that all have, in `intake`, and a folder for each kind.

`pipeline` and `additions` import it.
"""
