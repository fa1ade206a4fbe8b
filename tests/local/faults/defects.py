"""Defects of the runtime, each of which the fault runs have to find: a check that cannot fail checks nothing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import intake_ledger


class Defect(NamedTuple):
    """One change of the runtime's source, wherever the text stands, and the pipeline whose run finds it."""

    name: str
    old: str
    new: str
    line: str


DEFECTS = (
    Defect(
        "the message of a busy key is acknowledged",
        "return self._until_free(ruling.row)",
        "return None",
        "Killed",
    ),
    Defect(
        "a message whose key is busy is acknowledged",
        'return Ruling(Verdict.BUSY, "another message of the key is processed", self._until_free(taken))',
        'return Ruling(Verdict.DUPLICATE, "another message of the key is processed")',
        "Messages",
    ),
    Defect(
        "a lock that is held is taken",
        'return HeldByOther(item["lease_until"], item["held_since"])',
        'return Lock(key, item["fence"], item["lease_owner"])',
        "Messages",
    ),
    Defect(
        "the later messages of a group do not wait for a failed one",
        "retry_after = returned[group] if group in returned else self._handle(message, batch, group)",
        "retry_after = self._handle(message, batch, group)",
        "Fifo",
    ),
    Defect(
        "the later records of a key do not wait for a failed one",
        "retry_after = 0.0 if message.keys & blocked else self._handle(message, batch)",
        "retry_after = self._handle(message, batch)",
        "Kinesis",
    ),
    Defect(
        "the function returns the last failed record of a shard, and not the first",
        "            if lowest is None:\n                lowest, pause",
        "            if True:\n                lowest, pause",
        "Kinesis",
    ),
    Defect(
        "a part counts before it is committed",
        "identity = row.committed_state\n",
        "identity = row.committed_state or row.identity\n",
        "Sets",
    ),
    Defect(
        "a new version of a part makes no new version of its set",
        "versions = [(key, parts[key].identity) for key in listing.keys]",
        'versions = [(key, "") for key in listing.keys]',
        "Sets",
    ),
    Defect(
        "a set has its parts in the order of their keys",
        "for key in contents.listing.keys),",
        "for key in sorted(contents.listing.keys)),",
        "Sets",
    ),
    Defect(
        "what was committed is processed again",
        "return self.settled and identity is not None and self.committed_state == identity",
        "return False",
        "Killed",
    ),
    Defect(
        "an attempt that did not come back is not counted",
        "if row.unfinished and row.attempts >= policy.max_attempts and not ignored:",
        "if False:",
        "Killed",
    ),
    Defect(
        "a busy key is asked for all the time",
        "return max(rest, 0.0) + self._jitter() * BUSY_JITTER_SECONDS",
        "return 0.0",
        "Wired",
    ),
    Defect(
        "a message is acknowledged when DynamoDB does not answer",
        "return self._failures.backoff(message.receives)",
        "return None",
        "Wired",
    ),
    Defect(
        "S3's trouble is the object's fault, for good",
        "if not begun and s3_refusal(error) is None:",
        "if not begun:\n            return self._failures.reject(claim, str(error))\n        if False:",
        "Wired",
    ),
    Defect(
        "a processor reads botocore's own body, as `with` unwraps it",
        'return ObjectStream(answer["Body"], length, checksum_of(answer))',
        'raw = answer["Body"].__enter__(); vars(raw).update(failure=None, complete=True); return raw',
        "Wired",
    ),
    Defect(
        "no copy goes to the dead-letter queue",
        "self._dead_letter(claim.change, claim.row, reason)",
        "pass",
        "Plain",
    ),
    Defect(
        "a dead letter that is moved back is taken for a late duplicate",
        "if change.rejected_fence is not None and change.rejected_fence == row.rejected_fence:",
        "if False:",
        "Plain",
    ),
    Defect(
        "an event of Step Functions is believed",
        "execution = self._machine.describe(name)",
        "execution = self._machine.describe(name) if not change.execution else Execution(name, change.event_name"
        """.rpartition(":")[2], self._clock(), '{"commit": "as the event says"}')""",
        "Executions",
    ),
    Defect(
        "a new execution starts when the lease has ended",
        "if executions and row.unfinished and (row.status is Status.PROCESSING or row.fence != ended):",
        "if executions and row.is_live(now):",
        "Executions",
    ),
    Defect(
        "the message of a started execution is acknowledged",
        "return Outcome(OutcomeKind.STARTED, retry_after=elsewhere.retry_after)",
        "return Outcome(OutcomeKind.STARTED)",
        "Executions",
    ),
    Defect(
        "a failed attempt is acknowledged",
        "return Outcome(OutcomeKind.FAILED, reason, delay, healthy=healthy)",
        "return Outcome(OutcomeKind.FAILED, reason, None, healthy=healthy)",
        "Outage",
    ),
    Defect(
        "a failure is for good",
        "if claim.row.attempts >= self._settings.max_attempts:",
        "if counted:",
        "Outage",
    ),
)


@contextmanager
def seeded(defect: Defect) -> Iterator[Path]:
    """A folder with a copy of the runtime that has the defect, to stand first on the path of a synthesis.

    Raises:
        LookupError: The source has changed. Rewrite the defect.

    """
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "intake_ledger"
        shutil.copytree(Path(intake_ledger.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        sources = {path: path.read_text() for path in copy.rglob("*.py")}
        found = sum(source.count(defect.old) for source in sources.values())
        if found != 1:
            raise LookupError(f"{defect.name}: the runtime has the text {found} times, mend the defect")
        [path] = (path for path, source in sources.items() if defect.old in source)
        path.write_text(sources[path].replace(defect.old, defect.new))
        yield Path(folder)
