"""Run the audit of sets with a clock that is an hour ahead: `python -m tests.local.faults.audit_ahead`.

The environment's variables are those of the deployed function. The last line is the result.
"""

import json
import time
from dataclasses import replace

from intake_ledger.aws import ledger_client
from tests.inside.sets import MINUTE, SETTLE_MS, SetAudit, WaitingSets, _services

SECONDS = 120.0


def main() -> None:
    settings, services = _services()
    ahead = replace(services, clock=lambda: services.clock() + SETTLE_MS + MINUTE)
    end = time.monotonic() + SECONDS
    found = SetAudit(settings, ahead, WaitingSets(ledger_client(), settings.consumer.table)).run(
        lambda: end - time.monotonic()
    )
    print(json.dumps(found.as_json()))


if __name__ == "__main__":
    main()
