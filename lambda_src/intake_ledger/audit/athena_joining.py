"""The Lambda function that lets Athena join the parts of a run. The state machine calls it until the join is done.

ask ──► Athena runs the statements ──► are they done? ──► write the candidates, as the join with DuckDB does
                                         │    ▲
                                         └────┘ the state machine waits, no function does
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
from botocore.exceptions import ClientError

from intake_ledger.audit.athena import Athena
from intake_ledger.audit.athena_query import MANIFEST, statements
from intake_ledger.audit.footers import copy_footers
from intake_ledger.audit.in_parts import PLAN, Chains, relation_of, store_joined
from intake_ledger.audit.join import Join, slice_name
from intake_ledger.audit.relations import COLUMNS
from intake_ledger.audit.scratch import Scratch

ASKED = "asked.json"
MOST_ATTEMPTS = 3
"""Attempts at a statement that Athena calls retryable."""
_SUFFIX = ".parquet"


class AthenaJoin:
    """The join of one run."""

    def __init__(self, athena: Athena, scratch: Scratch) -> None:
        self._athena = athena
        self._scratch = scratch

    def step(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Ask Athena, or look whether it is done. `done` says whether the parts to look at are in the answer."""
        try:
            return self._step(event)
        except ClientError as error:
            # The state machine repeats the call. If that does not help, the report gives this reason.
            if stored := self._scratch.get(ASKED):
                self._fail(stored["summary"], [str(error)])
            raise

    def _step(self, event: Mapping[str, Any]) -> dict[str, Any]:
        asked = event.get("asked")
        if asked is None:
            return self._ask()
        looks = {name: self._athena.look(one) for name, one in asked["executions"].items()}
        if any(one.working for one in looks.values()):
            return self._again(asked)
        failed = [one for one in looks.values() if one.failure]
        attempt = asked["attempt"] + 1
        if failed and attempt < MOST_ATTEMPTS and all(one.retryable for one in failed):
            return self._start(attempt)
        stored = self._scratch.get(ASKED)
        if failed:
            return self._fail(stored["summary"], [one.failure for one in failed])
        if self._changed(stored["etags"]):
            return self._fail(stored["summary"], ["files were written again while it read them"])
        return store_joined(self._scratch, stored["summary"], self._athena.result(looks))

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
        # The state machine of another engine, which began the run, finds no parts and reports that the join failed.
        return {"run": self._scratch.run, "parts": [], "asked": asked, "done": False}

    def _changed(self, etags: Mapping[str, str]) -> bool:
        """Tell whether another call has written one of the files since it was checked."""
        now = self._scratch.etags()
        return any(now.get(name) != etag for name, etag in etags.items())


def handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Lambda's entry point: `{"run": name}`, and then each answer until it says that it is done."""
    s3, given = boto3.client("s3"), os.environ
    athena = Athena(
        boto3.client("athena"),
        s3,
        work_group=given["INTAKE_AUDIT_WORK_GROUP"],
        database=given["INTAKE_AUDIT_DATABASE"],
    )
    return AthenaJoin(athena, Scratch(s3, given["INTAKE_AUDIT_FILES"], event["run"])).step(event)
