"""Run the audit of sets with a clock that is an hour ahead: `python -m tests.local.faults.audit_ahead`.

The environment's variables are those of the deployed function. The last line is the result.
"""

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from intake_ledger.aws.clients import ledger_client
from intake_ledger.consumer.composition import make_parts
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.sets.audit import MINUTE, SETTLE_MS, SetAudit
from intake_ledger.sets.waiting import WaitingSets

if TYPE_CHECKING:
    from intake_ledger.kinds.sets import Sets

SECONDS = 120.0


def main() -> None:
    kind, services = make_parts(os.environ)
    sets, table = cast("Sets", kind), services.settings.table
    ahead = replace(services, clock=lambda: services.clock() + SETTLE_MS + MINUTE)
    end = time.monotonic() + SECONDS
    audit = SetAudit(
        sets.settings,
        ahead,
        WaitingSets(ledger_client(), table),
        reader=sets.reader,
        rows=LedgerTable(ledger_client(), table),
    )
    found = audit.run(lambda: end - time.monotonic())
    print(json.dumps(found.as_json()))


if __name__ == "__main__":
    main()
