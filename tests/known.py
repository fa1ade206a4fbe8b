"""A value that a test knows to be there."""


def known[T](value: T | None) -> T:
    """Return the value: a row, a commit or a time that the test has made."""
    assert value is not None
    return value
