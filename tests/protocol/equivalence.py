"""Compare two DynamoDB clients on the same random requests: their answers must be equal."""

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from intake_ledger.audit.table import AuditTable
from intake_ledger.ledger.conditions import (
    NO_ROW,
    Condition,
    ConditionFailed,
    lease_owned,
    no_late_writes,
    no_other_late_writes,
    row_unchanged,
)
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import STORED_STATUSES, Ordering, Row, RowKey

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEYS = (RowKey("bucket/one", "p@latest"), RowKey("bucket/two", "p@v#1"))

TABLE: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}

optional_text = st.none() | st.sampled_from(["", "a", "b", "ä"])
optional_number = st.none() | st.integers(0, 3)

states = st.sampled_from(["v#1", "v#2", "absent"])

# Few values, so that conditions hold about as often as they do not.
rows = st.builds(
    Row,
    status=st.sampled_from(STORED_STATUSES),
    fence=st.integers(1, 2),
    version_id=st.none() | st.sampled_from(["1", "2"]),
    kind=st.sampled_from([StateKind.OBJECT, StateKind.MARKER]),
    lease_until=optional_number,
    lease_owner=st.sampled_from(["me", "you"]),
    reason=optional_text,
    expires_at=optional_number,
    committed_state=st.none() | states,
    late_writes=st.frozensets(states),
    transactional=st.none() | st.just(1),
)


@dataclass(frozen=True)
class Step:
    """One request of the ledger."""

    kind: str
    key: RowKey
    row: Row
    after: Row
    now: int

    @property
    def grown(self) -> Row:
        """The row after late writes were added. The ledger never adds and removes late writes in one request."""
        return replace(self.after, late_writes=self.row.late_writes | self.after.late_writes)

    @property
    def cleared(self) -> Row:
        """The row after the late writes that were read are removed."""
        return replace(self.after, late_writes=frozenset())

    @property
    def kept(self) -> Row:
        """The row after a request that does not change late writes."""
        return replace(self.after, late_writes=self.row.late_writes)


_TOKENS = count()
KINDS = ("insert", "swap", "end", "end marked", "delete", "late write", "mark new", "mark", "get", "get many", "scan")


def plans(*more: str) -> st.SearchStrategy[list[Step]]:
    """A few requests after each other, of these kinds too."""
    step = st.builds(
        Step,
        kind=st.sampled_from((*KINDS, *more)),
        key=st.sampled_from(KEYS),
        row=rows,
        after=rows,
        now=st.integers(0, 3),
    )
    return st.lists(step, max_size=12)


def same_answers(ours: "DynamoDBClient", theirs: "DynamoDBClient", plan: list[Step]) -> None:
    """Assert that every answer, every refusal with its old row, and what stands there afterwards are the same."""
    for step in plan:
        assert answer(ours, step) == answer(theirs, step), step
    assert LedgerTable(ours, "table").get_items(KEYS) == LedgerTable(theirs, "table").get_items(KEYS)


def empty(client: "DynamoDBClient") -> "DynamoDBClient":
    """The client, its table without the rows of these tests."""
    for key in KEYS:
        client.delete_item(TableName="table", Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}})
    return client


def answer(client: "DynamoDBClient", step: Step) -> object:
    """Return the store's answer: a value, or the row that caused a refusal."""
    try:
        return _answer(LedgerTable(client, "table"), AuditTable(client, "table"), step)
    except ConditionFailed as refused:
        return "refused", refused.row


def _answer(table: LedgerTable, audit: AuditTable, step: Step) -> object:
    marks = {"audit_resubmitted_state": "v#1", "audit_resubmitted_at": step.now}
    match step.kind:
        case "insert":
            table.insert(step.key, step.row)
        case "insert many":
            return sorted(key.pk for key in table.insert_many(dict.fromkeys(KEYS, step.row)))
        case "commit many":
            return sorted(key.pk for key in table.commit_many(dict.fromkeys(KEYS, (step.row, step.kept))))
        case "swap":
            table.update(step.key, step.row, step.cleared, row_unchanged(step.row, step.now))
        case "end":
            table.update(step.key, step.row, step.grown, lease_owned(step.row))
        case "end marked":
            row = step.row
            condition = no_late_writes(row) if step.now % 2 else no_other_late_writes(row, row.identity)
            table.update(step.key, step.row, step.kept, condition)
        case "late write":
            table.report_late_write(step.key, replace(step.row, fence=step.now))
        case "end with":
            other: Any = {"Put": {"TableName": "other", "Item": {"pk": {"S": "a"}, "sk": {"S": "b"}}}}
            token = f"token-{next(_TOKENS)}"
            owned, clears = lease_owned(step.row), bool(step.now % 2)
            table.update_with(step.key, step.row, step.after, owned, [other], token=token, clear_late_writes=clears)
        case "delete":
            table.delete(step.key, lease_owned(step.row))
        case "mark new":
            table.mark(step.key, marks, NO_ROW)
        case "mark":
            table.mark(step.key, marks, row_unchanged(step.row, step.now))
        case "mark many":
            seen = {":seen_fence": step.row.fence, ":seen_status": step.row.status}
            held = Condition("#fence = :seen_fence AND #status = :seen_status", ("fence", "status"), seen)
            kinds = (None, NO_ROW, held)
            table.mark_many({key: (marks, kinds[(step.now + n) % 3]) for n, key in enumerate(KEYS)})
        case "get many":
            return sorted(table.get_items(KEYS).items(), key=lambda one: one[0].pk)
        case "scan":
            pages = [audit.held("p", ordering) for ordering in Ordering]
            found = [[row for page in one for row in page.rows] for one in pages]
            return [sorted(one, key=lambda row: row.row_key.pk) for one in found]
    return table.get(step.key)
