"""Defects, each seeded into a copy of the runtime: the exploration or a named test has to find every one of them.

Whoever adds a safeguard adds the defect of leaving it out; `prove.py` runs them and prints who found what.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One change of one source file, and what is asked about it first."""

    name: str
    module: str
    old: str
    new: str
    found_by: str
    """A scenario of the exploration, or a test (`tests/...::test_name`)."""


MUTANTS = (
    Mutant(
        "the event is believed: no look",
        "ledger.py",
        "if self._options.ordering is Ordering.EVERY_VERSION and change.state is not None:",
        "if change.state is not None and change.vouched:",
        "puts",
    ),
    Mutant(
        "swap without comparing",
        "table.py",
        '"#fence = :seen_fence AND #status = :seen_status"\n        " AND (',
        '"(#fence = :seen_fence OR #fence <> :seen_fence) AND (#status = :seen_status OR #status <> :seen_status)"\n'
        '        " AND (',
        "puts",
    ),
    Mutant(
        "insert over an existing row",
        "table.py",
        '"attribute_not_exists(#status)"',
        '"attribute_not_exists(#status) OR attribute_exists(#status)"',
        "puts",
    ),
    Mutant(
        "committed taken for settled",
        "rows.py",
        "return self.settled and identity is not None and self.committed_version == identity",
        "return identity is not None and self.committed_version == identity",
        "rollback",
    ),
    Mutant(
        "commit without fence",
        "table.py",
        '"#fence = :own_fence AND #owner = :own_owner AND #status = :processing"',
        '"attribute_exists(#status)"',
        "puts, a slow worker",
    ),
    Mutant(
        "a lapsed worker's failure frees its successor",
        "ledger.py",
        "self._table.update(claim.key, claim.row, after, still_held(claim.row))\n        except Refused as refused:\n            row = refused.row",
        "self._table.update(claim.key, claim.row, after, still_seen(self._table.get(claim.key) or claim.row, 10**15))\n        except Refused as refused:\n            row = refused.row",
        "tests/unit/test_ledger_moto.py -k f04",
    ),
    Mutant(
        "BUSY acknowledged",
        "consumer.py",
        "return _Later(self._until_free(answer.row))",
        "return None",
        "puts, no audit",
    ),
    Mutant("a live lease is not respected", "rows.py", "self.lease_until > now", "self.lease_until > now * 2", "puts"),
    Mutant("a lease of no length", "ledger.py", "until = now + attempt.lease_ms", "until = now", "puts"),
    Mutant(
        "TTL stays on a claimed row",
        "rows.py",
        "        expires_at=None,\n        attention=None,\n    )",
        "        attention=None,\n    )",
        "expiry, rollback of half-done work",
    ),
    Mutant(
        "failed rows expire",
        "rows.py",
        "        updated_at=now,\n        attention=pipeline,",
        "        updated_at=now,\n        expires_at=now // 1000,\n        attention=pipeline,",
        "tests/unit/test_rows.py tests/unit/test_ledger_moto.py -k f86",
    ),
    Mutant("the fence restarts from one", "rows.py", "fence=now - 1", "fence=0", "expiry"),
    Mutant("late events are taken for new", "ledger.py", " and not late", "", "expiry, late duplicates"),
    Mutant(
        "what was forgotten is processed again",
        "verdicts.py",
        "return state.created_at is not None and state.created_at < now - policy.retention_ms",
        "return False",
        "expiry, a noncurrent version deleted",
    ),
    Mutant(
        "any duplicate opens another round",
        "verdicts.py",
        "    return change.reprocess_id is not None and change.reprocess_id >",
        "    return True or change.reprocess_id is not None and change.reprocess_id >",
        "budget, duplicates",
    ),
    Mutant(
        "any copy opens another round",
        "verdicts.py",
        "and change.rejected_fence == row.rejected_fence",
        "",
        "tests/unit/test_verdicts.py",
    ),
    Mutant(
        "a redrive never opens another round",
        "verdicts.py",
        "change.rejected_fence is not None and change.rejected_fence == row.rejected_fence",
        "False",
        "rejection",
    ),
    Mutant(
        "REJECTED before its copy",
        "consumer.py",
        "        self._dead_letter(claim.change, claim.row, reason)\n        self._ledger.reject(claim, reason)",
        "        self._ledger.reject(claim, reason)\n        self._dead_letter(claim.change, claim.row, reason)",
        "rejection, crash",
    ),
    Mutant(
        "no copy of what is exhausted",
        "consumer.py",
        '        self._dead_letter(change, after, after.reason or "")\n',
        "",
        "budget",
    ),
    Mutant("attempts are not counted", "rows.py", "attempts=base.attempts + 1 if retry else 1", "attempts=1", "budget"),
    Mutant(
        "attempts are counted across a commit",
        "rows.py",
        "retry = again and seen is not None and seen.unsettled",
        "retry = again and seen is not None and seen.status is not Status.REJECTED",
        "tests/unit/test_rows.py tests/unit/test_ledger_moto.py -k f84",
    ),
    Mutant(
        "a reprocess is forgotten when it fails",
        "rows.py",
        "base.reprocess_id if again else None",
        "None",
        "reprocess, an audit between",
    ),
    Mutant(
        "a served reprocess is not remembered",
        "rows.py",
        "reprocessed_id=max(reprocess_ids, default=None)",
        "reprocessed_id=row.reprocessed_id",
        "reprocess",
    ),
    Mutant(
        "one's own claim is not recognised",
        "verdicts.py",
        "if row.owner == owner:",
        "if row.owner == owner + 'x':",
        "tests/unit/test_verdicts.py tests/unit/test_ledger_moto.py -k f02",
    ),
    Mutant(
        "one's own commit is taken for fenced",
        "ledger.py",
        "refused.row.committed_fence == claim.row.fence",
        "False",
        "tests/unit/test_ledger_moto.py -k f82",
    ),
    Mutant(
        "an unstarted claim forgets the row",
        "ledger.py",
        "if claim.seen is not None:\n            self._end",
        "if claim.seen is claim.row:\n            self._end",
        "rollback, slow claims",
    ),
    Mutant(
        "an unstarted claim counts as failed",
        "ledger.py",
        "self._end(claim, rows.released(claim.row, claim.seen))",
        'self.fail(claim, "released")',
        "rollback, slow claims",
    ),
    Mutant(
        "the audit looks for missing, failed and stuck rows only",
        "audit/diff.py",
        "if row.is_live(now) or row.has_committed(state.identity):",
        "if row.is_live(now) or row.settled:",
        "losses",
    ),
    Mutant(
        "the audit believes a committed row that is not settled",
        "audit/diff.py",
        "row.has_committed(state.identity)",
        "row.committed_version == state.identity",
        "tests/unit/test_audit_diff.py",
    ),
    Mutant(
        "the audit takes every row for settled that it has read",
        "audit/compare.py",
        "return known.agrees(one.row_key, one.state.identity) or",
        "return True or",
        "losses",
    ),
    Mutant(
        "the audit takes a state for settled that was committed once",
        "audit/table.py",
        'if item["status"]["S"] == Status.PROCESSED and "committed_version" in item',
        'if "committed_version" in item',
        "tests/unit/test_audit_known.py -k settled",
    ),
    Mutant(
        "the audit believes that a key has no row because it was read before",
        "audit/compare.py",
        "return find(None, one.state, window, now=self._clock(), deletes=self._settings.deletes) is None",
        "return True",
        "losses",
    ),
    Mutant(
        "an audit's mark is taken for a row",
        "table.py",
        '"attribute_not_exists(#status)", ("status",)',
        '"attribute_not_exists(#pk)", ("pk",)',
        "losses",
    ),
    Mutant(
        "a removal is settled without a new fence",
        "rows.py",
        "    return replace(committed(row, None, now=now, retention_seconds=retention_seconds), attempts=0)",
        "    row = replace(row, fence=seen.fence if seen else row.fence)\n"
        "    return replace(committed(row, None, now=now, retention_seconds=retention_seconds), attempts=0)",
        "markers, deletes off",
    ),
    Mutant(
        "a smaller sequencer is stale",
        "verdicts.py",
        "    elif row.has_committed(change.identity):",
        '    elif change.sequencer and row.sequencer and change.sequencer < row.sequencer:\n        return Ruling(Verdict.STALE, "")\n'
        "    elif row.has_committed(change.identity):",
        "puts, misleading sequencers",
    ),
    Mutant(
        "the message's version is committed, not the claimed one",
        "rows.py",
        "        committed_version=row.identity,",
        "        committed_version=row.identity if row.fence % 2 else 'v#1',",
        "puts",
    ),
    Mutant(
        "failures are not reported to Lambda",
        "consumer.py",
        '"batchItemFailures": failures',
        '"batchItemFailures": []',
        "puts, no audit",
    ),
    Mutant(
        "a vanished version is acknowledged",
        "consumer.py",
        "return _Ending(Outcome.GONE, why, _Gone())",
        "return _Ending(Outcome.GONE, why)",
        "tests/unit/test_consumer.py -k f53",
    ),
    Mutant(
        "a vanished version is committed",
        "consumer.py",
        "        if begun:\n            self._ledger.fail(claim, why)\n        else:\n            self._ledger.release(claim)",
        "        self._ledger.commit(claim, None)",
        "tests/unit/test_consumer.py",
    ),
    Mutant(
        "EVERY_VERSION takes a deletion for its version",
        "states.py",
        'return f"d#{version_id}"',
        'return f"v#{version_id}"',
        "every version, deleted",
    ),
    Mutant(
        "a fenced worker acknowledges",
        "consumer.py",
        "ending = _Ending(Outcome.FENCED, str(fenced), _Later(self._backoff(claim.row.attempts)))",
        "ending = _Ending(Outcome.FENCED, str(fenced))",
        "tests/unit/test_consumer.py -k fence",
    ),
    Mutant(
        "a retry gets another idempotency key",
        "rows.py",
        "first_seen_at=base.first_seen_at if retry or resumed else now",
        "first_seen_at=now + base.fence",
        "tests/unit/test_consumer.py tests/unit/test_rows.py tests/unit/test_ledger_moto.py -k f72",
    ),
    Mutant(
        "a refused INSERT of a group is taken for written",
        "table.py",
        'if "Error" not in response}',
        "}",
        "groups",
    ),
    Mutant(
        "what came before is claimed in a group again",
        "consumer.py",
        "if message.receives == 1 and (change",
        "if (change",
        "tests/unit/test_groups.py -k f92",
    ),
    Mutant(
        "a version that is gone before the processor starts is a failure",
        "consumer.py",
        "return self._gone(claim, str(gone), begun=begun)",
        "return self._gone(claim, str(gone), begun=True)",
        "rollback, slow claims",
    ),
    Mutant(
        "any message may retry at once",
        "verdicts.py",
        "(row.retry_at or 0) > now",
        "(row.retry_at or 0) > now + 10**12",
        "tests/unit/test_consumer.py tests/unit/test_verdicts.py -k f23",
    ),
    Mutant(
        "a rejected reprocess has another round",
        "verdicts.py",
        'change.reprocess_id > (row.reprocess_id or "")',
        'change.reprocess_id > ""',
        "tests/unit/test_verdicts.py",
    ),
)
