"""Evaluates DynamoDB's condition expressions, for tables in memory.

The grammar is that of
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html. Tests compare
the answers with those of moto.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from intake_ledger_testing.table_values import Path, Value, comparable, read_at, size_of

Item = dict[str, Value]

_TOKEN = re.compile(r"\s*([#:]\w+|[A-Za-z_]\w*|\d+|<>|<=|>=|[=<>(),.\[\]+-])")
_ORDERED = frozenset({"S", "N", "B"})
SETS = frozenset({"SS", "NS", "BS"})
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


class ExpressionError(Exception):
    """DynamoDB would answer with a validation error."""


class Parser:
    """Reads tokens of an expression, and evaluates operands for one item."""

    def __init__(self, text: str, request: Mapping[str, Any], item: Mapping[str, Value]) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._text = text
        self._names: Mapping[str, str] = request.get("ExpressionAttributeNames", {})
        self._values: Mapping[str, Value] = request.get("ExpressionAttributeValues", {})
        self._item = item

    @property
    def next(self) -> str:
        """The next token. Empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, *wanted: str) -> str:
        """Return the next token in upper case and go on, if it is one of the wanted ones. Otherwise return ''."""
        token = self.next.upper()
        if token not in wanted:
            return ""
        self._at += 1
        return token

    def expect(self, wanted: str) -> None:
        """Go on if the next token is the wanted one."""
        if not self.take(wanted):
            raise ExpressionError(f"Syntax error in {self._text!r}: expected {wanted} before {self.next!r}")

    def path(self) -> Path:
        """Read a document path, such as `a.#b[0]`."""
        path: list[str | int] = [self._name()]
        while sign := self.take(".", "["):
            if sign == ".":
                path.append(self._name())
            else:
                path.append(int(self._token()))
                self.expect("]")
        return tuple(path)

    def operand(self) -> Value | None:
        """Read a value, a path or a function with a value. None: the item has no such attribute."""
        if self.next.startswith(":"):
            name = self._token()
            if name not in self._values:
                raise ExpressionError(f"An expression attribute value used in expression is not defined: {name}")
            return self._values[name]
        if self._calls("size"):
            size = size_of(read_at(self._item, self.path()))
            self.expect(")")
            return None if size is None else {"N": str(size)}
        return read_at(self._item, self.path())

    def condition(self) -> bool:
        """Read and evaluate alternatives."""
        holds = self._all()
        while self.take("OR"):
            holds = self._all() or holds
        return holds

    def calls(self, *names: str) -> str:
        """Return the name of the called function and go on behind its parenthesis, or return ''."""
        return next((name for name in names if self._calls(name)), "")

    def value_at(self, path: Path) -> Value | None:
        """The item's value at a path."""
        return read_at(self._item, path)

    def _all(self) -> bool:
        holds = self._not()
        while self.take("AND"):
            holds = self._not() and holds
        return holds

    def _not(self) -> bool:
        if self.take("NOT"):
            return not self._not()
        if self.take("("):
            holds = self.condition()
            self.expect(")")
            return holds
        name = self.calls("attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains")
        if name:
            return self._function(name)
        return self._comparison()

    def _function(self, name: str) -> bool:
        path = self.path()
        found = read_at(self._item, path)
        if name.endswith("exists"):
            holds = (found is not None) is (name == "attribute_exists")
        else:
            self.expect(",")
            other = self.operand()
            holds = found is not None and other is not None and _FUNCTIONS[name](found, other)
        self.expect(")")
        return holds

    def _comparison(self) -> bool:
        literal = self.next.startswith(":")
        left = self.operand()
        if self.take("BETWEEN"):
            low = self.operand()
            self.expect("AND")
            high = self.operand()
            return compare(left, ">=", low) and compare(left, "<=", high)
        if self.take("IN"):
            self.expect("(")
            holds = compare(left, "=", self.operand())
            while self.take(","):
                holds = compare(left, "=", self.operand()) or holds
            self.expect(")")
            return holds
        operator = self.take("=", "<>", *_COMPARISONS)
        if not operator:
            raise ExpressionError(f"Syntax error in {self._text!r}: expected a comparison before {self.next!r}")
        literals = [left] if literal else []
        literal = self.next.startswith(":")
        right = self.operand()
        literals += [right] if literal else []
        if operator in _COMPARISONS and any(value is not None and not value.keys() <= _ORDERED for value in literals):
            raise ExpressionError(f"Incorrect operand type for operator {operator} in {self._text!r}")
        return compare(left, operator, right)

    def _calls(self, name: str) -> bool:
        # The names of functions are case-sensitive.
        if self._tokens[self._at : self._at + 2] != [name, "("]:
            return False
        self._at += 2
        return True

    def _name(self) -> str:
        token = self._token()
        if token.startswith("#"):
            if token not in self._names:
                raise ExpressionError(f"An expression attribute name used in the document path is not defined: {token}")
            return self._names[token]
        if not re.match(r"[A-Za-z_]", token):
            raise ExpressionError(f"Syntax error in {self._text!r}: expected a name, found {token!r}")
        return token

    def _token(self) -> str:
        token = self.next
        self._at += 1
        return token


def holds(request: Mapping[str, Any], item: Mapping[str, Value]) -> bool:
    """True if the request has no condition, or the item satisfies it. An absent item has no attributes.

    Args:
        request: with `ConditionExpression`, and the names and values of its placeholders.
        item: the present item.

    Raises:
        ExpressionError: The expression is malformed.

    """
    if "ConditionExpression" not in request:
        return True
    parser = Parser(request["ConditionExpression"], request, item)
    found = parser.condition()
    if parser.next:
        raise ExpressionError(f"Syntax error in {request['ConditionExpression']!r} near {parser.next!r}")
    return found


def compare(left: Value | None, operator: str, right: Value | None) -> bool:
    """Compare two values. If one is missing or they have different types, only `<>` is true."""
    if left is None or right is None or left.keys() != right.keys():
        return operator == "<>"
    a, b = comparable(left), comparable(right)
    if operator in ("=", "<>"):
        return (a == b) is (operator == "=")
    return left.keys() <= _ORDERED and _COMPARISONS[operator](a[1], b[1])


@cache
def _tokens(text: str) -> list[str]:
    tokens: list[str] = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        raise ExpressionError(f"Syntax error in {text!r}")
    return tokens


def _contains(found: Value, other: Value) -> bool:
    [(kind, content)] = found.items()
    if kind in ("S", "B"):
        return other.keys() == found.keys() and comparable(other)[1] in comparable(found)[1]
    if kind in SETS:
        return comparable(other) in [comparable({kind[0]: one}) for one in content]
    return kind == "L" and any(comparable(one) == comparable(other) for one in content)


_FUNCTIONS: dict[str, Callable[[Value, Value], bool]] = {
    "attribute_type": lambda found, other: next(iter(found)) == other.get("S"),
    "begins_with": lambda found, other: (
        found.keys() == other.keys() <= {"S", "B"} and comparable(found)[1].startswith(comparable(other)[1])
    ),
    "contains": _contains,
}
