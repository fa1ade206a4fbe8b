"""Defects of the runtime, each of which the fault runs have to find: a check that cannot fail checks nothing.

`tests/seeds.py` says how an entry is read. The last field is the pipeline whose run finds it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.seeds import Mutant, seed

DEFECTS = (
    Mutant(
        "the message of a busy key is acknowledged",
        "MessageHandler._without_claim",
        "self._until_free(ruling.row)",
        "None",
        "Killed",
    ),
    Mutant(
        "a message whose key is busy is acknowledged",
        "KeyedLedger.claim",
        'Ruling(Verdict.BUSY, "another message of the key is processed", self._until_free(taken))',
        'Ruling(Verdict.DUPLICATE, "another message of the key is processed")',
        "Messages",
    ),
    Mutant(
        "a lock that is held is taken",
        "KeyLocks.take",
        'HeldByOther(item["lease_until"], item["held_since"])',
        'Lock(key, item["fence"], item["lease_owner"])',
        "Messages",
    ),
    Mutant(
        "the later messages of a group do not wait for a failed one",
        "MessageConsumer._queue",
        "returned[group] if group in returned else self._handle(message, batch, group)",
        "self._handle(message, batch, group)",
        "Fifo",
    ),
    Mutant(
        "the later records of a key do not wait for a failed one",
        "MessageConsumer._stream",
        "0.0 if message.keys & blocked else self._handle(message, batch)",
        "self._handle(message, batch)",
        "Kinesis",
    ),
    Mutant(
        "the function returns the last failed record of a shard, and not the first",
        "MessageConsumer._stream",
        """
        if lowest is None:
            lowest, pause = message.id, retry_after
        """,
        """
        if True:
            lowest, pause = message.id, retry_after
        """,
        "Kinesis",
    ),
    Mutant(
        "a part counts before it is committed",
        "SetReader._committed",
        "row.committed_state",
        "row.committed_state or row.identity",
        "Sets",
    ),
    Mutant(
        "a new version of a part makes no new version of its set",
        "SetReader._contents",
        "parts[key].identity",
        '""',
        "Sets",
    ),
    Mutant(
        "a set has its parts in the order of their keys",
        "SetCall._files",
        "contents.listing.keys",
        "sorted(contents.listing.keys)",
        "Sets",
    ),
    Mutant(
        "what was committed is processed again",
        "Row.has_committed",
        "self.settled and identity is not None and self.committed_state == identity",
        "False",
        "Killed",
    ),
    Mutant(
        "an attempt that did not come back is not counted",
        "judge_state",
        "row.unfinished and (uncopied or row.attempts >= policy.max_attempts) and not ignored",
        "False",
        "Killed",
    ),
    Mutant(
        "a busy key is asked for all the time",
        "MessageHandler._until_free",
        "max(rest, 0.0) + self._jitter() * BUSY_JITTER_SECONDS",
        "0.0",
        "Wired",
    ),
    Mutant(
        "a message is acknowledged when DynamoDB does not answer",
        "MessageHandler.handle",
        "self._failures.backoff(message.receives)",
        "None",
        "Wired",
    ),
    Mutant(
        "S3's trouble is the object's fault, for good",
        "Attempts._raised",
        """
        if not begun and s3_refusal(error) is None:
            self._ledger.release(claim)
            raise LibraryError("S3 could not open the object", detail=repr(error)) from error
        """,
        """
        if not begun:
            return self._failures.reject(claim, message, self._reason(error))
        if False:
            self._ledger.release(claim)
            raise LibraryError("S3 could not open the object", detail=repr(error)) from error
        """,
        "Wired",
    ),
    Mutant(
        "a processor reads botocore's own body, as `with` unwraps it",
        "Bucket.open",
        'return ObjectStream(answer["Body"], length, checksum_of(answer))',
        """
        raw = answer["Body"].__enter__()
        vars(raw).update(failure=None, complete=True)
        return raw
        """,
        "Wired",
    ),
    Mutant(
        "no copy goes to the dead-letter queue",
        "Failures.reject",
        "self._copy(claim.change, message, claim.row, reason.text, reason.code)",
        "Copied()",
        "Plain",
    ),
    Mutant(
        "a dead letter that is moved back is taken for a late duplicate",
        "_asks_for_retry",
        "change.rejected_fence is not None and change.rejected_fence == row.rejected_fence",
        "False",
        "Plain",
    ),
    Mutant(
        "an event of Step Functions is believed",
        "Executions._decided",
        "self._machine.describe(name)",
        """
        self._machine.describe(name)
        if not change.execution
        else Execution(name, change.event_name.rpartition(":")[2], self._clock(), '{"commit": "as the event says"}')
        """,
        "Executions",
    ),
    Mutant(
        "a new execution starts when the lease has ended",
        "judge_row",
        "executions and row.unfinished and (row.status is Status.PROCESSING or row.fence != ended)",
        "executions and row.is_live(now)",
        "Executions",
    ),
    Mutant(
        "the message of a started execution is acknowledged",
        "Attempts._elsewhere",
        "retry_after=start.retry_after",
        "",
        "Executions",
    ),
    Mutant(
        "a failed attempt is acknowledged",
        "Failures.fail",
        "Outcome(OutcomeKind.FAILED, reason, delay, healthy=healthy)",
        "Outcome(OutcomeKind.FAILED, reason, None, healthy=healthy)",
        "Outage",
    ),
    Mutant(
        "a failure is for good",
        "Failures.fail",
        "claim.row.attempts >= self._settings.max_attempts",
        "counted",
        "Outage",
    ),
)


@contextmanager
def seeded(defect: Mutant) -> Iterator[Path]:
    """A folder with a copy of the runtime that has the defect, to stand first on the path of a synthesis."""
    with TemporaryDirectory() as folder:
        seed(defect, Path(folder))
        yield Path(folder)
