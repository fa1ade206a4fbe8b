"""Calculates dollars per million objects from the counted requests and units (`benchmarks.counted`) and the prices of
one day.

    python -m benchmarks.cost [--write]

`docs/cost.md` shows the same tables, and a test compares them.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import counted, cpu, outputs, units
from benchmarks.measure import table
from benchmarks.metered import Bill, MeteredPipeline
from botocore.client import BaseClient

from cdk_intake_ledger.testing import LocalRunner
from intake_ledger.contract import ALARMS, OBJECTS, Call
from intake_ledger_testing import prices

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cost.md"
LONG_PAGE = PAGE.with_name("long-work.md")
README = PAGE.parents[1] / "README.md"
BATCH = 10
"""Messages in a batch: the construct's default, and the maximum of one receive and one delete."""
LATENCY_MS = {"dynamodb": 5, "s3": 20, "sqs": 10}
"""The assumed duration of a request in the same Region. AWS documents single-digit milliseconds for DynamoDB, and
nothing for the others.
"""
MEMORY_GB = 0.5
"""The default memory of the consumer's function."""
LIST_PAGE = 1_000
KB_OF_LINES, DOLLARS = "KB of log lines", "dollars for a million"
COLUMNS = ("dynamodb requests", "write units", "read units", "HEAD", "sqs requests", KB_OF_LINES, DOLLARS)
"""Columns of the table of events in docs/cost.md."""
ROW_OVERHEAD = 100
"""Bytes that DynamoDB adds to the stored size of each item."""
GIGABYTE = 1024**3
KEPT_DAYS = 36
"""The ledger's default retention, and one more day."""
DAYS_OF_A_MONTH = 30
OPERATIONS = 3
"""A step, and a callback, which counts as two (https://aws.amazon.com/lambda/pricing/)."""
IDLE_RECEIVES = 5 * 3 * 60 * 24
"""The requests of Lambda's five pollers of an empty queue in a day, each of 20 seconds."""
TICKS = 4 * 24
"""The audit's invocations in a day. Each takes a second of its function with 1,769 MB (docs/audit.md)."""
AUDIT_GB_SECONDS = 1_769 / 1_024
AUDIT_METRICS = 7
"""The metrics of each run. `tests/unit/audit/test_function.py` compares the number."""
EVENTUAL = 0.5
"""Read units of an eventually consistent scan, for each 4 KB."""


def poller() -> float:
    """Return any consumer's cost of a message: S3's send, and a tenth of a receive, a delete and an invocation."""
    return prices.SQS_REQUEST * (1 + 2 / BATCH) + prices.LAMBDA_REQUEST / BATCH


def ledger(bill: Bill, changes: int = 1) -> dict[str, float]:
    """Return the dollars of the consumer's requests and lines for one change, by service, without the processor's read
    of the object.

    An invocation writes its metrics once. For a change that was counted alone, this is the share of a batch.
    """
    waited = sum(
        number * LATENCY_MS[name.partition(".")[0]] / 1000
        for name, number in bill.requests.items()
        if name != "s3.GetObject"
    )
    # Requests about tags have the prices of other requests: https://aws.amazon.com/s3/faqs/ (S3 Object Tagging).
    tags = bill.requests["s3.GetObjectTagging"] * prices.S3_GET + bill.requests["s3.PutObjectTagging"] * prices.S3_PUT
    return {
        "DynamoDB": (bill.write_units * prices.WRITE_UNIT + bill.read_units * prices.READ_UNIT) / changes,
        "S3 HEAD": bill.heads * prices.S3_GET / changes,
        **({"S3 tags": tags / changes} if tags else {}),
        "SQS": bill.sqs * prices.SQS_REQUEST / changes,
        "Lambda, waiting": waited * MEMORY_GB * prices.LAMBDA_GB_SECOND / changes,
        "log lines": bill.line_bytes / GIGABYTE * prices.LOG_GB / changes,
        "metrics": bill.metric_bytes / GIGABYTE * prices.LOG_GB / max(changes, BATCH),
    }


def million(parts: Mapping[str, float], *, reads: bool) -> dict[str, float]:
    """Return the dollars for a million changes, with the costs of any consumer. With `reads` the processor reads the
    object.
    """
    common = poller() + (prices.S3_GET if reads else 0)
    every = {**parts, "any consumer": common}
    return {name: round(value * prices.MILLION, 2) for name, value in (*every.items(), ("all", sum(every.values())))}


def powertools() -> Bill:
    """Return the requests of Powertools' idempotency utility for a new change."""
    bill = Bill()

    def answer(_: BaseClient, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        bill.requests[f"dynamodb.{operation}"] += 1
        # An update adds to the item of the put, and has no other attributes.
        items = [arguments[name] for name in ("Item", "ExpressionAttributeValues") if name in arguments]
        bill.write_units += units.write_units(*items)
        return {}

    with cpu.environment("http://nowhere.invalid"), cpu.silence():
        import boto3  # noqa: PLC0415 - a client is made under these variables

        used = cpu.Powertools(boto3.client("dynamodb"))
        with mock.patch.object(BaseClient, "_make_api_call", answer):
            used.handle(cpu.Payloads(1).batches(1)[0])
    return bill


def compared() -> dict[str, dict[str, float]]:
    """Return the cost of a million new objects with one message each."""
    none = ledger(Bill())
    return {
        "naive consumer": million(none, reads=True),
        "Powertools idempotency": million(ledger(powertools()), reads=True),
        "the ledger, each claimed alone": million(ledger(counted.new_key()), reads=True),
        "the ledger, batches of 10 claimed together": million(ledger(counted.grouped(10), 10), reads=True),
        "the ledger, with a transaction": million(ledger(counted.new_key_with_transaction()), reads=True),
    }


def events() -> dict[str, dict[str, float]]:
    """Return the cost of a million events of each kind."""
    found = {}
    for name, case in counted.CASES.items():
        bill = case()
        found[name] = million(ledger(bill), reads=bill.gets > 0)
    return found


def audit() -> dict[str, float]:
    """Return the cost of one audit of a million objects that all agree: a listing, and a scan of their rows."""
    pipeline = MeteredPipeline()
    pipeline.put(counted.KEY, "1")
    pipeline.run()
    size = units.item_size(pipeline.item())
    read = size / units.READ_UNIT * EVENTUAL * prices.READ_UNIT
    listed = prices.S3_LIST / LIST_PAGE
    return {
        name: round(value * prices.MILLION, 3)
        for name, value in (("S3 LIST", listed), ("DynamoDB", read), ("all", listed + read))
    }


def kept(days: float = KEPT_DAYS, *, deletes: bool = False) -> dict[str, float]:
    """Return the cost of a million settled rows for some days, in the table and in its continuous backup. With
    `deletes` the ledger is complete, and its rows do not expire.
    """
    pipeline = MeteredPipeline(deletes=deletes)
    pipeline.put(counted.KEY, "1")
    pipeline.run()
    item = pipeline.item()
    assert ("expires_at" in item) is not deletes
    gigabytes = (units.item_size(item) + ROW_OVERHEAD) * prices.MILLION / GIGABYTE
    months = days / DAYS_OF_A_MONTH
    table_, backup = (gigabytes * months * price for price in (prices.STORAGE_GB_MONTH, prices.BACKUP_GB_MONTH))
    return {"table": round(table_, 2), "backup": round(backup, 2), "all": round(table_ + backup, 2)}


def alone(bill: Bill) -> dict[str, float]:
    """Return the dollars for a thousand changes whose messages come alone, without the processor's time.

    Each delivery is an invocation and a receive. Each but the last returns its message for a time.
    """
    deliveries = 1 + bill.requests["sqs.ChangeMessageVisibilityBatch"]
    parts = ledger(bill)
    parts["metrics"] *= BATCH
    parts["pollers"] = prices.SQS_REQUEST * (2 + deliveries) + prices.LAMBDA_REQUEST * deliveries
    return {"pipeline": 1_000 * sum(parts.values())}


def ways() -> dict[str, dict[str, float]]:
    """Return the dollars for a thousand files by each way to do work that takes long, without the time of the work."""
    here, machine = LocalRunner.STATE_MACHINE, 6
    rows = {
        # A worker has the same consumer. Its heartbeats, a write and a change of visibility, depend on the work.
        "Lambda, Managed Instances, or a worker without its heartbeats": (counted.new_key(), 0.0),
        "a state machine with one task, 6 hours": (counted.executed(here, machine), prices.STATE_TRANSITION),
        "a durable function with a step and a callback, 6 hours": (
            counted.executed(LocalRunner.DURABLE_FUNCTION, machine),
            OPERATIONS * prices.DURABLE_OPERATION,
        ),
        "the same, 3 days": (
            counted.executed(LocalRunner.DURABLE_FUNCTION, 72),
            OPERATIONS * prices.DURABLE_OPERATION,
        ),
    }
    return {
        name: (row := alone(bill))
        | {"Step Functions, or durable operations": 1_000 * place, "all": row["pipeline"] + 1_000 * place}
        for name, (bill, place) in rows.items()
    }


def metrics_of_a_month() -> dict[str, float]:
    """Return the monthly cost of the metrics that new objects and late copies of their messages write."""
    pipeline = MeteredPipeline()
    pipeline.put(counted.KEY, "1")
    pipeline.run()
    pipeline.resend()
    pipeline.run()
    return {"all": round(len(pipeline.stdout.metrics) * prices.METRIC_MONTH, 2)}


def idle() -> dict[str, dict[str, float]]:
    """Return the monthly cost of a default pipeline without uploads, at most: CloudWatch charges a metric only for the
    hours in which it has values.
    """
    alarms = [row for row in ALARMS if OBJECTS in row.kinds and row.need is None and row.call is not None]
    # Each metric of an alarm counts. `AuditMissing` has a second alarm, which shows that the audit has begun.
    metrics = len(alarms) + sum(bool(row.other) for row in alarms) + 2
    tick = prices.LAMBDA_REQUEST + AUDIT_GB_SECONDS * prices.LAMBDA_GB_SECOND
    rows = {
        f"{len(alarms) + 2} alarms": metrics * prices.ALARM_MONTH,
        f"{len(Call)} composite alarms": len(Call) * prices.COMPOSITE_MONTH,
        f"{AUDIT_METRICS} metrics of the audit": AUDIT_METRICS * prices.METRIC_MONTH,
        "receives of an empty queue": IDLE_RECEIVES * DAYS_OF_A_MONTH * prices.SQS_REQUEST,
        "the audit's function": TICKS * DAYS_OF_A_MONTH * tick,
    }
    return {name: {"dollars": round(value, 2)} for name, value in (*rows.items(), ("all", sum(rows.values())))}


def headline() -> str:
    """Return the sentence of the README: a million new files, and a month without any."""
    batches, month = compared()["the ledger, batches of 10 claimed together"]["all"], idle()["all"]["dollars"]
    return f"**${batches:.2f} per million new files, and at most ${month:.2f} per month for an idle pipeline**"


def lines() -> dict[str, dict[str, float]]:
    """Return the log lines of each kind of event, and the bytes of its lines and metrics, in tens: a line has the
    number of a line of code.
    """
    bills = {name: (case(), 1) for name, case in counted.CASES.items()}
    bills |= {f"new key, batch of {size}": (counted.grouped(size), size) for size in counted.GROUPS}
    return {
        name: {
            "log lines": bill.lines / changes,
            "bytes of log lines": round(bill.line_bytes / changes, -1),
            "bytes of metrics": round(bill.metric_bytes / changes, -1),
        }
        for name, (bill, changes) in bills.items()
    }


def measure() -> dict[str, Any]:
    """Return all rows of both tables."""
    return (
        compared()
        | {f"event: {name}": row for name, row in events().items()}
        | {
            "one run of the audit": audit(),
            "their rows, kept": kept(),
            "rows of all objects, each month": kept(DAYS_OF_A_MONTH, deletes=True),
            "metrics of new objects and copies, each month": metrics_of_a_month(),
        }
    )


def markdown(rows: Mapping[str, Mapping[str, float]], digits: int = 2, columns: Sequence[str] = ()) -> str:
    """Format numbers as docs/cost.md does, without zeros. With `columns`, only these."""
    columns = columns or list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [["", *columns], ["---", *["---:"] * len(columns)]]
    lines += [
        [name, *(f"{row[one]:.{digits}f}" if row.get(one) else "" for one in columns)] for name, row in rows.items()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def per_change() -> dict[str, dict[str, float]]:
    """Return requests, units, KB of log lines and dollars of each kind of event."""
    of_lines, dollars = lines(), events()
    return {name: row | _in_dollars(of_lines.get(name), dollars.get(name)) for name, row in counted.measure().items()}


def _in_dollars(of_lines: Mapping[str, float] | None, dollars: Mapping[str, float] | None) -> dict[str, float]:
    found = {}
    if of_lines:
        found[KB_OF_LINES] = of_lines["bytes of log lines"] / 1_000
    if dollars:
        found[DOLLARS] = dollars["all"]
    return found


def page() -> dict[str, str]:
    """Return the tables of docs/cost.md by the names above them."""
    return {
        "prices": markdown({name: {"dollars": price} for name, price in prices.TABLE.items()}, digits=3),
        "new objects": markdown(compared()),
        "counted": markdown(per_change(), columns=COLUMNS),
        "outputs": markdown(outputs.measure()),
        "in addition": markdown(
            {
                "a run of the audit": audit(),
                "their rows, kept": kept(),
                "rows of all objects, each month": kept(DAYS_OF_A_MONTH, deletes=True),
                "metrics of new objects and copies, each month": metrics_of_a_month(),
            },
            digits=3,
        ),
        "idle": markdown(idle()),
    }


def long_page() -> dict[str, str]:
    """Return the table of docs/long-work.md by the name above it."""
    return {"ways": markdown(ways(), digits=3)}


def write() -> None:
    """Write the tables into docs/cost.md and docs/long-work.md, and the sentence of the README, between comments."""
    for path, tables in ((PAGE, page()), (LONG_PAGE, long_page()), (README, {"cost": headline()})):
        text = path.read_text()
        for name, content in tables.items():
            begin, end = f"<!-- begin: {name} -->\n", "\n<!-- end -->"
            head, found, rest = text.partition(begin)
            assert found, f"{path} has no place for {name!r}"
            text = head + begin + content + end + rest.partition(end)[2]
        path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables of docs/cost.md anew")
    if parser.parse_args().write:
        write()
        return
    print(f"Prices of {prices.AS_OF}, us-east-1: {json.dumps(prices.TABLE, indent=2)}\n")
    for title, rows in (
        ("A million new objects", compared()),
        ("A million events", events()),
    ):
        print(table(title, rows))
    print(table("One run of the audit over a million objects", {"": audit()}))
    print(table(f"A million rows for {KEPT_DAYS} days", {"": kept()}))


if __name__ == "__main__":
    main()
