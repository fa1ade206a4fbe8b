"""Lambda's entry point on Lambda Managed Instances.

There, Lambda reports a timeout and does not end the function. A processor in a call into C, which no signal interrupts,
would run on behind its lease. This entry point ends the process at the timeout. The instance then starts another one.
"""

import faulthandler
from collections.abc import Mapping
from typing import Any

from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.consumer import composition
from intake_ledger.consumer.deadline import STDERR


def handler(event: Mapping[str, Any], context: InvocationContext) -> dict[str, Any]:
    """Handle a batch or a check, and end the process if it takes longer than the invocation may."""
    # This timer is a thread without Python code. It works while a call into C holds the interpreter's lock.
    faulthandler.dump_traceback_later(context.get_remaining_time_in_millis() / 1000, exit=True, file=STDERR)
    try:
        return composition.handler(event, context)
    finally:
        faulthandler.cancel_dump_traceback_later()
