"""The part of Lambda's context object that the functions use."""

from typing import Protocol


class InvocationContext(Protocol):
    """The context of an invocation, as Lambda passes it to a handler."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function's timeout."""
