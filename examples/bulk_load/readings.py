"""The processor: a file has one reading of a sensor, and one statement writes the readings of a call."""

import json
import os
from collections.abc import Sequence

import psycopg

from intake_ledger import ObjectChange, Unprocessable

TABLE = """
CREATE TABLE readings (file text PRIMARY KEY, fence bigint NOT NULL, sensor text NOT NULL, celsius float8 NOT NULL)
"""
UPSERT = """
INSERT INTO readings (file, fence, sensor, celsius)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::float8[])
ON CONFLICT (file) DO UPDATE SET fence = excluded.fence, sensor = excluded.sensor, celsius = excluded.celsius
WHERE excluded.fence > readings.fence
"""
"""The last line keeps a late worker out of each row by itself. The other rows of its call are written."""


def process_batch(changes: Sequence[ObjectChange]) -> dict[str, Exception | None]:
    """Write the readings of these files in one transaction."""
    rows, results = [], dict[str, Exception | None]()
    for change in sorted(changes, key=lambda one: one.key):  # two workers lock rows in one order
        try:
            rows.append((change.key, change.fence, *reading(change.read(1_000))))
        except Exception as error:  # noqa: BLE001 - of this file. The others are loaded
            results[change.idempotency_key] = error
        else:
            results[change.idempotency_key] = None
    if rows:
        # An error here is that of the call. It counts no attempt, and each file is loaded alone then.
        with psycopg.connect(os.environ["READINGS_DSN"]) as connection:
            connection.execute(UPSERT, [list(column) for column in zip(*rows, strict=True)])
    return results


def process(change: ObjectChange) -> None:
    """The same for one file, to compare."""
    [result] = process_batch([change]).values()
    if result is not None:
        raise result


def reading(content: bytes) -> tuple[str, float]:
    """The sensor and its temperature.

    Raises:
        Unprocessable: The file has no reading.

    """
    try:
        found = json.loads(content)
        return str(found["sensor"]), float(found["celsius"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unprocessable(f"no reading: {type(error).__name__}") from error
