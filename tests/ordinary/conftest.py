"""The pipeline of app.py without AWS: its processor with the real consumer and ledger, and AWS in memory."""

from dataclasses import dataclass

import pytest
from examples.invoices.processor.invoices import process

from cdk_intake_ledger.testing import LocalPipeline, MemoryTables
from intake_ledger import Commit, ObjectChange, Unprocessable

MARCH = "number,cents\n4711,1000\n"
APRIL = "number,cents\n4711,1000\n4712,250\n"


@dataclass
class Billing:
    """The pipeline, with the table that the processor writes."""

    pipeline: LocalPipeline
    tables: MemoryTables
    processed: list[ObjectChange]
    broken: list[str]
    """Put a reason into it to deploy a processor that rejects each file. Clear it to deploy the repaired one."""

    def cents(self, key: str) -> int | None:
        """The sum of a file in the table `Totals`. None without a row."""
        rows = [item for item in self.tables.items("totals") if item["file"] == {"S": key}]
        return int(rows[0]["cents"]["N"]) if rows else None

    def status(self, key: str) -> str:
        """The status of the file's row in the ledger."""
        row = self.pipeline.row(key)
        assert row is not None
        return row.status


@pytest.fixture
def billing(monkeypatch: pytest.MonkeyPatch) -> Billing:
    monkeypatch.setenv("TOTALS", "totals")
    processed: list[ObjectChange] = []
    broken: list[str] = []
    tables = MemoryTables({"totals": {"file": "S"}})

    def counted(change: ObjectChange) -> Commit:
        if broken:
            raise Unprocessable(broken[0])
        processed.append(change)
        return process(change)

    return Billing(LocalPipeline(counted, dynamodb=tables), tables, processed, broken)
