"""Evaluates DynamoDB's update expressions, for tables in memory.

The grammar is that of
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html.
"""

from collections.abc import Mapping
from typing import Any

from intake_ledger_testing.table_expressions import SETS, ExpressionError, Item, Parser
from intake_ledger_testing.table_values import Path, Value, comparable, number_text, write_at

_CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")


def updated(request: Mapping[str, Any], item: Mapping[str, Value]) -> Item:
    """Return the item after `UpdateExpression`. All operands are read from the item before.

    Args:
        request: with `UpdateExpression`, and the names and values of its placeholders.
        item: the present item, or the key of a new one.

    Raises:
        ExpressionError: The expression is malformed, or does not fit the item.

    """
    sets, removes = _changes(request, item)
    _refuse_overlaps([*(path for path, _ in sets), *removes])
    new: Item = dict(item)
    # Positions in a list are those of the item before. Larger ones first, so that they stay valid.
    try:
        for path, value in sets:
            new = write_at(new, path, value)
        for path in sorted(removes, key=lambda one: [(isinstance(part, int), part) for part in one], reverse=True):
            new = write_at(new, path, None)
    except LookupError:
        text = "The document path provided in the update expression is invalid for update"
        raise ExpressionError(text) from None
    return new


def _changes(request: Mapping[str, Any], item: Mapping[str, Value]) -> tuple[list[tuple[Path, Value]], list[Path]]:
    """The new values and the removed paths of an update."""
    parser = Parser(request["UpdateExpression"], request, item)
    sets: list[tuple[Path, Value]] = []
    removes: list[Path] = []
    clause = parser.take(*_CLAUSES)
    while clause:
        path = parser.path()
        value: Value | None = None
        if clause == "SET":
            parser.expect("=")
            value = _assigned(parser)
        elif clause != "REMOVE":
            value = _added(clause, parser.value_at(path), parser.operand())
        if value is None:
            removes.append(path)
        else:
            sets.append((path, value))
        if not parser.take(","):
            clause = parser.take(*_CLAUSES)
    if parser.next:
        raise ExpressionError(f"Syntax error in {request['UpdateExpression']!r} near {parser.next!r}")
    return sets, removes


def _assigned(parser: Parser) -> Value:
    value = _term(parser)
    while sign := parser.take("+", "-"):
        other = _term(parser)
        if value.keys() != {"N"} or other.keys() != {"N"}:
            raise ExpressionError(f"Incorrect operand type for operator {sign}: both must be numbers")
        a, b = comparable(value)[1], comparable(other)[1]
        value = {"N": number_text(a + b if sign == "+" else a - b)}
    return value


def _term(parser: Parser) -> Value:
    if function := parser.calls("if_not_exists", "list_append"):
        if function == "if_not_exists":
            path = parser.path()
            parser.expect(",")
            other = _term(parser)
            found: Value | None = parser.value_at(path) or other
        else:
            first = _term(parser)
            parser.expect(",")
            second = _term(parser)
            if first.keys() != {"L"} or second.keys() != {"L"}:
                raise ExpressionError("Incorrect operand type for list_append: both must be lists")
            found = {"L": [*first["L"], *second["L"]]}
        parser.expect(")")
    else:
        found = parser.operand()
    if found is None:
        raise ExpressionError("The provided expression refers to an attribute that does not exist in the item")
    return found


def _added(clause: str, old: Value | None, operand: Value | None) -> Value | None:
    """The value after ADD or DELETE. None: the attribute is removed, since DynamoDB has no empty sets."""
    if operand is None or not operand.keys() <= SETS | ({"N"} if clause == "ADD" else set()):
        raise ExpressionError(f"Incorrect operand type for operator {clause}")
    [(kind, content)] = operand.items()
    if old is None:
        return operand if clause == "ADD" else None
    if old.keys() != operand.keys():
        raise ExpressionError("An operand in the update expression has an incorrect data type")
    if kind == "N":
        return {"N": number_text(comparable(old)[1] + comparable(operand)[1])}
    present = {comparable({kind[0]: one}): one for one in old[kind]}
    given = {comparable({kind[0]: one}): one for one in content}
    if clause == "ADD":
        return {kind: sorted((present | given).values())}
    left = [one for name, one in present.items() if name not in given]
    return {kind: left} if left else None


def _refuse_overlaps(paths: list[Path]) -> None:
    for number, path in enumerate(paths):
        for other in paths[:number]:
            shorter = min(len(path), len(other))
            if path[:shorter] == other[:shorter]:
                raise ExpressionError("Invalid UpdateExpression: Two document paths overlap with each other")
