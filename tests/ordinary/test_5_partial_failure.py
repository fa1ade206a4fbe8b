"""The downstream takes a part of the work and fails. All of a file's writes are committed, or none."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.ordinary.conftest import APRIL, MARCH, Billing


def test_a_refused_transaction_is_tried_again_as_a_whole(billing: Billing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proof 5. The table fails in the first attempt. Neither the row of the sums nor the commit exists after it."""
    seen: list[int | None] = []
    write = type(billing.tables).transact_write_items

    def fails_once(tables: Any, **request: Any) -> dict[str, Any]:
        seen.append(billing.cents("march.csv"))
        if len(seen) == 1:
            error = {"Error": {"Code": "InternalServerError", "Message": "the table fails"}}
            raise ClientError(error, "TransactWriteItems")  # type: ignore[arg-type] # without the metadata
        return write(tables, **request)

    monkeypatch.setattr(type(billing.tables), "transact_write_items", fails_once)
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.run()
    assert seen == [None, None]
    assert billing.cents("march.csv") == 1000
    assert billing.status("march.csv") == "PROCESSED"


def test_a_file_that_fails_holds_no_other_file_back(billing: Billing) -> None:
    """One batch has a malformed file and a good one."""
    billing.pipeline.put("poison.csv", "number,cents\n4713,much\n")
    billing.pipeline.put("april.csv", APRIL)
    billing.pipeline.run()
    assert billing.cents("april.csv") == 1250
    assert (billing.cents("poison.csv"), billing.status("poison.csv")) == (None, "REJECTED")
