"""Run a worker until SIGTERM or SIGINT: `python -m intake_ledger.worker`.

It reads the same environment variables as the consumer's Lambda function. docs/long-work.md has them.
"""

import os
import signal
import sys

from botocore.exceptions import BotoCoreError, NoRegionError

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.worker.worker import make_worker


def main() -> int:
    """Run a worker. Returns 0 after a signal, and 2 with a line if an environment variable is missing or wrong."""
    try:
        worker = make_worker(os.environ)
    except NoRegionError:
        return _refused("the environment variable AWS_DEFAULT_REGION is not set: set the region of the pipeline")
    except (SettingsError, BotoCoreError) as error:
        return _refused(str(error))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
    return 0


def _refused(why: str) -> int:
    print(" ".join(why.split()), file=sys.stderr)  # noqa: T201 - the container's log
    return 2


if __name__ == "__main__":
    sys.exit(main())
