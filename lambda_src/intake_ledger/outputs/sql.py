"""Put an object's effect into a SQL transaction that a late worker cannot commit.

The table `intake_objects` has one row for each object, with the highest fence that has written. `lock_object` is the
first statement of the processor's transaction. This module imports no driver. It works with the DB-API 2 cursor of any
driver for PostgreSQL, and with SQLite.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from intake_ledger.protocol.errors import Overtaken

TABLE = "intake_objects"
"""The table's default name."""

_COLUMNS = ("pipeline", "bucket", "key", "version", "fence", "idempotency_key", "version_id", "removed")


class FencedChange(Protocol):
    """The properties of an `ObjectChange` that a row holds."""

    @property
    def bucket(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def version_id(self) -> str | None: ...
    @property
    def fence(self) -> int: ...
    @property
    def fenced_version(self) -> str | None: ...
    @property
    def idempotency_key(self) -> str: ...


@runtime_checkable
class FencedSet(Protocol):
    """The properties of a `FileSet` that a row holds. `version` is in the column `version_id`."""

    @property
    def bucket(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def idempotency_key(self) -> str: ...


class Cursor(Protocol):
    """A cursor of DB-API 2."""

    def execute(self, operation: Any, parameters: Any = ..., /) -> object:
        """Run a statement."""

    def fetchall(self) -> Sequence[Any]:
        """The rows of the statement's result."""


def schema(table: str = TABLE) -> str:
    """Return the statement that creates the table of objects if it does not exist. Run it once, as the table's owner.

    Args:
        table: the table's name, with a schema if it has one (`intake.objects`).

    Raises:
        ValueError: The name is empty, or has a NUL character.

    """
    return f"""\
CREATE TABLE IF NOT EXISTS {_quoted(table)} (
  pipeline text NOT NULL,         -- '' unless several pipelines process the same objects
  bucket text NOT NULL,
  key text NOT NULL,
  version text NOT NULL,          -- '' with LATEST; the version with EVERY_VERSION
  fence bigint NOT NULL,          -- of the last attempt that wrote
  idempotency_key text NOT NULL,  -- of the state that it wrote
  version_id text,                -- of this state; NULL without versioning
  removed boolean NOT NULL,       -- the object was deleted, and so are its rows
  written_at timestamp with time zone NOT NULL,
  PRIMARY KEY (pipeline, bucket, key, version))"""


def lock_object(
    cursor: Cursor,
    change: FencedChange | FencedSet,
    *,
    table: str = TABLE,
    pipeline: str = "",
    paramstyle: str | None = None,
) -> None:
    """Lock the row of an object or a set of files until the end of the transaction, and refuse a late worker.

    Call it before all other statements of the transaction. It waits for another transaction that has the row. The
    row keeps the fence of this attempt when the transaction commits. The same attempt may call it again. With
    `Ordering.EVERY_VERSION`, each version has its row.

    Args:
        cursor: an open cursor of a connection that is not in autocommit mode.
        change: the argument of the processor, an `ObjectChange` or a `FileSet`.
        table: the table's name, as for `schema`.
        pipeline: a name, if several pipelines process the same objects, or if a folder is the key of a set and of an
            object; none when omitted.
        paramstyle: DB-API's name of the driver's placeholders. When omitted, the driver's module gives it.

    Raises:
        Overtaken: An attempt with a higher fence has written. Let it propagate: nothing of this transaction may be
            committed.
        RuntimeError: The connection is in autocommit mode, so that the lock has ended already. It is reported for
            psycopg, psycopg2 and sqlite3, which can tell.
        TypeError: The driver does not name its placeholders. Pass `paramstyle`.
        ValueError: `table` or `paramstyle` is not valid.

    """
    style = paramstyle or _paramstyle_of(cursor)
    if isinstance(change, FencedSet):
        # It is never removed, and its fence orders all of its versions.
        of_state = {"version": "", "version_id": change.version, "removed": False}
    else:
        removed = change.kind != "created"
        of_state = {"version": change.fenced_version or "", "version_id": change.version_id, "removed": removed}
    values = {
        "pipeline": pipeline,
        "bucket": change.bucket,
        "key": change.key,
        "fence": change.fence,
        "idempotency_key": change.idempotency_key,
        **of_state,
    }
    cursor.execute(*_statement(_quoted(table), values, style))
    # Not the row count: in psycopg's pipeline mode it is not known yet.
    locked = cursor.fetchall()
    if _is_autocommit(cursor):
        raise RuntimeError("the connection is in autocommit mode: lock_object needs a transaction with your writes")
    if not locked:
        raise Overtaken(f"an attempt with a higher fence than {change.fence} has written to the database")


def _statement(table: str, values: Mapping[str, Any], style: str) -> tuple[str, Mapping[str, Any] | Sequence[Any]]:
    """The statement that inserts or updates the row, and its parameters."""
    match style:
        case "format" | "pyformat":
            marks = dict.fromkeys(_COLUMNS, "%s")
            table = table.replace("%", "%%")
        case "qmark":
            marks = dict.fromkeys(_COLUMNS, "?")
        case "numeric":
            marks = {name: f":{number}" for number, name in enumerate(_COLUMNS, 1)}
        case "named":
            marks = {name: f":{name}" for name in _COLUMNS}
        case _:
            raise ValueError(f"the paramstyle is {style!r}, expected format, pyformat, qmark, numeric or named")
    updated = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS[4:], "written_at"))
    # The table is an identifier, which cannot be a parameter. `_quoted` quotes it.
    statement = (
        f"INSERT INTO {table} AS seen ({', '.join(_COLUMNS)}, written_at)"  # noqa: S608
        f" VALUES ({', '.join(marks[name] for name in _COLUMNS)}, CURRENT_TIMESTAMP)"
        f" ON CONFLICT (pipeline, bucket, key, version) DO UPDATE SET {updated}"
        # Equal: the same attempt again, for example after its connection was cut.
        " WHERE seen.fence <= excluded.fence RETURNING fence"
    )
    return statement, values if style == "named" else tuple(values[name] for name in _COLUMNS)


def _quoted(table: str) -> str:
    parts = table.split(".")
    if not all(parts) or "\0" in table:
        raise ValueError(f"the table is {table!r}, expected a name, or a schema and a name")
    return ".".join('"{}"'.format(part.replace('"', '""')) for part in parts)


def _paramstyle_of(cursor: Cursor) -> str:
    """The `paramstyle` of the driver, which is an attribute of its module."""
    # `__class__` is the driver's class even if a tracing library has wrapped the cursor.
    for kind in (*cursor.__class__.__mro__, *type(cursor).__mro__):
        module = kind.__module__
        while module:
            if isinstance(style := getattr(sys.modules.get(module), "paramstyle", None), str):
                return style
            module = module.rpartition(".")[0]
    raise TypeError(f"{type(cursor).__module__} has no paramstyle: pass lock_object(paramstyle=...)")


def _is_autocommit(cursor: Cursor) -> bool:
    """True if the driver reports that no transaction is open after a statement."""
    connection = getattr(cursor, "connection", None)
    if (in_transaction := getattr(connection, "in_transaction", None)) is not None:  # sqlite3
        return in_transaction is False
    status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg, psycopg2: libpq's values
    return status is not None and int(status) == 0
