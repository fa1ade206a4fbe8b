"""Run an audit and kill it: `python -m tests.local.audit_run.killed N`.

The process runs the deployed function's code with its settings. It gets SIGKILL when it is about to send batch N. At
this time the ledger has marks for the messages of this batch, but the queue does not have the messages.
"""

import os
import signal
import sys

import boto3

from intake_ledger.audit.function import handler

REMAINING_MS = 31_000
"""Just enough time for a run to begin (it stops 30 seconds before its end), so that its lease ends soon."""


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return REMAINING_MS


def main() -> None:
    batches = int(sys.argv[1])
    sent = 0

    def about_to_send(**_: object) -> None:
        nonlocal sent
        sent += 1
        if sent == batches:
            os.kill(os.getpid(), signal.SIGKILL)

    boto3.setup_default_session()
    session = boto3.DEFAULT_SESSION
    assert session is not None
    session.events.register("before-send.sqs.SendMessageBatch", about_to_send)
    print(handler({}, Context()))


if __name__ == "__main__":
    main()
