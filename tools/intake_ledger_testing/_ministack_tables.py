"""DynamoDB tables on MiniStack, by the rules of AWS.

MiniStack writes no stream records for PartiQL statements, and its CloudFormation enables neither TTL nor point-in-time
recovery. Here it does.
"""

# ruff: noqa: SLF001 - MiniStack's own names
import copy
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from ministack.services import dynamodb  # type: ignore[import-untyped]
from ministack.services.cloudformation import provisioners  # type: ignore[import-untyped]

Item = dict[str, Any]
_changes: ContextVar[list[tuple[str, Item | None, Item | None]] | None] = ContextVar("changes", default=None)
"""Table, old and new item of each write of the statements that run."""


def correct() -> None:
    """Put these functions in the place of MiniStack's."""
    put, remove = dynamodb._set_item, dynamodb._remove_item
    create, update = provisioners._ddb_create, provisioners._ddb_update

    def put_item(table: Mapping[str, Any], partition: str, sort: str, item: Item) -> Item | None:
        old: Item | None = put(table, partition, sort, item)
        _note(table, old, item)
        return old

    def remove_item(table: Mapping[str, Any], partition: str, sort: str) -> Item | None:
        old: Item | None = remove(table, partition, sort)
        if old is not None:
            _note(table, old, None)
        return old

    def create_table(logical_id: str, properties: Mapping[str, Any], stack: str) -> Any:
        made = create(logical_id, properties, stack)
        _finish(made[0], {}, properties)
        return made

    def update_table(
        physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any], *others: Any, **names: Any
    ) -> Any:
        made = update(physical_id, old, new, *others, **names)
        _finish(made[0], old, new)
        return made

    dynamodb._set_item, dynamodb._remove_item = put_item, remove_item
    for name in ("_execute_statement", "_execute_transaction"):
        setattr(dynamodb, name, _recorded(getattr(dynamodb, name)))
    provisioners._ddb_create = create_table
    provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::Table"] |= {"create": create_table, "update": update_table}


def _note(table: Mapping[str, Any], old: Item | None, new: Item | None) -> None:
    if (changes := _changes.get()) is not None:
        changes.append((table["TableName"], copy.deepcopy(old), copy.deepcopy(new)))


def _recorded(execute: Callable[[Item], tuple[int, Any, Any]]) -> Callable[[Item], tuple[int, Any, Any]]:
    """Return MiniStack's function of statements, with a stream record of each write that is not rolled back."""

    def run(data: Item) -> tuple[int, Any, Any]:
        token = _changes.set([])
        try:
            answer, changes = execute(data), _changes.get() or []
        finally:
            _changes.reset(token)
        for table, old, new in changes if answer[0] == 200 else ():
            kind = "REMOVE" if new is None else "INSERT" if old is None else "MODIFY"
            dynamodb._emit_stream_event(table, kind, old, new)
        return answer

    return run


def _finish(table: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Set what CloudFormation sets in requests of their own, where the template has changed."""
    for name, request in (
        ("TimeToLiveSpecification", dynamodb._update_ttl),
        ("PointInTimeRecoverySpecification", dynamodb._update_continuous_backups),
    ):
        if (wanted := new.get(name)) and wanted != old.get(name):
            request({"TableName": table, name: wanted})
