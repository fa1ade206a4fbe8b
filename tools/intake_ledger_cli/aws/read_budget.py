"""Bounds the requests of a list that searches the table, and remembers how far the list came."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from intake_ledger_cli.errors import UsageError, describe_error, is_passing

SEARCH_REQUESTS = 100
"""Requests of a list that searches. A request reads up to 1 MB, which is about 2,000 rows."""
LEAST_REQUESTS = 50
"""The smallest bound. A list reads the 20 partitions of the index at once, so that fewer may not advance."""
_ROWS_OF_A_REQUEST = 500
"""A careful number: rows with long reasons have 2 KB."""


class BudgetSpentError(Exception):
    """The list may send no further request."""


@dataclass(slots=True)
class ReadBudget:
    """The requests that a list may send."""

    most: int
    used: int = 0
    reached: tuple[Any, ...] | None = None
    """The place of the list up to which all rows were seen."""
    stopped: bool = False
    """True if rows may follow that were not read."""
    why: str = ""
    """Why AWS did not answer the last request. Empty: the requests are used up."""

    @property
    def token(self) -> str | None:
        """The token with which `--after` continues a list that stopped."""
        return write_token(self.reached) if self.stopped and self.reached is not None else None

    def pages(self, pages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield pages of DynamoDB.

        Raises:
            BudgetSpentError: More pages follow, and the requests are used up. Or DynamoDB throttles them after the
                first rows, so that these are shown.
            ClientError: It throttles them before, or refuses them.

        """
        remaining, more = iter(pages), True
        while more:
            if self.used >= self.most:
                raise BudgetSpentError
            try:
                page = next(remaining, None)
            except ClientError as error:
                if self.reached is None or not is_passing(error):
                    raise
                self.why = describe_error(error)
                raise BudgetSpentError from error
            if page is None:
                return
            self.used += 1
            yield page
            more = "LastEvaluatedKey" in page


def requests_for(limit: int | None) -> int:
    """Return the default bound: it searches for a while, and reads all rows that it prints."""
    return SEARCH_REQUESTS + (limit or 0) // _ROWS_OF_A_REQUEST


def write_token(place: tuple[Any, ...]) -> str:
    """Encode a place of a list for the command line."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def read_token(token: str, *kinds: type) -> tuple[Any, ...]:
    """Decode a place of a list.

    Args:
        token: of `write_token`.
        kinds: the types of its values.

    Raises:
        UsageError: It is not a token, or one of another list.

    """
    values = token_values(token)
    if not isinstance(values, list) or [type(value) for value in values] != list(kinds):
        raise UsageError(f"--after {token} is not a token of this list: copy the token that `list` printed")
    return tuple(values)


def token_values(token: str) -> Any:
    """The decoded content of a token. None: it is not one."""
    try:
        return json.loads(base64.urlsafe_b64decode(token))
    except ValueError:  # also binascii's
        return None
