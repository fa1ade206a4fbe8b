"""Lambda's context, as far as handlers read it."""

import time
from collections.abc import Callable


class LambdaContext:
    """A context whose time runs out.

    Powertools' decorators read the names below; whatever else Lambda's own context has is not here.
    """

    function_name = "function"
    """As Lambda has it."""
    function_version = "$LATEST"
    """As Lambda has it."""
    invoked_function_arn = "arn:aws:lambda:eu-central-1:111122223333:function:function"
    """As Lambda has it."""
    memory_limit_in_mb = 512
    """MiB."""
    aws_request_id = "52fdfc07-2182-154f-163f-5f0f9a621d72"
    """As Lambda has it."""

    def __init__(self, seconds: float = 60, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Make a context of an invocation that begins now.

        Args:
            seconds: how long it may run; a minute when omitted. Zero is one whose time is over.
            clock: gives seconds; the machine's own when omitted.

        """
        self._clock = clock
        self._end = clock() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """The rest of the time, never less than zero."""
        return max(round((self._end - self._clock()) * 1000), 0)
