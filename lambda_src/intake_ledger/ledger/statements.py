"""PartiQL statements for several writes in one request.

Statements differ only by the names in them, and there are few combinations of names. Each text is made once.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from intake_ledger.ledger.conditions import Condition
from intake_ledger.protocol import RowKey, to_dynamodb


def insert_statement(table: str, item: Mapping[str, Any]) -> Any:
    """Insert an item, in DynamoDB's typed form, if there is none with its key."""
    return {"Statement": _insert_text(table, tuple(item)), "Parameters": list(item.values())}


def update_statement(
    table: str, key: RowKey, changed: Mapping[str, Any], removed: Iterable[str], condition: Condition
) -> Any:
    """Set and remove attributes of an item, if the condition holds."""
    where, names = _condition_text(condition.expression)
    values = [*changed.values(), key.pk, key.sk, *(condition.values[name] for name in names)]
    return {
        "Statement": _update_text(table, tuple(changed), tuple(removed), where),
        "Parameters": list(to_dynamodb(dict(enumerate(values))).values()),
    }


@lru_cache
def _condition_text(expression: str) -> tuple[str, list[str]]:
    """The expression in PartiQL, and the names of the values for its question marks."""
    text = re.sub(r"attribute_not_exists\(#(\w+)\)", r'"\1" IS MISSING', expression)
    return re.sub(r":\w+", "?", re.sub(r"#(\w+)", r'"\1"', text)), re.findall(r":\w+", expression)


@lru_cache
def _insert_text(table: str, names: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{name}': ?" for name in names)
    return f'INSERT INTO "{table}" VALUE {{{listed}}}'


@lru_cache
def _update_text(table: str, changed: tuple[str, ...], removed: tuple[str, ...], condition: str) -> str:
    clauses = [*(f'SET "{name}" = ?' for name in changed), *(f'REMOVE "{name}"' for name in removed)]
    return f'UPDATE "{table}" {" ".join(clauses)} WHERE "pk" = ? AND "sk" = ? AND {condition}'
