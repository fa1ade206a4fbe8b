"""Write one row for each file of invoices, with their number and their sum."""

import os

from intake_ledger import Commit, ObjectChange


def process(change: ObjectChange) -> Commit:
    # A file without this header, or with another amount, goes to the dead-letter queue with the reason.
    amounts = [row["cents"] for row in change.csv_rows(columns={"number": str, "cents": int})]
    row = {"file": {"S": change.key}, "invoices": {"N": str(len(amounts))}, "cents": {"N": str(sum(amounts))}}
    # One transaction with the ledger's commit: exactly once, and never over a newer state.
    return Commit(change.key, transact=[{"Put": {"TableName": os.environ["TOTALS"], "Item": row}}])
