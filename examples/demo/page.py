"""The page."""


def write_page(*_arguments: object, **_options: object) -> None:
    """Write it."""
    pass
