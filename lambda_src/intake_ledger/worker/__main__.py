"""Run a worker until SIGTERM or SIGINT: `python -m intake_ledger.worker`.

It reads the same environment variables as the consumer's Lambda function. docs/worker.md has them.
"""

import os
import signal
import sys

from intake_ledger.protocol import SettingsError
from intake_ledger.worker.worker import make_worker


def main() -> int:
    """Run a worker. Returns 0 after a signal, and 2 if an environment variable is missing or malformed."""
    try:
        worker = make_worker(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the container's log
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
