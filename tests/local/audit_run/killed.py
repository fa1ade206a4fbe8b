"""A run of the audit that is killed in its midst: `python -m tests.local.audit_run.killed N`.

The deployed function's own code and settings, in a process that gets SIGKILL when it is about to send its N-th batch:
what it was to send is marked in the ledger by then, and in no queue.
"""

import os
import signal
import sys

import boto3

from intake_ledger.audit.function import handler

REMAINING_MS = 31_000
"""As long as a run needs to begin at all (it stops 30 seconds before its end), so that its lease is over soon."""


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
