"""The statements that are sent to Athena, run by the local AWS over files of a run as the audit writes them.

The local AWS does not know lists of files. So its tables have the files in folders of their partition.
"""

from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from cdk_intake_ledger.testing import LocalAws
from intake_ledger.audit.diff import Window
from intake_ledger.audit.join.athena import PARTITION, Athena, AthenaResult, statements
from intake_ledger.audit.join.duckdb import Join, Slice, write
from intake_ledger.audit.relations import COLUMNS, HELD, LISTED, held_entry, listed_entry
from intake_ledger.audit.table import AuditTable
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Ordering
from tests.integration.test_audit_join import ODD
from tests.unit.audit.support import AuditWorld
from tests.unit.support import BUCKET, DAY, HOUR, PIPELINE

DATABASE, FILES, RUN = "audited", "athena-files", "run-1"
WORK_GROUP = "primary"
GLUE = {"VARCHAR": "string", "BIGINT": "bigint", "BOOLEAN": "boolean"}
WHOLE = Slice("", "", 0, 0, 0, 0, 0)


def entries() -> dict[str, list[list[Any]]]:
    """Objects with keys of all characters: lost, overwritten, agreeing and fresh ones, and rows of removed objects."""
    world = AuditWorld()
    for number, key in enumerate(ODD):
        state = world.s3.put(key, age=HOUR // 2 if number % 5 == 4 else 3 * DAY)
        if number % 5 < 3:
            world.commit(key, state)
        if number % 5 == 1:
            world.s3.put(key)
        if number % 5 == 2:
            del world.s3.keys[key]
    world.commit("never listed", State(StateKind.OBJECT, "1", "1", 1))
    pages = AuditTable(cast("Any", world.store), "table").held(PIPELINE, Ordering.LATEST)
    rows = [row for page in pages for row in page.rows]
    return {
        LISTED: [listed_entry(key, states[-1], world.settings) for key, states in world.s3.keys.items()],
        HELD: [held_entry(row.row_key.pk.removeprefix(f"{BUCKET}/"), row, world.settings) for row in rows],
    }


def ended(athena: Athena, id_: str) -> bool:
    return not athena.look(id_).working


@pytest.mark.failure_mode("F115")
def test_the_statements_for_athena_find_what_duckdb_finds(aws: LocalAws, tmp_path: Path) -> None:
    """The same candidates and the same numbers in each line."""
    s3, glue, parts = aws.client("s3"), aws.client("glue"), []
    s3.create_bucket(Bucket=FILES, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    glue.create_database(DatabaseInput={"Name": DATABASE})
    for relation, content in entries().items():
        path = tmp_path / f"{relation}-00000-00000.parquet"
        write(path, relation, content, lambda: WHOLE)
        s3.upload_file(str(path), FILES, f"{relation}/{PARTITION}={RUN}/{path.name}")
        parts.append(f"{relation}-00000")
        parquet = "org.apache.hadoop.hive.ql.io.parquet"
        columns = [{"Name": name, "Type": GLUE[kind]} for name, kind in COLUMNS[relation].items()]
        stored: Any = {
            "Columns": columns,
            "Location": f"s3://{FILES}/{relation}/",
            "InputFormat": f"{parquet}.MapredParquetInputFormat",
            "SerdeInfo": {"SerializationLibrary": f"{parquet}.serde.ParquetHiveSerDe"},
        }
        told: Any = {
            "Name": relation,
            "StorageDescriptor": stored,
            "PartitionKeys": [{"Name": PARTITION, "Type": "string"}],
            "TableType": "EXTERNAL_TABLE",
        }
        glue.create_table(DatabaseName=DATABASE, TableInput=told)
    now = AuditWorld().clock()
    window = Window(now - HOUR, now - 14 * DAY)
    asked: dict[str, Any] = {"window": window, "deletes": True, "all_listed": True}
    athena = Athena(aws.client("athena"), s3, work_group=WORK_GROUP, database=DATABASE)
    uris = {}
    for name, statement in statements(DATABASE, RUN, tuple(COLUMNS), **asked).items():
        id_ = aws.client("athena").start_query_execution(
            QueryString=statement,
            QueryExecutionContext={"Database": DATABASE},
            ResultConfiguration={"OutputLocation": f"s3://{FILES}/results/"},
        )["QueryExecutionId"]
        aws.wait_until(partial(ended, athena, id_), "the query has ended", timeout=240)
        done = athena.look(id_)
        assert done.failure == ""
        # The local AWS writes the result below the place that it tells.
        uris[name] = f"{done.result}/{id_}.csv"
    result = AthenaResult(s3, uris)
    with Join(tmp_path).audited(parts, **asked) as audited:
        assert result.lines() == audited.lines()
        expected = {tuple(one) for one in audited.candidates()}
    assert {tuple(one) for one in result.candidates()} == expected
    assert len(expected) > 8
