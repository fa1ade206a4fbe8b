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
        "MessageHandler._busy",
        "self._until_free(row)",
        "None",
        "Killed",
    ),
    Mutant(
        "a message whose key is busy is acknowledged",
        "KeyLock._busy",
        'Ruling(Verdict.BUSY, "another message of the key is processed", row)',
        'Ruling(Verdict.DUPLICATE, "another message of the key is processed")',
        "Messages",
    ),
    Mutant(
        "a lock that is held is taken",
        "KeyLock.take",
        "(wait_ms := self._held_ms(claim, item)) is not None",
        "False",
        "Messages",
    ),
    Mutant(
        "a group that is held is taken",
        "KeyLock.take",
        "(wait_ms := self._held_ms(claim, item)) is not None",
        "False",
        "Grouped",
    ),
    Mutant(
        "a call that was killed spends the attempts of its changes",
        "Row.spent_attempts",
        "self.attempts - 1 if self.died_together else self.attempts",
        "self.attempts",
        "Called",
    ),
    Mutant(
        "rejected rows of an attempt without a commit stay",
        "rejects_may_exist",
        "bool(seen.rejected_rows) or not committed_last",
        "bool(seen.rejected_rows)",
        "Called",
    ),
    Mutant(
        "the later messages of a group do not wait for a failed one",
        "InGroups.wait_behind",
        "self._returned.get(message.group)",
        "None",
        "Fifo",
    ),
    Mutant(
        "the later records of a key do not wait for a failed one",
        "InShard.wait_behind",
        "0.0 if message.keys & self._blocked else None",
        "None",
        "Kinesis",
    ),
    Mutant(
        "the function returns the last failed record of a shard, and not the first",
        "InShard.returned",
        "self._lowest or (message.id, seconds)",
        "(message.id, seconds)",
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
        "SetWork.ready",
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
        "row.unfinished and (uncopied or row.spent_attempts >= policy.max_attempts) and not ignored",
        "False",
        "Killed",
    ),
    Mutant(
        "a busy key is asked for all the time",
        "MessageHandler._until_free",
        "max(rest, 0.0) + self.services.jitter() * BUSY_JITTER_SECONDS",
        "0.0",
        "Wired",
    ),
    Mutant(
        "a message is acknowledged when DynamoDB does not answer",
        "MessageHandler.handle",
        "self.failures.backoff(message.receives)",
        "None",
        "Wired",
    ),
    Mutant(
        "S3's trouble is the object's fault, for good",
        "ending",
        """
        if facts.stage is Stage.OPENING and s3_refusal(error) is None:
            return Outcome(OutcomeKind.FAILED, Write.RELEASE)
        """,
        """
        if facts.stage is Stage.OPENING:
            return _rejected(_reason(error, facts))
        """,
        "Wired",
    ),
    Mutant(
        "a processor reads botocore's own body, as `with` unwraps it",
        "open_state",
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
        "Failures.copy",
        "digest = self._dead_letter(change, message, row, reason, code)",
        "digest = None",
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
        "Later._decided",
        "self._elsewhere.describe(name, row.execution)",
        """
        self._elsewhere.describe(name, row.execution)
        if not change.execution
        else Execution(name, change.event_name.rpartition(":")[2], self._clock(), '{"commit": "as the event says"}')
        """,
        "Executions",
    ),
    Mutant(
        "a new execution starts when the lease has ended",
        "judge_row",
        "executions and row.unfinished and asks",
        "executions and row.is_live(now)",
        "Executions",
    ),
    Mutant(
        "the message of a started execution is acknowledged",
        "Attempts._run",
        "retry_after=returned.retry_after",
        "",
        "Executions",
    ),
    Mutant(
        "the successor of a stopped durable execution does not wait for its invocation",
        "DurableFunction.__init__",
        "settings.longest_invocation_seconds * 1000",
        "0",
        "Durable",
    ),
    Mutant(
        "a durable execution has one name for all its attempts",
        "DurableFunction.start",
        "self.name_of(name)",
        'self.name_of(name.partition("-")[0] + "-1")',
        "Durable",
    ),
    Mutant(
        "a durable execution that earlier code has started is a failed start",
        "DurableFunction.start",
        'error.response["Error"]["Code"] not in _ANOTHER_INPUT',
        "True",
        "Durable",
    ),
    Mutant(
        "a failed attempt is acknowledged",
        "_failed",
        "math.ceil(wait)",
        "None",
        "Outage",
    ),
    Mutant(
        "a failure is for good",
        "_failed",
        "claim.row.attempts >= settings.max_attempts",
        "counted",
        "Outage",
    ),
    Mutant(
        "a message that waits is acknowledged without a copy",
        "Returns.send_copies",
        "self._queues.send_copies(entries, in_time=self.take_request)",
        "({*range(len(entries))}, None)",
        "Messages",
    ),
)


@contextmanager
def seeded(defect: Mutant) -> Iterator[Path]:
    """A folder with a copy of the runtime that has the defect, to stand first on the path of a synthesis."""
    with TemporaryDirectory() as folder:
        seed(defect, Path(folder))
        yield Path(folder)
