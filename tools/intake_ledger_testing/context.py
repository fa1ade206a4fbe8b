"""A Lambda context with the attributes that handlers read."""

import time
from collections.abc import Callable


class LambdaContext:
    """A Lambda context whose time advances.

    It has the attributes that the decorators of Powertools read, and no others.
    """

    function_name = "function"
    """The function's name."""
    function_version = "$LATEST"
    """The function's version."""
    invoked_function_arn = "arn:aws:lambda:eu-central-1:111122223333:function:function"
    """The function's ARN."""
    memory_limit_in_mb = 512
    """The function's memory in MiB."""
    aws_request_id = "52fdfc07-2182-154f-163f-5f0f9a621d72"
    """The request's ID."""

    def __init__(self, seconds: float = 60, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the context of an invocation that starts now.

        Args:
            seconds: the remaining time; 60 when omitted.
            clock: returns seconds; the machine's clock when omitted.

        """
        self._clock = clock
        self._end = clock() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Return the remaining time, which is never negative."""
        return max(round((self._end - self._clock()) * 1000), 0)
