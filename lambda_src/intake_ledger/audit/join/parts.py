"""Joins the parts of a run. Its Lambda function reads and writes the files of runs, and nothing else."""

import os
import random
from collections.abc import Mapping
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import boto3

from intake_ledger.audit.diff import Window
from intake_ledger.audit.join.duckdb import Audited, Join
from intake_ledger.audit.relations import HELD, LISTED
from intake_ledger.audit.row_numbers import row_numbers, total
from intake_ledger.audit.scratch import CANDIDATES, JOINED, PLAN, Scratch, number_of, part_name, relation_of, segments
from intake_ledger.audit.shards import Shard
from intake_ledger.protocol.settings import settings_from
from intake_ledger.protocol.settings_audit import JoinSettings

if TYPE_CHECKING:
    from intake_ledger.audit.join.athena import AthenaResult

CHUNK = 5_000
"""Candidates of one look. Each takes a HEAD, a read and perhaps a mark: together some four minutes."""
_RANDOM = random.SystemRandom()


class Chains:
    """The complete parts of a run, by the metadata of their slices."""

    def __init__(self, plan: Mapping[str, Any], join: Join) -> None:
        self._plan = plan
        parts = [*segments(plan), *(part_name(LISTED, number) for number in range(len(plan["shares"])))]
        chains = {part: join.chain(part) for part in parts}
        self.whole = {part: chain for part, chain in chains.items() if chain is not None}
        self._gaps = [part for part in parts if part not in self.whole]
        # If some rows are missing, most listed objects would seem lost.
        self.comparable = not any(relation_of(part) == HELD for part in self._gaps)
        self.judged: dict[str, Any] = {
            "window": Window(**plan["window"]),
            "deletes": plan["deletes"],
            "all_listed": not self._gaps,
        }

    def summary(self, scratch: Scratch) -> dict[str, Any]:
        """Numbers of the parts for the report. They do not depend on the comparison."""
        files = [(relation_of(part), file) for part, chain in self.whole.items() for file in chain]
        lists = [file for relation, file in files if relation == LISTED]
        return {
            "outside": sum(file.read - file.written for file in lists),
            "passes": sorted([file.begun_at, file.ended_at, file.read] for file in lists),
            "laterFormat": sum(file.later_format for _, file in files),
            "rows": total(row_numbers(file.rows) for relation, file in files if relation == HELD).as_json(),
            "unfinished": [self._describe(part, scratch.get(f"{part}.refused")) for part in self._gaps],
        }

    def _describe(self, part: str, refused: str | None) -> str:
        """Describe a part that was left out, for the report."""
        if refused:
            return refused
        if relation_of(part) == HELD:
            return f"segment {number_of(part)} of the ledger's rows was not read"
        share = self._plan["shares"][number_of(part)]
        if self._plan["manifest"] is not None:
            return f"the inventory's file {share['key']}"
        shard = Shard(**share)
        keys = f"keys with the prefix {shard.prefix!r}" if shard.prefix else "keys"
        keys += f" after {shard.after!r}" if shard.after else " from the beginning"
        return keys + (f" up to {shard.until!r}" if shard.until is not None else " to the end")


def join_parts(scratch: Scratch) -> dict[str, Any]:
    """Join the files of a run's parts with DuckDB, and write the candidates."""
    with TemporaryDirectory(prefix="audit-") as folder:
        scratch.download(".parquet", Path(folder))
        join = Join(Path(folder))
        chains = Chains(scratch.get(PLAN), join)
        summary = chains.summary(scratch)
        if not chains.comparable:
            return store_joined(scratch, summary, None)
        with join.audited(list(chains.whole), **chains.judged) as audited:
            return store_joined(scratch, summary, audited)


def store_joined(
    scratch: Scratch, summary: Mapping[str, Any], result: "Audited | AthenaResult | None"
) -> dict[str, Any]:
    """Write the candidates and the result of the join. Without a result nothing was compared."""
    chunks, candidates, lines = 0, 0, dict[str, int]()
    if result is not None:
        lines = result.lines()
        for chunks, chunk in enumerate(batched(result.candidates(), CHUNK), 1):
            scratch.put(part_name(CANDIDATES, chunks - 1), chunk)
            candidates += len(chunk)
    scratch.put(JOINED, {**summary, "chunks": chunks, "candidates": candidates, "lines": lines})
    # In random order: if the budget does not suffice, each chunk has the same chance in each run.
    return {"run": scratch.run, "parts": _RANDOM.sample(range(chunks), chunks), "done": True}


def handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Lambda's entry point. The event is `{"run": name}`, and the answer has the parts to look at."""
    return join_parts(Scratch(boto3.client("s3"), settings_from(JoinSettings, os.environ).files, event["run"]))
