"""The Lambda function that joins the parts of a run with Athena. The state machine calls it until the join is done.

ask ──► Athena runs the statements ──► are they done? ──► write the candidates, as the join with DuckDB does
                                         │    ▲
                                         └────┘ the state machine waits, no function does
"""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
from botocore.exceptions import ClientError

from intake_ledger.audit.join.athena import MANIFEST, Athena, statements
from intake_ledger.audit.join.duckdb import Join, slice_name
from intake_ledger.audit.join.parts import Chains, store_joined
from intake_ledger.audit.relations import COLUMNS
from intake_ledger.audit.scratch import PLAN, Scratch, relation_of
from intake_ledger.protocol.settings import settings_from
from intake_ledger.protocol.settings_audit import JoinSettings

ASKED = "asked.json"
MOST_ATTEMPTS = 3
"""Attempts at a statement that Athena calls retryable."""
_SUFFIX = ".parquet"
_FIRST = 32 * 1024
"""Bytes that are read first. The metadata of a slice takes some 30 KB."""
_END = 8
_READERS = 16


class AthenaJoin:
    """The join of one run."""

    def __init__(self, athena: Athena, scratch: Scratch) -> None:
        self._athena = athena
        self._scratch = scratch

    def step(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Start the statements, or check their executions. If `done` is true, the answer has the parts to look at."""
        try:
            return self._step(event)
        except ClientError as error:
            # The state machine repeats the call. If all calls fail, the report gives this reason.
            if stored := self._scratch.get(ASKED):
                self._fail(stored["summary"], [str(error)])
            raise

    def _step(self, event: Mapping[str, Any]) -> dict[str, Any]:
        asked = event.get("asked")
        if asked is None:
            return self._ask()
        executions = {name: self._athena.look(id_) for name, id_ in asked["executions"].items()}
        if any(execution.working for execution in executions.values()):
            return self._again(asked)
        failed = [execution for execution in executions.values() if execution.failure]
        attempt = asked["attempt"] + 1
        if failed and attempt < MOST_ATTEMPTS and all(execution.retryable for execution in failed):
            return self._start(attempt)
        stored = self._scratch.get(ASKED)
        if failed:
            return self._fail(stored["summary"], [execution.failure for execution in failed])
        if self._changed(stored["etags"]):
            return self._fail(stored["summary"], ["files were written again while it read them"])
        return store_joined(self._scratch, stored["summary"], self._athena.result(executions))

    def _fail(self, summary: Mapping[str, Any], reasons: Iterable[str]) -> dict[str, Any]:
        problems = [f"Athena did not join what was listed: {reason}" for reason in dict.fromkeys(reasons)]
        unfinished = [*summary["unfinished"], *problems]
        return store_joined(self._scratch, {**summary, "unfinished": unfinished}, None)

    def _ask(self) -> dict[str, Any]:
        etags = {name: etag for name, etag in self._scratch.etags().items() if name.endswith(_SUFFIX)}
        with TemporaryDirectory(prefix="audit-") as folder:
            copy_footers(self._scratch, etags.items(), Path(folder))
            chains = Chains(self._scratch.get(PLAN), Join(Path(folder)))
        summary = chains.summary(self._scratch)
        if not chains.comparable:
            return store_joined(self._scratch, summary, None)
        files: dict[str, list[str]] = {relation: [] for relation in COLUMNS}
        for part, chain in chains.whole.items():
            files[relation_of(part)] += [f"{slice_name(part, number)}{_SUFFIX}" for number in range(len(chain))]
        for relation, names in files.items():
            self._scratch.put_text(f"{relation}/{MANIFEST}", "".join(f"{self._scratch.uri(name)}\n" for name in names))
        relations = [relation for relation, names in files.items() if names]
        run = self._scratch.run
        content = {
            "summary": summary,
            "etags": {name: etags[name] for names in files.values() for name in names},
            "statements": statements(self._athena.database, run, relations, **chains.judged),
        }
        self._scratch.put(ASKED, content)
        return self._start(0)

    def _start(self, attempt: int) -> dict[str, Any]:
        run, asked = self._scratch.run, self._scratch.get(ASKED)["statements"]
        executions = {name: self._athena.start(run, name, text, attempt) for name, text in asked.items()}
        return self._again({"attempt": attempt, "executions": executions})

    def _again(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        # If the run's state machine is for another engine, it finds no parts here and reports that the join failed.
        return {"run": self._scratch.run, "parts": [], "asked": asked, "done": False}

    def _changed(self, etags: Mapping[str, str]) -> bool:
        """Tell whether another call has written one of the files since it was checked."""
        now = self._scratch.etags()
        return any(now.get(name) != etag for name, etag in etags.items())


def copy_footers(scratch: Scratch, etags: Iterable[tuple[str, str]], folder: Path) -> None:
    """Copy the metadata of Parquet files into a folder, without their content: a billion objects have a thousand files.

    Such a file ends with its metadata, the metadata's length in four bytes, and "PAR1" (Parquet format, "File format").
    To read the metadata, a local file of the same size with this end is enough.

    Raises:
        ClientError: A file has another ETag now.

    """
    with ThreadPoolExecutor(_READERS) as pool:
        copies = [pool.submit(_copy, scratch, name, etag, folder / name) for name, etag in etags]
    for copy in copies:
        copy.result()


def _copy(scratch: Scratch, name: str, etag: str, path: Path) -> None:
    end, size = scratch.end(name, _FIRST, etag)
    length = int.from_bytes(end[-_END:-4], "little") + _END
    if length > len(end):
        end, size = scratch.end(name, length, etag)
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - length)
        file.write(end[-length:])


def handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Lambda's entry point. The first event is `{"run": name}`, each further one the answer before, until `done`."""
    s3, settings = boto3.client("s3"), settings_from(JoinSettings, os.environ)
    athena = Athena(boto3.client("athena"), s3, work_group=settings.work_group, database=settings.database)
    return AthenaJoin(athena, Scratch(s3, settings.files, event["run"])).step(event)
