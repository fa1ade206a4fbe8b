"""Defects to seed into a copy of the runtime. The exploration or a named test has to find each of them.

A new safeguard needs a new entry: the defect of leaving the safeguard out. `prove.py` runs them and prints the results.
An entry names a definition, a part of its code, and the code that replaces it: see `tests/seeds.py`. A scenario of the
exploration or a test (`tests/...::test_name`) finds it.
"""

from tests.seeds import Mutant

MUTANTS = (
    Mutant(
        "rejected rows of an attempt without a commit stay",
        "rejects_may_exist",
        "bool(seen.rejected_rows) or not committed_last",
        "bool(seen.rejected_rows)",
        "rejected rows, a slow worker",
    ),
    Mutant(
        "rejected rows of an older state stay",
        "rejects_may_exist",
        "bool(seen.rejected_rows) or not committed_last",
        "not committed_last",
        "rejected rows",
    ),
    Mutant(
        "rejected rows that came after a recorded removal stay",
        "rejects_may_exist",
        "seen.status is Status.PROCESSED and seen.settled_as is None",
        "seen.status is Status.PROCESSED",
        "rejected rows, deletes off",
    ),
    Mutant(
        "rejected rows are deleted, without a tombstone",
        "ClaimRejects.write",
        "output.remove()",
        "output._client.delete_object(**output._where)",
        "rejected rows, a late worker dies",
    ),
    Mutant(
        "the versions of an object share their rejected rows",
        "ClaimRejects.write",
        "claim.state.identity if self.settings.ordering is Ordering.EVERY_VERSION else None",
        "None",
        "rejected rows, every version",
    ),
    Mutant(
        "the row of a repaired file keeps its number of rejected rows",
        "_with_counts",
        "(counts.read, counts.rejected) if counts.rejected else (None, None)",
        "(counts.read, counts.rejected) if counts.rejected else (row.read_rows, row.rejected_rows)",
        "rejected rows",
    ),
    Mutant(
        "a row with rejected rows expires",
        "_with_counts",
        "row.rejected_rows and not retention.forgets_rejects",
        "False",
        "tests/unit/test_rejects.py -k removed_object",
    ),
    Mutant(
        "a commit with rejected rows is held without its numbers",
        "Attempts._run",
        "hold and not commit.transact and run.counts is None",
        "hold and not commit.transact",
        "tests/unit/test_rejects.py -k are_not_held",
    ),
    Mutant(
        "rejected rows are read on after a broken quote",
        "csv_rows",
        'raise Unprocessable(f"the row at line {first} is not CSV: {error}") from error',
        "continue",
        "tests/unit/test_rejects.py -k told_apart",
    ),
    Mutant(
        "the share of rejected rows is not checked before the first row",
        "rows",
        "counting.check_share(rejects.max_share)",
        "None",
        "tests/unit/test_rejects.py -k than_the_share",
    ),
    Mutant(
        "a new column becomes rejected rows",
        "_header",
        "columns is not None and (drift := _drift(names, columns))",
        "False",
        "tests/unit/test_rejects.py -k other_columns",
    ),
    Mutant(
        "rejected rows have the text of the rows before",
        "_RowLines.begin",
        "self._row = []",
        "pass",
        "tests/unit/test_rejects.py -k good_or_rejected",
    ),
    Mutant(
        "rejected rows count the half of a line end",
        "_after_long_line",
        'None if after == "\\n" else after',
        "after",
        "tests/unit/test_rejects.py -k too_long",
    ),
    Mutant(
        "the event is believed: no look",
        "Ledger._state",
        "self._look(change, row)",
        "change.state if change.state is not None and change.reported_as_new else self._look(change, row)",
        "puts",
    ),
    Mutant(
        "swap without comparing",
        "row_unchanged",
        'f"#fence = :seen_fence AND #status = :seen_status AND {LEASE_ENDED}"',
        """
        "(#fence = :seen_fence OR #fence <> :seen_fence) AND (#status = :seen_status OR #status <> :seen_status)"
        f" AND {LEASE_ENDED}"
        """,
        "puts",
    ),
    Mutant(
        "insert over an existing row",
        "NO_ROW",
        '"attribute_not_exists(#status) AND attribute_not_exists(#format)"',
        '"attribute_not_exists(#status) AND attribute_not_exists(#format) OR attribute_exists(#status)"',
        "puts",
    ),
    Mutant(
        "committed taken for settled",
        "Row.has_committed",
        "self.settled and identity is not None and self.committed_state == identity",
        "identity is not None and self.committed_state == identity",
        "rollback",
    ),
    Mutant(
        "commit without fence",
        "lease_owned",
        '"#fence = :own_fence AND #lease_owner = :own_owner AND #status = :processing"',
        '"attribute_exists(#status)"',
        "puts, a slow worker",
    ),
    Mutant(
        "a lapsed worker's failure frees its successor",
        "Ledger._end",
        "lease_owned(claim.row)",
        "row_unchanged(self._table.get(claim.key) or claim.row, 10**15)",
        "tests/unit/test_ledger_moto.py -k f04",
    ),
    Mutant(
        "BUSY acknowledged",
        "MessageHandler._busy",
        "self._until_free(row)",
        "None",
        "puts, no audit",
    ),
    Mutant(
        "a live lease is not respected",
        "lease_is_live",
        "lease_until > now",
        "lease_until > now * 2",
        "puts",
    ),
    Mutant(
        "a lease of no length",
        "Ledger._wanted",
        "now + wish.lease_ms",
        "now",
        "puts",
    ),
    Mutant(
        "TTL stays on a claimed row",
        "claimed",
        "expires_at=None",
        "",
        "expiry, rollback of half-done work",
    ),
    Mutant(
        "failed rows expire",
        "failed",
        "needs_review=review_partition",
        "expires_at=now // 1000, needs_review=review_partition",
        "tests/unit/test_rows.py tests/unit/test_ledger_moto.py -k f86",
    ),
    Mutant(
        "late events are taken for new",
        "Ledger._is_new",
        "change.reported_as_new and not late",
        "change.reported_as_new",
        "expiry, late duplicates",
    ),
    Mutant(
        "what was forgotten is processed again",
        "_may_have_expired",
        "state.created_at is None or state.created_at >= now - policy.retention_ms",
        "True",
        "expiry, a noncurrent version deleted",
    ),
    Mutant(
        "a marker is inserted without a look",
        "Ledger._is_new",
        "change.state is None or change.state.removed or self._may_be_skipped(change.key)",
        "change.state is None or self._may_be_skipped(change.key)",
        "a forged removal",
    ),
    Mutant(
        "EVERY_VERSION believes what is said to be removed",
        "_any_version",
        "reader.shows_removal(change.key, state)",
        "True",
        "every version, a forged removal",
    ),
    Mutant(
        "any version that is not a marker counts as deleted",
        "Bucket.shows_removal",
        "return False",
        "return True",
        "every version, a forged removal",
    ),
    Mutant(
        "rows of objects expire although they are kept",
        "Retention.expires_at",
        """
        if self.keeps_rows and kind is StateKind.OBJECT:
            return None
        """,
        "",
        "complete, rollback",
    ),
    Mutant(
        "a removal is told whatever the age of its event",
        "_judge_without_row",
        "policy.deletes and all_rows_since != 0 and change.reports_removal and _is_young(change, now, policy)",
        "policy.deletes and all_rows_since != 0 and change.reports_removal",
        "kept, deleted",
    ),
    Mutant(
        "a ledger with all rows tells a removal of what it never had",
        "_judge_without_row",
        "policy.deletes and all_rows_since != 0 and change.reports_removal and _is_young(change, now, policy)",
        "policy.deletes and change.reports_removal and _is_young(change, now, policy)",
        "complete, deleted before it was processed",
    ),
    Mutant(
        "a forgotten object's removal is not told",
        "_judge_without_row",
        "all_rows_since != 0",
        "all_rows_since == 1",
        "kept, deleted",
    ),
    Mutant(
        "a ledger with all rows leaves old objects alone",
        "_may_have_expired",
        """
        if all_rows_since is not None and not state.removed and state.created_at >= all_rows_since:
            return False
        """,
        "",
        "tests/unit/test_verdicts.py -k f95",
    ),
    Mutant(
        "an event's own time is no evidence",
        "_may_have_expired",
        "not (tells and change.identity == state.identity and _is_young(change, now, policy))",
        "True",
        "expiry, an old object, late events",
    ),
    Mutant(
        "an event of any age is evidence",
        "_may_have_expired",
        "tells and change.identity == state.identity and _is_young(change, now, policy)",
        "tells and change.identity == state.identity",
        "expiry, an old object, late events",
    ),
    Mutant(
        "an event about another state is evidence",
        "_may_have_expired",
        "tells and change.identity == state.identity and _is_young(change, now, policy)",
        "tells and _is_young(change, now, policy)",
        "expiry, a noncurrent version deleted",
    ),
    Mutant(
        "rows that begin to expire are not recorded",
        "RowHistoryRecord._write",
        "NOT_KEPT not in item and not (settings.keeps_rows and _has_all_rows(item, settings))",
        "settings.keeps_rows and NOT_KEPT not in item and not (_has_all_rows(item, settings))",
        "tests/unit/test_row_history.py -k f94",
    ),
    Mutant(
        "expired rows are recorded as kept",
        "RowHistoryRecord._write",
        "KEPT if settings.keeps_rows else NOT_KEPT",
        "KEPT",
        "rows begin to be kept",
    ),
    Mutant(
        "a ledger whose rows expire has no record",
        "RowHistoryRecord.begin",
        "not self._item",
        "not self._item and self.settings.keeps_rows",
        "rows begin to be kept",
    ),
    Mutant(
        "the record's word is not asked for",
        "all_rows_since",
        "not settings.keeps_rows or KEPT not in item or NOT_KEPT in item or not _has_all_rows(item, settings)",
        "not settings.keeps_rows or KEPT not in item or not _has_all_rows(item, settings)",
        "tests/unit/test_row_history.py -k f94",
    ),
    Mutant(
        "a fence below the present time",
        "_next_fence",
        "max(seen.fence + 1, now)",
        "seen.fence + 1",
        "a table put back from a backup",
    ),
    Mutant(
        "the consumer has no filters",
        "MessageHandler._handle_part",
        """
        if not self.services.settings.wants(parsed.key):
            self.services.telemetry.filtered_out(parsed)
            return None
        """,
        "",
        "a key outside of the filters",
    ),
    Mutant(
        "a group has no filters",
        "Groups.takes",
        "self.services.settings.wants(change.key) and not misdirected(change, self.services)",
        "not misdirected(change, self.services)",
        "tests/unit/test_groups.py -k f105",
    ),
    Mutant(
        "a reprocess id from the future is served",
        "misdirected",
        "settings.clock_skew_seconds * 1000",
        "10**15",
        "tests/unit/test_consumer.py -k f106",
    ),
    Mutant(
        "any text is a reprocess id",
        "parse_own_message",
        "is_ulid(reprocess_id)",
        "reprocess_id",
        "tests/unit/test_consumer.py -k f106",
    ),
    Mutant(
        "the audit of a ledger with all rows looks back only so far",
        "AuditFunction._judge",
        "looks_back if all_rows_since is None else min(looks_back, max(all_rows_since, first))",
        "looks_back",
        "tests/unit/test_audit_function.py -k f94",
    ),
    Mutant(
        "the audit does not ask whether the ledger is complete",
        "AuditFunction._judge",
        "all_rows_since = self._row_history.look()",
        "all_rows_since: int | None = 0",
        "tests/unit/test_audit_function.py -k f94",
    ),
    Mutant(
        "any duplicate opens another round",
        "_asks_for_retry",
        'change.reprocess_id is not None and change.reprocess_id > (row.reprocess_id or "")',
        'True or change.reprocess_id is not None and change.reprocess_id > (row.reprocess_id or "")',
        "budget, duplicates",
    ),
    Mutant(
        "any copy opens another round",
        "_asks_for_retry",
        "change.rejected_fence is not None and change.rejected_fence == row.rejected_fence",
        "change.rejected_fence is not None",
        "tests/unit/test_verdicts.py",
    ),
    Mutant(
        "a redrive never opens another round",
        "_asks_for_retry",
        "change.rejected_fence is not None and change.rejected_fence == row.rejected_fence",
        "False",
        "rejection",
    ),
    Mutant(
        "a message whose copy is lost opens no round",
        "_asks_for_retry",
        """
        if row.reason_code == ReasonCode.COPY_LOST:
            return True
        """,
        "",
        "tests/kinds/test_conformance.py -k lost_redrive",
    ),
    Mutant(
        "a request is served when it is claimed",
        "standing_of",
        "row.status in (Status.LATER_FORMAT, Status.PROCESSING)",
        "row.status is Status.LATER_FORMAT",
        "tests/unit/test_requests.py -k row_shows",
    ),
    Mutant(
        "a released claim makes a request void",
        "_of_reprocess",
        "max(row.committed_fence or 0, row.rejected_fence or 0) > after",
        "row.fence > after",
        "tests/unit/test_requests.py -k row_shows",
    ),
    Mutant(
        "a request of a replaced object is sent for ever",
        "_of_reprocess",
        """
        if max(row.committed_fence or 0, row.rejected_fence or 0) > after:
            return Standing.VOID
        """,
        "",
        "tests/unit/test_requests.py -k row_shows",
    ),
    Mutant(
        "a request leaves its record when it is sent again",
        "RequestCheck._judge",
        "batch.entries = [*left, *(entry for entry, _ in again)]",
        "batch.entries = left",
        "tests/unit/test_requests.py -k until_it_is_served",
    ),
    Mutant(
        "a message in the queue counts as lost",
        "Queues.is_empty",
        'if any(int(answer["Attributes"].get(name, 0)) for name in _NUMBERS): return False',
        "",
        "tests/kinds/test_conformance.py -k lost_redrive",
    ),
    Mutant(
        "the audit sends the requests of a stopped operation again",
        "RequestCheck.due",
        "self._stopped.has(batch.request_id)",
        "False",
        "tests/unit/test_requests.py -k stopped_operation",
    ),
    Mutant(
        "a stop is looked up for each message",
        "StoppedOperations.has",
        "read_at is not None and 0 <= now - read_at < KNOWN_MS",
        "False",
        "tests/unit/test_requests.py -k once_a_minute",
    ),
    Mutant(
        "an operation that was not stopped is never looked up again",
        "StoppedOperations.has",
        "read_at is not None and 0 <= now - read_at < KNOWN_MS",
        "read_at is not None",
        "tests/unit/test_requests.py -k once_a_minute",
    ),
    Mutant(
        "a message of a stopped operation is claimed",
        "MessageHandler.handle",
        "if self._is_withdrawn(message, batch): return None",
        "",
        "tests/kinds/test_conformance.py -k a_stopped_re",
    ),
    Mutant(
        "a group claims messages of a stopped operation",
        "Groups.claim",
        "not self.may_be_stopped(message)",
        "True",
        "tests/kinds/test_stops.py",
    ),
    Mutant(
        "a stopped redrive is lost",
        "withdraw",
        "services.queues.dead_letter(message.body, attributes, message.group)",
        "pass",
        "tests/kinds/test_conformance.py -k a_stopped_redrive",
    ),
    Mutant(
        "a stopped redrive goes back without its reasons",
        "withdraw",
        '{**back.attributes, "rejected_fence": message.rejected_fence}',
        '{"rejected_fence": message.rejected_fence}',
        "tests/kinds/test_conformance.py -k a_stopped_redrive",
    ),
    Mutant(
        "a stop withdraws work that has begun",
        "withdraw",
        "if has_begun(change, row, operation, redriven=back is not None): return False",
        "",
        "tests/kinds/test_conformance.py -k a_stop_leaves",
    ),
    Mutant(
        "a delayed copy does not carry its operation",
        "Message.copy",
        "(redriven_by := self.redriven_by) is not None",
        "(redriven_by := None) is not None",
        "tests/unit/test_cli_stop.py -k delayed_copy",
    ),
    Mutant(
        "a redrive is sent again without its fence",
        "RequestCheck._message",
        'return {"MessageBody": body, "MessageAttributes": {"rejected_fence": fence, REDRIVEN: operation}}',
        'return {"MessageBody": body}',
        "tests/kinds/test_lost_requests.py -k redrive",
    ),
    Mutant(
        "REJECTED before its copy",
        "Attempts._reject",
        """
        copied = self.failures.copy(claim.change, message, claim.row, reason.text, reason.code)
        self.services.ledger.reject(claim, reason, s3_error=outcome.s3_error, copied=copied)
        """,
        """
        self.services.ledger.reject(claim, reason, s3_error=outcome.s3_error)
        copied = self.failures.copy(claim.change, message, claim.row, reason.text, reason.code)
        """,
        "rejection, crash",
    ),
    Mutant(
        "no copy of what is exhausted",
        "Failures.exhaust",
        'self.copy(change, message, after, after.reason or "", after.reason_code or "")',
        "Copied()",
        "budget",
    ),
    Mutant(
        "attempts are not counted",
        "claimed",
        "base.spent_attempts + 1 if retry else 1",
        "1",
        "budget",
    ),
    Mutant(
        "attempts are counted across a commit",
        "claimed",
        "seen.unfinished",
        "seen.status is not Status.REJECTED",
        "tests/unit/test_rows.py tests/unit/test_ledger_moto.py -k f84",
    ),
    Mutant(
        "a reprocess is forgotten when it fails",
        "claimed",
        "base.reprocess_id if again else None",
        "None",
        "reprocess, an audit between",
    ),
    Mutant(
        "a served reprocess is not remembered",
        "committed",
        'max(row.reprocess_id or "", row.served_reprocess_id or "") or None',
        "row.served_reprocess_id",
        "reprocess",
    ),
    Mutant(
        "one's own claim is not recognised",
        "judge_row",
        "row.lease_owner == owner",
        'row.lease_owner == owner + "x"',
        "tests/unit/test_verdicts.py tests/unit/test_ledger_moto.py -k f02",
    ),
    Mutant(
        "one's own commit is taken for fenced",
        "Ledger._is_own_commit",
        "row.committed_fence == written.committed_fence",
        "False",
        "tests/unit/test_ledger_moto.py -k f82",
    ),
    Mutant(
        "an unstarted claim forgets the row",
        "Ledger.release",
        "claim.seen is not None",
        "claim.seen is claim.row",
        "rollback, slow claims",
    ),
    Mutant(
        "an unstarted claim counts as failed",
        "Ledger.release",
        "self._put_back(claim, row_changes.released(claim.row, claim.seen))",
        """
        from intake_ledger.protocol import ReasonCode

        self.fail(claim, Reason(ReasonCode.LEASE_LOST, "released"))
        """,
        "rollback, slow claims",
    ),
    Mutant(
        "the audit looks for missing, failed and stuck rows only",
        "judge",
        "row.has_committed(state.identity)",
        "row.settled",
        "losses",
    ),
    Mutant(
        "the audit believes a committed row that is not settled",
        "judge",
        "row.has_committed(state.identity)",
        "row.committed_state == state.identity",
        "tests/unit/test_audit_diff.py",
    ),
    Mutant(
        "the audit takes every row for settled that it has read",
        "SQL",
        "WHEN held.committed = listed.state THEN 'agrees'",
        "WHEN held.key IS NOT NULL THEN 'agrees'",
        "losses",
    ),
    Mutant(
        "the audit takes a state for settled that was committed once",
        "_settled_state",
        'state if is_settled(item["status"]["S"], state, late_writes) else None',
        "state",
        "tests/unit/test_audit_reading.py -k settled",
    ),
    Mutant(
        "the audit believes what it read of the rows before the listing",
        "Look.at",
        "items.get(candidate.row_key(self.settings), {})",
        "dict[str, Any]()",
        "tests/unit/test_audit_reading.py -k committed_since",
    ),
    Mutant(
        "the audit's report says that what was not judged agrees",
        "SQL",
        "ELSE 'lookBack'",
        "ELSE 'agrees'",
        "tests/unit/test_audit_lines.py -k f116",
    ),
    Mutant(
        "the audit's report leaves out what a run has not looked at",
        "Report.add_joined",
        "{Line.FILTERS: outside, Line.NOT_LOOKED: unlooked}",
        "{Line.FILTERS: outside}",
        "tests/unit/test_audit_lines.py -k f116",
    ),
    Mutant(
        "a backfill asks for old objects as an audit does",
        "Look._message",
        "self.backfill and due.row is None and old",
        "False",
        "tests/integration/test_audit_in_parts.py -k f41",
    ),
    Mutant(
        "a backfill asks for young objects as a person does",
        "Look._message",
        "self.backfill and due.row is None and old",
        "self.backfill and due.row is None",
        "tests/unit/test_audit_backfill.py -k f41",
    ),
    Mutant(
        "a backfill goes on when its first rows have expired",
        "AuditRuns.backfill",
        "self._clock() - begun_at < days * 86_400_000",
        "True",
        "tests/unit/test_audit_runs.py -k f41",
    ),
    Mutant(
        "each run is a backfill",
        "AuditRuns.backfill",
        'not settings.backfills or "backfilled_at" in self._content',
        "not settings.backfills",
        "tests/integration/test_audit_in_parts.py tests/unit/test_audit_function.py -k f41",
    ),
    Mutant(
        "a backfill that was cut short goes on after the interval",
        "AuditRuns.finish",
        "report.held or report.stopped is Stopped.MORE or 0 < repeats <= MOST_REPEATS",
        "report.held or 0 < repeats <= MOST_REPEATS",
        "tests/integration/test_audit_in_parts.py -k cut_short",
    ),
    Mutant(
        "a look sends as fast as it can",
        "AuditInParts.look",
        "limit.wait(report.resubmitted - sent)",
        "",
        "tests/integration/test_audit_in_parts.py -k share_of_the_rate",
    ),
    Mutant(
        "a backfill puts all of a bucket before new uploads",
        "AuditInParts.look",
        "judged.waiting > rate * BURST_SECONDS",
        "judged.waiting < 0",
        "tests/integration/test_audit_in_parts.py -k queue_is_long",
    ),
    Mutant(
        "a run repeats itself at each tick for a message that SQS never takes",
        "AuditRuns.finish",
        "0 < repeats <= MOST_REPEATS",
        "0 < repeats",
        "tests/unit/test_audit_runs.py -k f119",
    ),
    Mutant(
        "a run compares what it had time to read",
        "AuditInOneFunction.run",
        """
        report.stopped = Stopped.READING
        return
        """,
        """
        report.stopped = Stopped.READING
        break
        """,
        "tests/unit/test_audit_one_function.py -k without_time_to_read",
    ),
    Mutant(
        "each run looks at the same candidates first",
        "SqliteJoin.candidates",
        "crc32(run.encode()) % max(self.count(), 1)",
        "0",
        "tests/unit/test_audit_one_function.py -k hold_up_the_others",
    ),
    Mutant(
        "the audit marks a key before its message is sent",
        "Look._resubmit",
        """
        if allowed < len(due):
            report.stopped = Stopped.MORE if self.backfill else Stopped.BUDGET
        """,
        """
        if allowed < len(due):
            report.stopped = Stopped.MORE if self.backfill else Stopped.BUDGET
        self.ledger.mark_many(dict(map(self._mark, due[:allowed])))
        """,
        "tests/unit/test_audit_kills.py -k killed",
    ),
    Mutant(
        "the audit marks a key whose message SQS has refused",
        "Look._resubmit",
        "batched(sent, BATCH_STATEMENTS)",
        "batched(due[:allowed], BATCH_STATEMENTS)",
        "tests/unit/test_audit_kills.py -k refusal",
    ),
    Mutant(
        "the audit's budget counts messages that SQS has refused",
        "Look._resubmit",
        "budget.give_back(len(batch) - len(taken))",
        "",
        "tests/integration/test_audit_in_parts.py -k f119",
    ),
    Mutant(
        "an audit leaves refused messages to a run after the interval",
        "AuditRuns.finish",
        'self._content.get("repeats", 0) + 1 if report.stopped in SOON else 0',
        "0",
        "tests/unit/test_audit_kills.py -k refused",
    ),
    Mutant(
        "an audit never gets past a message that SQS does not take",
        "Look._resubmit",
        "self._refused_batches >= _MOST_REFUSED",
        "self._refused_batches",
        "tests/unit/test_audit_kills.py -k never_takes",
    ),
    Mutant(
        "a run names findings until its state does not fit into its item",
        "Report.found",
        "within([*self.findings, content], NAMED_BYTES)",
        "[*self.findings, content]",
        "tests/unit/test_audit_kills.py -k f120",
    ),
    Mutant(
        "the last report names every problem until it does not fit into its item",
        "AuditRuns._kept",
        "content[name] = within(content[name], KEPT_BYTES)",
        "pass",
        "tests/unit/test_audit_kills.py -k f120",
    ),
    Mutant(
        "a mark never lapses",
        "is_marked",
        "mark is not None and mark.identity == state.identity and mark.at > window.settled_before",
        "mark is not None and mark.identity == state.identity",
        "tests/unit/test_audit_one_function.py -k f91",
    ),
    Mutant(
        "an answer that is no page ends the bucket",
        "truncated",
        '"IsTruncated" not in page',
        "not isinstance(page, dict)",
        "tests/unit/test_audit_lean.py -k no_page",
    ),
    Mutant(
        "what one call of a run left to a backlog is forgotten by the next",
        "report_of",
        'held=content["held"]',
        "",
        "tests/unit/test_audit_function.py tests/integration/test_audit_in_parts.py -k held_back",
    ),
    Mutant(
        "what a policy denies is taken for allowed",
        "decide",
        'statement["Effect"] == "Deny" and applies',
        "False",
        "tests/unit/test_audit_policies.py",
    ),
    Mutant(
        "a deny in a queue's policy counts for nothing",
        "decide",
        'statement["Effect"] == "Deny" and applies',
        'statement["Effect"] == "Deny" and applies is False',
        "tests/unit/test_audit_policies.py",
    ),
    Mutant(
        "a deny that depends on an unknown condition is no deny",
        "decide",
        'statement["Effect"] == "Deny" and applies is None',
        'statement["Effect"] == "Allow" and applies is None',
        "tests/unit/test_audit_policies.py",
    ),
    Mutant(
        "an imported queue may give messages up to any queue",
        "_imported_redrive_problems",
        "target != ours",
        "target != target",
        "tests/unit/test_audit_delivery.py -k f312",
    ),
    Mutant(
        "an imported queue needs no redrive policy",
        "_redrive_problems",
        "yield from _imported_redrive_problems(deployed, url, redrive)",
        "",
        "tests/unit/test_audit_delivery.py -k f312",
    ),
    Mutant(
        "a second reader of the queue is not noticed",
        "mapping_problems",
        "mapping not in ours",
        "mapping in ours",
        "tests/unit/test_audit_delivery.py -k f128",
    ),
    Mutant(
        "a consumer without concurrency is not noticed",
        "function_problems",
        "actual == 0 or wanted is not None",
        "wanted is not None",
        "tests/unit/test_audit_delivery.py -k the_functions_concurrency",
    ),
    Mutant(
        "a rule that rewrites events is not noticed",
        "DeliveryCheck._rewrites",
        "_rewritten(targets, queue_arn)",
        '_rewritten(targets, "")',
        "tests/unit/test_audit_delivery.py -k a_rule_rewrites",
    ),
    Mutant(
        "a deleted resource is a service that does not answer",
        "DeliveryCheck._run",
        "code in _GONE",
        "code not in _GONE and code not in _REFUSED",
        "tests/unit/test_audit_delivery.py -k a_deleted_resource",
    ),
    Mutant(
        "a look is stored before its messages are sent",
        "AuditInParts.look",
        "look.at(batch, judged.window, report)",
        """
        self._scratch.put(name, done | {"at": done["at"] + len(batch)})
        look.at(batch, judged.window, report)
        """,
        "tests/integration/test_audit_join.py -k killed_anywhere",
    ),
    Mutant(
        "a summing up that is called again tells nobody of the losses",
        "AuditInParts.finish",
        """
        with suppress(RunLeaseLost):
            self._runs.finish(report, every_seconds=plan["everySeconds"], backfill=plan["backfill"])
        """,
        """
        with suppress(ValueError):
            self._runs.finish(report, every_seconds=plan["everySeconds"], backfill=plan["backfill"])
        """,
        "tests/integration/test_audit_in_parts.py -k summing_up",
    ),
    Mutant(
        "an audit goes by the last inventory there ever was",
        "AuditInParts.plan",
        "overdue(manifest, now)",
        "[]",
        "tests/integration/test_audit_in_parts.py -k come_no_more",
    ),
    Mutant(
        "what an inventory of yesterday shows counts without a look",
        "Look._ask",
        "state = self.bucket.look(candidate.key)",
        """
        if candidate.shown:
            return candidate
        state = self.bucket.look(candidate.key)
        """,
        "tests/integration/test_audit_in_parts.py -k since_the_report",
    ),
    Mutant(
        "each part of an audit has a budget of its own",
        "SharedBudget.take",
        "self.most - wanted",
        "self.most",
        "tests/integration/test_audit_in_parts.py -k budget",
    ),
    Mutant(
        "S3 is asked about every key that a part of an audit has failed to list",
        "Chains.__init__",
        "not self._gaps",
        "True",
        "tests/integration/test_audit_in_parts.py -k fails_for_good",
    ),
    Mutant(
        "everything is taken for lost where a part of the rows was not read",
        "Chains.__init__",
        "not any(relation_of(part) == HELD for part in self._gaps)",
        "True",
        "tests/integration/test_audit_in_parts.py -k fails_for_good",
    ),
    Mutant(
        "a slice of a listing counts wherever it begins",
        "Join.chain",
        "following is None or following.start != after",
        "following is None",
        "tests/integration/test_audit_in_parts.py -k do_not_meet",
    ),
    Mutant(
        "a part of a listing ends with its first file",
        "Join.chain",
        "not chain or after",
        "not chain",
        "tests/integration/test_audit_in_parts.py -k gap_between_slices",
    ),
    Mutant(
        "Athena reads files that no chain has",
        "AthenaJoin._ask",
        '(f"{self._scratch.uri(name)}\\n" for name in names)',
        '(f"{self._scratch.uri(name)}\\n" for name in etags if name.startswith(relation))',
        "tests/integration/test_audit_athena.py -k complete_parts_alone",
    ),
    Mutant(
        "a file that is written while Athena reads it counts",
        "AthenaJoin._changed",
        "any(now.get(name) != etag for name, etag in etags.items())",
        "False",
        "tests/integration/test_audit_athena.py -k written_while",
    ),
    Mutant(
        "a query of Athena without a result is an empty one",
        "AthenaJoin._step",
        "[execution for execution in executions.values() if execution.failure]",
        "[]",
        "tests/integration/test_audit_athena.py -k without_a_result",
    ),
    Mutant(
        "a file of an audit is as large as its part",
        "AuditInParts._write.content",
        "written >= SLICE_ROWS or text >= SLICE_TEXT or remaining_ms() < STOP_BEFORE_MS",
        "remaining_ms() < STOP_BEFORE_MS",
        "tests/integration/test_audit_in_parts.py -k f118",
    ),
    Mutant(
        "a look that died begins again",
        "AuditInParts.look",
        'self._scratch.get(name) or {"report": begun.as_json(now), "at": 0}',
        '{"report": begun.as_json(now), "at": 0}',
        "tests/integration/test_audit_in_parts.py -k look_that_died",
    ),
    Mutant(
        "the query takes each state for committed that has a row",
        "SQL",
        "WHEN held.committed = listed.state THEN 'agrees'",
        "WHEN held.key IS NOT NULL THEN 'agrees'",
        "tests/integration/test_audit_join.py -k nominates",
    ),
    Mutant(
        "the query forgets uploads as early as removals",
        "SQL",
        "WHEN listed.kind = 'object' THEN judged.known_since ELSE judged.removals_since END",
        "WHEN listed.kind = 'object' THEN judged.removals_since ELSE judged.removals_since END",
        "tests/integration/test_audit_join.py -k nominates",
    ),
    Mutant(
        "the query leaves out keys that are gone",
        "SQL",
        "AND judged.all_listed",
        "AND NOT judged.all_listed",
        "tests/integration/test_audit_join.py -k nominates",
    ),
    Mutant(
        "the query judges each version by the row of another",
        "SQL",
        "AND listed.place = held.place",
        "",
        "tests/integration/test_audit_join.py -k every_version_of",
    ),
    Mutant(
        "a data file of an inventory is read whatever its checksum says",
        "Inventory._copied",
        "digest.hexdigest() != file.md5.lower()",
        "False",
        "tests/integration/test_audit_inventory.py -k f121",
    ),
    Mutant(
        "an inventory's manifest is read whatever its checksum says",
        "Inventory.newest",
        "_md5(content) != checksum.decode().strip().lower()",
        "False",
        "tests/integration/test_audit_inventory.py -k f121",
    ),
    Mutant(
        "an inventory without a schema is guessed at",
        "manifest_of",
        """
        if lacks:
            ...
        """,
        """
        if False:
            ...
        """,
        "tests/integration/test_audit_inventory.py -k f121",
    ),
    Mutant(
        "an audit's mark is taken for a row",
        "NO_ROW",
        'Condition("attribute_not_exists(#status) AND attribute_not_exists(#format)", ("status", "format"), {})',
        'Condition("attribute_not_exists(#pk)", ("pk",), {})',
        "losses",
    ),
    Mutant(
        "a removal is settled without a new fence",
        "removal_recorded",
        'row = claimed(seen, change, state, owner="", now=now, lease_until=now)',
        """
        row = claimed(seen, change, state, owner="", now=now, lease_until=now)
        row = replace(row, fence=seen.fence if seen else row.fence)
        """,
        "markers, deletes off",
    ),
    Mutant(
        "a smaller sequencer is stale",
        "judge_row",
        """
        if change.reprocess_id is None and row.has_committed(change.identity):
            return Ruling(Verdict.DUPLICATE, "this state is committed")
        """,
        """
        if change.reprocess_id is None and change.sequencer and row.sequencer and (change.sequencer < row.sequencer):
            return Ruling(Verdict.STALE, "")
        if change.reprocess_id is None and row.has_committed(change.identity):
            return Ruling(Verdict.DUPLICATE, "this state is committed")
        """,
        "puts, misleading sequencers",
    ),
    Mutant(
        "the message's version is committed, not the claimed one",
        "committed",
        "identity_of(row.kind, row.version_id, row.etag)",
        'row.identity if row.fence % 2 else "v#1"',
        "puts",
    ),
    Mutant(
        "failures are not reported to Lambda",
        "response_of",
        '[{"itemIdentifier": identifier} for identifier in identifiers]',
        '[{"itemIdentifier": identifier} for identifier in list(identifiers)[:0]]',
        "puts, no audit",
    ),
    Mutant(
        "a vanished version is acknowledged",
        "_gone",
        "judge_again=True",
        "",
        "tests/unit/test_consumer.py -k f53",
    ),
    Mutant(
        "a vanished version is committed",
        "Attempts._settle",
        "at = facts.now + int((outcome.retry_after or 0) * 1000)",
        """
        at = facts.now + int((outcome.retry_after or 0) * 1000)
        if outcome.judge_again:
            ledger.commit(claim, None)
            return outcome
        """,
        "tests/unit/test_consumer.py",
    ),
    Mutant(
        "EVERY_VERSION takes a deletion for its version",
        "identity_of",
        'f"d#{version_id}"',
        'f"v#{version_id}"',
        "every version, deleted",
    ),
    Mutant(
        "a fenced worker acknowledges",
        "Attempts._unless_overtaken",
        "retry_after=wait",
        "",
        "tests/unit/test_consumer.py -k fence",
    ),
    Mutant(
        "a retry gets another idempotency key",
        "claimed",
        "base.first_claimed_at if same_key else max(now, base.first_claimed_at + 1)",
        "now + base.fence",
        "tests/unit/test_consumer.py tests/unit/test_rows.py tests/unit/test_ledger_moto.py -k f72",
    ),
    Mutant(
        "a refused INSERT of a group is taken for written",
        "LedgerTable.insert_many",
        "code is None",
        "True",
        "groups",
    ),
    Mutant(
        "what came before is claimed in a group again",
        "Groups.claim",
        "message.receives == 1 and (change := message.only_change) is not None and self.takes(change)",
        "(change := message.only_change) is not None and self.takes(change)",
        "tests/unit/test_groups.py -k f92",
    ),
    Mutant(
        "a version that is gone before the processor starts is a failure",
        "_gone",
        "facts.stage is not Stage.OPENING",
        "True",
        "rollback, slow claims",
    ),
    Mutant(
        "any message may retry at once",
        "judge_state",
        "(row.retry_at or 0) > now",
        "(row.retry_at or 0) > now + 10**12",
        "tests/unit/test_consumer.py tests/unit/test_verdicts.py -k f23",
    ),
    Mutant(
        "a rejected reprocess has another round",
        "_asks_for_retry",
        'row.reprocess_id or ""',
        '""',
        "tests/unit/test_verdicts.py",
    ),
    Mutant(
        "an unstarted claim that was taken is not told",
        "Attempts.release",
        """
        except Fenced as fenced:
            ...
        """,
        """
        except ZeroDivisionError as fenced:
            ...
        """,
        "tests/unit/test_groups.py -k f04",
    ),
    Mutant(
        "poison opens the breaker in time",
        "CircuitBreaker._close",
        "self._failed.clear()",
        "",
        "tests/unit/test_breaker.py",
    ),
    Mutant(
        "one sick key opens the breaker",
        "CircuitBreaker.failed",
        "self._failed.add(key)",
        'self._failed.add(f"{key} {len(self._failed)}")',
        "tests/unit/test_breaker.py",
    ),
    Mutant(
        "all are probes at once",
        "CircuitBreaker.wait_ms",
        "self._probe is None and now >= due",
        "now >= due",
        "tests/unit/test_breaker.py",
    ),
    Mutant(
        "a group is claimed while the downstream is out",
        "Groups.claim",
        "not fitting or self.breaker.is_open",
        "not fitting",
        "tests/unit/test_groups.py -k f23",
    ),
    Mutant(
        "what a group has claimed is begun although the downstream went out",
        "MessageHandler._handle_change",
        "not isinstance(answer, Ruling)",
        "answer is None",
        "tests/unit/test_groups.py -k f23",
    ),
    Mutant(
        "what the breaker gives back comes again at once",
        "MessageHandler._wait_before",
        "max(wait_ms, self.failures.least_wait_ms(message))",
        "0 * max(wait_ms, self.failures.least_wait_ms(message))",
        "tests/unit/test_breaker.py",
    ),
    Mutant(
        "two messages of one key are in two groups",
        "group_by_key",
        "parents[max(first, second)] = min(first, second)",
        "pass",
        "tests/integration/test_threads.py -k f22",
    ),
    Mutant(
        "more than ten receipt handles are deleted at once",
        "_MAX_ENTRIES",
        "10",
        "10_000",
        "tests/unit/test_consumer.py -k f124",
    ),
    Mutant(
        "what SQS fails of a batch is taken for done",
        "Queues._in_tens",
        """
        if failed:
            ...
        """,
        """
        if not entries:
            ...
        """,
        "tests/unit/test_consumer.py -k f109",
    ),
    Mutant(
        "the answer to Lambda waits until all messages are given back",
        "Returns.take_request",
        "self._late_requests <= LATE_REQUESTS",
        "True",
        "tests/unit/test_load.py -k f109",
    ),
    Mutant(
        "a retry waits for the processor of its neighbour",
        "MessageHandler._handle_change",
        "batch.returns.flush()",
        "",
        "tests/unit/test_load.py -k f109",
    ),
    Mutant(
        "what does not fill ten is not given back",
        "Consumer.handle",
        "batch.returns.flush()",
        "",
        "tests/unit/test_load.py",
    ),
    Mutant(
        "a foreign bucket's message is claimed in a group",
        "Groups.claim",
        "message.receives == 1 and (change := message.only_change) is not None and self.takes(change)",
        "message.receives == 1 and (change := message.only_change) is not None",
        "tests/unit/test_groups.py -k f123",
    ),
    Mutant(
        "a processor that swallows its interruption is not interrupted again",
        "deadline.__enter__",
        "signal.setitimer(signal.ITIMER_REAL, self._seconds, REPEAT_SECONDS)",
        "signal.setitimer(signal.ITIMER_REAL, self._seconds)",
        "tests/unit/test_deadlines.py -k f110",
    ),
    Mutant(
        "a swallowed interruption is a success",
        "deadline.__exit__",
        "self._expired",
        "False",
        "tests/unit/test_deadlines.py -k f110",
    ),
    Mutant(
        "an interruption hits the end of the block, and the timer runs on",
        "deadline._expire",
        "self._active and self._is_in_block(frame)",
        "self._active",
        "tests/unit/test_deadlines.py -k f110",
    ),
    Mutant(
        "a batch ends although a processor still runs",
        "ParallelGroups._leave",
        "self.end_process()",
        "",
        "tests/integration/test_threads.py -k f20",
    ),
    Mutant(
        "what was done is not deleted before the process ends",
        "ParallelGroups._leave",
        "self.services.queues.delete(done, in_time=batch.returns.take_request)",
        "pass",
        "tests/integration/test_threads.py -k f20",
    ),
    Mutant(
        "what was in work is deleted when the process ends",
        "ParallelGroups._leave",
        "[message.receipt for message in batch.messages if batch.retry_after[message] is None]",
        "[message.receipt for message in batch.messages]",
        "tests/integration/test_threads.py -k f20",
    ),
    Mutant(
        "what no thread had begun is forgotten where what overran came to its end",
        "ParallelGroups.run",
        """
        self._finish_rest(overrun, batch)
        if overrun:
            self._leave(overrun, batch)
        """,
        """
        if overrun:
            self._finish_rest(overrun, batch)
            self._leave(overrun, batch)
        """,
        "tests/integration/test_threads.py -k keeps_the_process",
    ),
    Mutant(
        "processors begin after one has overrun",
        "ProcessorThreads.run",
        "future.cancel()",
        "not future.running() and not future.done()",
        "tests/integration/test_threads.py -k left_out",
    ),
    Mutant(
        "an overrun costs the neighbour in work its attempt",
        "ProcessorThreads.run",
        "len(running) == len(overrun)",
        "overrun or not running",
        "tests/integration/test_threads.py -k awaited",
    ),
    Mutant(
        "what is held is never committed",
        "Consumer._in_turn",
        """
        if batch.held:
            self._groups.commit(batch)
        """,
        "",
        "grouped commits",
    ),
    Mutant(
        "the claim for a call has no mark",
        "Ledger._wanted",
        "CallMark.TOGETHER if wish.for_call else None",
        "None",
        "tests/unit/test_calls.py -k poison",
    ),
    Mutant(
        "a call that was killed spends an attempt",
        "Row.spent_attempts",
        "self.attempts - 1 if self.died_together else self.attempts",
        "self.attempts",
        "tests/unit/test_calls.py -k poison",
    ),
    Mutant(
        "a call that raised spends an attempt",
        "call_died",
        "counted=False",
        "counted=True",
        "tests/unit/test_calls.py -k poison",
    ),
    Mutant(
        "a change whose call died is in a call again",
        "Row.runs_alone",
        "self.call_mark == CallMark.ALONE or self.died_together",
        "self.call_mark == CallMark.ALONE",
        "calls, budget",
    ),
    Mutant(
        "a change that runs alone loses its mark",
        "claimed",
        "CallMark.ALONE if again and base.runs_alone else call_mark",
        "call_mark",
        "tests/unit/test_calls.py -k poison",
    ),
    Mutant(
        "an error of a whole call is that of each change",
        "InlineCalls._answers",
        "end.died = len(given) if len(given) > 1 else 0",
        "end.died = 0",
        "tests/unit/test_calls.py -k poison",
    ),
    Mutant(
        "a missing result is a commit",
        "results_of",
        "returned[key] if key in returned else MissingResultError(hint)",
        "returned.get(key)",
        "tests/unit/test_calls.py -k without_a_result",
    ),
    Mutant(
        "results of unknown changes are ignored",
        "results_of",
        "key not in keys",
        "not key",
        "tests/unit/test_calls.py -k names_no_change",
    ),
    Mutant(
        "changes of a call are committed before the sink has answered",
        "SharedCalls._call",
        "started, limit = self.services.clock(), self.services.settings.processing_timeout_seconds",
        """
        started, limit = self.services.clock(), self.services.settings.processing_timeout_seconds
        for member in members:
            self.services.ledger.commit(member.claim)
        """,
        "tests/unit/test_calls.py -k poison",
    ),
    Mutant(
        "a call that died counts for the breaker once for each change",
        "SharedCalls._call",
        "outcome is not None and not (end.died and told)",
        "outcome is not None",
        "tests/unit/test_calls.py -k breaker",
    ),
    Mutant(
        "calls are made while the downstream is out",
        "SharedCalls.run",
        "not self.downstream.breaker.is_open",
        "True",
        "tests/unit/test_calls.py -k while_the_downstream",
    ),
    Mutant(
        "a call starts without its time",
        "SharedCalls.run",
        "batch.spare_ms(CLAIMED_RESERVE_SECONDS) < 0",
        "False",
        "tests/unit/test_calls.py -k cannot_start_in_time",
    ),
    Mutant(
        "a grouped commit without fence",
        "LedgerTable.commit_many",
        "no_late_writes(before)",
        'Condition("#status = :processing", (), no_late_writes(before).values)',
        "tests/unit/test_groups.py -k f03",
    ),
    Mutant(
        "a refused commit of a group is taken for written",
        "Ledger.commit_together",
        "claim.key not in written",
        "not written and len(group) < self._options.min_group",
        "tests/unit/test_groups.py -k f03",
    ),
    Mutant(
        "a held commit that fails is acknowledged",
        "Groups.commit",
        "batch.finish(message, self.failures.backoff(message.receives))",
        "pass",
        "tests/unit/test_groups.py -k f72",
    ),
    Mutant(
        "what came before is begun while commits are held",
        "Groups.may_wait",
        "young and len(batch.held) < BATCH_STATEMENTS and batch.is_claimed(message)",
        "young and len(batch.held) < BATCH_STATEMENTS",
        "tests/unit/test_groups.py -k f92",
    ),
    Mutant(
        "commits are held for as long as it takes",
        "Groups.may_wait",
        "self.services.clock() - batch.held[0].since < HOLD_MS",
        "True",
        "tests/unit/test_groups.py -k waits",
    ),
    Mutant(
        "the team's writes are left out of the commit",
        "Ledger.commit",
        "[*transact, *own]",
        "[*own]",
        "transactions",
    ),
    Mutant(
        "a transaction without fence",
        "LedgerTable.update_with",
        "self._update(key, before, after, condition, clear_late_writes=clear_late_writes)",
        """
        self._update(
            key,
            before,
            after,
            Condition("attribute_exists(#status)", ("status",), {}),
            clear_late_writes=clear_late_writes,
        )
        """,
        "transactions, a slow worker",
    ),
    Mutant(
        "a claim of a group is every copy's of its message",
        "MessageHandler._handle_change",
        "answer = batch.answers.get(message)",
        "answer = next((one for other, one in batch.answers.items() if other.id == message.id), None)",
        "tests/unit/test_groups.py -k a_message",
    ),
    Mutant(
        "messages that failed before keep their places in the batch",
        "in_order.place",
        "(position + 1 - message.receives) % size",
        "position",
        "tests/unit/test_consumer.py -k starve_its_neighbours",
    ),
    Mutant(
        "claims of a group are forgotten where the network fails after them",
        "Ledger.claim_together",
        """
        if not answers:
            raise
        """,
        "raise",
        "tests/unit/test_groups.py -k network_failed",
    ),
    Mutant(
        "an effect is repeated where the network fails at a group's commit",
        "AWS_ERRORS",
        "(BotoCoreError, ClientError)",
        "(ClientError,)",
        "tests/unit/test_groups.py -k network_error",
    ),
    Mutant(
        "a throttled transaction spends an attempt",
        "_cancelled",
        "code in _REFUSED or code in _THROTTLED",
        "code in _REFUSED",
        "tests/unit/test_transactions.py -k throttling",
    ),
    Mutant(
        "a bad record is copied whenever its neighbours bring the message back",
        "MessageHandler.handle",
        "refused and not delays",
        "refused",
        "tests/unit/test_consumer.py tests/unit/test_batches.py -k f26",
    ),
    Mutant(
        "a bad record is copied when its message first comes, or never",
        "MessageHandler.handle",
        "refused and not delays",
        "refused and not delays and message.receives == 1",
        "tests/unit/test_consumer.py tests/unit/test_batches.py -k f26",
    ),
    Mutant(
        "all failures are in one partition of the index",
        "review_partition",
        "REVIEW_PARTITIONS",
        "1",
        "tests/unit/test_review_index.py",
    ),
    Mutant(
        "too few partitions of the index for ten thousand failures a second",
        "REVIEW_PARTITIONS",
        "20",
        "8",
        "tests/unit/test_review_index.py",
    ),
    Mutant(
        "a restore opens no round",
        "_asks_for_retry",
        """
        if _makes_readable(change, row):
            return True
        """,
        "",
        "tests/unit/test_restore.py",
    ),
    Mutant(
        "a restore opens a round whatever the rejection's reason",
        "_makes_readable",
        "change.restored and row.s3_error == ARCHIVED and change.identity == row.identity",
        "change.restored and change.identity == row.identity",
        "tests/unit/test_restore.py",
    ),
    Mutant(
        "a restore of another version opens a round",
        "_makes_readable",
        "change.restored and row.s3_error == ARCHIVED and change.identity == row.identity",
        "change.restored and row.s3_error == ARCHIVED",
        "tests/unit/test_restore.py",
    ),
    Mutant(
        "a restore without a row is processed again after its row has expired",
        "_may_have_expired",
        "change.restored and state.created_at is None",
        "False",
        "tests/unit/test_restore.py",
    ),
    Mutant(
        "a restore is taken for the event that made the object",
        "_may_have_expired",
        "change.is_event and not change.restored",
        "change.is_event",
        "tests/unit/test_restore.py",
    ),
    Mutant(
        "a failure keeps the archive's refusal as its reason",
        "failed",
        "s3_error=s3_error",
        "s3_error=s3_error or row.s3_error",
        "tests/unit/test_restore.py",
    ),
    Mutant(
        "each unreadable record is a dead letter of its own",
        "MessageHandler.handle",
        """
        reason = self.failures.refuse(merge_unparseable(refused, message.body), message)
        self.services.telemetry.unparseable(reason, message.id)
        """,
        """
        for one in refused:
            self.services.telemetry.unparseable(self.failures.refuse(one, message), message.id)
        """,
        "tests/unit/test_hostile.py -k f107",
    ),
    Mutant(
        "unreadable records beside readable ones are forgotten",
        "_parse_records",
        "parsed.append(Unparseable(why, part_body, len(unreadable)))",
        "_ = part_body",
        "tests/unit/test_hostile.py -k f107",
    ),
    Mutant(
        "a record that cannot be written again ends the batch",
        "_body_of",
        "RecursionError",
        "ZeroDivisionError",
        "tests/unit/test_hostile.py -k f107",
    ),
    Mutant(
        "a number with 60 digits reaches DynamoDB",
        "read_fields",
        "abs(value) >= _MAX_NUMBER",
        "value is None",
        "tests/unit/test_hostile.py -k f107",
    ),
    Mutant(
        "a processor that exits or is cancelled ends the batch",
        "Attempts._run",
        """
        except BaseException as error:
            ...
        """,
        """
        except (Exception, Overrun) as error:
            ...
        """,
        "tests/unit/test_consumer.py -k base_exception",
    ),
    Mutant(
        "an overrun inside a task group is any failure",
        "is_overrun",
        "isinstance(error, Overrun) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Overrun) is not None)",
        "isinstance(error, Overrun)",
        "tests/unit/test_consumer.py -k task_group",
    ),
    Mutant(
        "F113: a row of a later format is judged",
        "judge_row",
        "row.status is Status.LATER_FORMAT",
        "row.fence < 0",
        "tests/unit/test_later_format.py",
    ),
    Mutant(
        "F113: the message of a later format's row is acknowledged",
        "MessageHandler._without_claim",
        "later_format_seconds(message.receives)",
        "None",
        "tests/unit/test_later_format.py",
    ),
    Mutant(
        "F113: a later row without a status is replaced",
        "NO_ROW",
        'Condition("attribute_not_exists(#status) AND attribute_not_exists(#format)", ("status", "format"), {})',
        'Condition("attribute_not_exists(#status)", ("status",), {})',
        "tests/unit/test_later_format.py",
    ),
    Mutant(
        "F113: the audit resubmits a row of a later format",
        "judge",
        "row.status is Status.LATER_FORMAT",
        "False",
        "tests/unit/test_later_format.py -k audit",
    ),
    Mutant(
        "F113: the audit's scan believes a row of a later format",
        "_held",
        'not _is_readable(item) or not updated.isdecimal() or not lease.removeprefix("-").isdecimal()',
        'not updated.isdecimal() or not lease.removeprefix("-").isdecimal()',
        "tests/unit/test_later_format.py -k audit",
    ),
    Mutant(
        "F113: the audit's scan believes the lease of a later format",
        "_held",
        'not _is_readable(item) or not updated.isdecimal() or not lease.removeprefix("-").isdecimal()',
        "not _is_readable(item) or not updated.isdecimal()",
        "tests/unit/test_later_format.py -k audit",
    ),
    Mutant(
        "F113: a number that is not whole ends the read",
        "_value",
        '"N" in typed and typed["N"].removeprefix("-").isdecimal()',
        '"N" in typed',
        "tests/unit/test_later_format.py",
    ),
    Mutant(
        "F114: a reason quotes the exception",
        "_describe_one",
        "reasons is Reasons.FULL",
        "reasons",
        "tests/unit/test_content.py -k f114",
    ),
    Mutant(
        "F114: a reason quotes AWS, boto or another function",
        "describe",
        "text_of(error) if reasons is Reasons.FULL else error.why",
        "text_of(error)",
        "tests/unit/test_content.py -k f114",
    ),
    Mutant(
        "F114: a log line has a traceback with its messages",
        "PowertoolsTelemetry.log_error",
        "error if self._reasons is Reasons.FULL else None",
        "error",
        "tests/unit/test_content.py -k trouble",
    ),
    Mutant(
        "F114: a damaged archive is quoted",
        "_raw_lines",
        "type(error).__name__",
        "error",
        "tests/unit/test_content.py -k archive",
    ),
    Mutant(
        "F114: AWS's error code is taken for one without a look",
        "_type_of",
        "re.fullmatch(_AWS_CODE, code)",
        "code",
        "tests/unit/test_content.py -k AWS",
    ),
    Mutant(
        "F111: a repeated attempt is counted at the end of the invocation",
        "PowertoolsTelemetry.decided",
        "self._flush_metrics()",
        "",
        "tests/synth/test_repetition.py -k die_after",
    ),
    Mutant(
        "F111: repeated attempts are not counted",
        "PowertoolsTelemetry.decided",
        "_repeats(answer)",
        "[]",
        "tests/synth/test_repetition.py -k after_their_effect",
    ),
    Mutant(
        "F111: a lease that is taken over at the last attempt is not counted",
        "_TAKES_OVER",
        "{Verdict.ACCEPTED, Verdict.EXHAUSTED, Verdict.SETTLED}",
        "{Verdict.ACCEPTED}",
        "tests/unit/test_telemetry.py -k f111",
    ),
    Mutant(
        "what S3 does not even show is tried for ever",
        "Bucket.look",
        "_status(error) in _REFUSED_STATUS",
        "not error.response",
        "tests/unit/test_consumer.py -k does_not_even_show",
    ),
    Mutant(
        "botocore's own body is handed out, as `with` unwraps it",
        "Bucket.open",
        'return ObjectStream(answer["Body"], length, checksum_of(answer))',
        """
        raw = answer["Body"].__enter__()
        vars(raw).update(failure=None, complete=True)
        return raw
        """,
        "tests/integration/test_old_urllib3.py",
    ),
    Mutant(
        "the end of the connection is the end of the object",
        "_Checked._next",
        """
        if not data:
            raise self._failed(f"the connection to S3 ended {self._progress()}")
        """,
        "",
        "tests/unit/test_reading.py -k f93",
    ),
    Mutant(
        "altered bytes are taken for the object's",
        "_Checked._next",
        "self._checksum.digest.digest() != self._checksum.expected",
        "self._checksum is None",
        "tests/unit/test_cut_connections.py -k altered",
    ),
    Mutant(
        "what comes after a failure is an end of file",
        "_Checked._next",
        "raise self._reading.failure",
        'return b""',
        "tests/unit/test_cut_connections.py -k no_end_of_file",
    ),
    Mutant(
        "what the processor makes of half an object is believed",
        "OpenedObject.__exit__",
        "raise failure",
        "return",
        "tests/protocol/test_simulation.py -k repeated",
    ),
    Mutant(
        "any second stream makes up for one that was cut",
        "OpenedObject.__exit__",
        "reading.complete",
        "reading.failure is None",
        "tests/unit/test_cut_reading.py -k makes_up",
    ),
    Mutant(
        "a row of CSV has no limit",
        "_RowLines.__next__",
        "self._length += len(line)",
        "",
        "tests/unit/test_reading.py -k f103",
    ),
    Mutant(
        "an object of any size is read into memory",
        "read_all",
        "stream.length > max_bytes",
        "stream.length < 0",
        "tests/unit/test_cut_reading.py -k f103",
    ),
    Mutant(
        "a disk is filled up without a look at its space",
        "download_to_file",
        "stream.length > disk.free",
        "stream.length < 0",
        "tests/unit/test_cut_reading.py -k f103",
    ),
    Mutant(
        "a throttled function spends an attempt",
        "_raised",
        "not isinstance(error, NotBegun | OutputReserved)",
        "not isinstance(error, OutputReserved)",
        "tests/unit/test_remote.py -k f24",
    ),
    Mutant(
        "throttling uses a message's receives up",
        "growing_wait",
        "(now - row.first_claimed_at) / 1000 * GROWTH",
        "0",
        "tests/unit/test_remote.py -k receives_up",
    ),
    Mutant(
        "an outage uses a message's receives up",
        "least_wait_ms",
        "round(growing * step_ms)",
        "growing",
        "tests/unit/test_breaker.py -k f23",
    ),
    Mutant(
        "a late worker leaves no mark",
        "Attempts._unless_overtaken",
        "begun() and self.runner.writes and self.services.ledger.report_late_write(claim)",
        "False",
        "puts, a slow worker",
    ),
    Mutant(
        "a late worker reports what it has not begun",
        "Attempts._unless_overtaken",
        "begun() and self.runner.writes and self.services.ledger.report_late_write(claim)",
        "self.services.ledger.report_late_write(claim)",
        "tests/unit/test_late_writes.py -k not_begun",
    ),
    Mutant(
        "a late worker gives its own message back, which may be acknowledged",
        "Attempts._report",
        "self.services.queues.wake(own_message(Origin.LATE, claim.change.bucket, claim.change.key))",
        "pass",
        "late write, no audit",
    ),
    Mutant(
        "a late write is not reported where the row names its state",
        "Ledger.report_late_write",
        """
        if self._options.ordering is Ordering.EVERY_VERSION:
            return False
        """,
        """
        if self._options.ordering is Ordering.EVERY_VERSION:
            return False
        row = self._table.get(claim.key)
        if row is not None and row.identity == claim.row.identity:
            return False
        """,
        "tests/unit/test_late_writes.py -k a_b_a_b",
    ),
    Mutant(
        "a late write is a flag and names no state",
        "LedgerTable.report_late_write",
        "row.identity",
        '"another"',
        "tests/unit/test_late_writes.py -k same_state",
    ),
    Mutant(
        "a late write of a transaction's successor in flight is not reported",
        "late_write_may_harm",
        '"#format = :this_format AND attribute_exists(#status) AND #fence > :own_fence AND NOT (#status = :processed AND (attribute_exists(#transactional) OR #committed_state = :own_state))"',
        '"#format = :this_format AND attribute_exists(#status) AND #fence > :own_fence AND NOT (#status = :processed AND (#committed_state = :own_state)) AND attribute_not_exists(#transactional)"',
        "tests/unit/test_late_writes.py -k carried_out_once",
    ),
    Mutant(
        "a late write over a transaction repeats it",
        "late_write_may_harm",
        '"#format = :this_format AND attribute_exists(#status) AND #fence > :own_fence AND NOT (#status = :processed AND (attribute_exists(#transactional) OR #committed_state = :own_state))"',
        '"#format = :this_format AND attribute_exists(#status) AND #fence > :own_fence AND NOT (#status = :processed AND (#committed_state = :own_state))"',
        "late write, a transaction or not",
    ),
    Mutant(
        "a transaction keeps the late writes before it",
        "LedgerTable.update_with",
        "clear_late_writes=clear_late_writes",
        "clear_late_writes=False",
        "late write, a transaction or not",
    ),
    Mutant(
        "a plain commit leaves the mark of a transaction",
        "committed",
        "1 if transactional else None",
        "1 if transactional else row.transactional",
        "tests/unit/test_late_writes.py -k carried_out_once",
    ),
    Mutant(
        "a successor commits although another state was written late",
        "Ledger.commit",
        "no_other_late_writes(claim.row, claim.state.identity)",
        "lease_owned(claim.row)",
        "puts, a slow worker",
    ),
    Mutant(
        "a group commits although another state was written late",
        "LedgerTable.commit_many",
        "no_late_writes(before)",
        'Condition(no_late_writes(before).expression.partition(" AND attribute_not_exists")[0], (), no_late_writes(before).values)',
        "late write, grouped commits",
    ),
    Mutant(
        "a commit that was refused after a late write spends an attempt",
        "ending",
        "counted=False",
        "",
        "tests/unit/test_late_writes.py -k repeated_at_once",
    ),
    Mutant(
        "a row with a late write is settled",
        "is_settled",
        "status == Status.PROCESSED and all(state == committed_state for state in late_writes)",
        "status == Status.PROCESSED",
        "puts, a slow worker",
    ),
    Mutant(
        "the audit takes a row with a late write for settled",
        "_settled_state",
        'item["late_writes"]["SS"] if "late_writes" in item else ()',
        "()",
        "tests/unit/test_late_writes.py -k audit_finds",
    ),
    Mutant(
        "a claim leaves the late writes that it read",
        "claimed",
        "late_writes=frozenset()",
        "",
        "tests/unit/test_late_writes.py -k once_more",
    ),
    Mutant(
        "a claim removes late writes that it has not read",
        "Ledger._take",
        "self._table.update(wish.key, wish.row, row, unchanged)",
        """
        found = self._table.get(wish.key) or wish.row
        self._table.update(wish.key, replace(wish.row, late_writes=found.late_writes), row, unchanged)
        """,
        "tests/unit/test_late_writes.py -k has_not_read",
    ),
    Mutant(
        "the write that repairs a late one has a key that was used",
        "claimed",
        "(retry or resumed) and not base.late_writes - {identity}",
        "retry or resumed",
        "late write, a keyed downstream",
    ),
    Mutant(
        "a state that comes back has the idempotency key of its first time",
        "claimed",
        "base.first_claimed_at if same_key else max(now, base.first_claimed_at + 1)",
        "now",
        "keyed effects, rollback",
    ),
    Mutant(
        "each attempt has its own idempotency key",
        "claimed",
        "(retry or resumed) and not base.late_writes - {identity}",
        "False",
        "keyed effects, rollback",
    ),
    Mutant(
        "an output of a later claim is overwritten",
        "ConditionalPut._is_done",
        "present.mark is None",
        "present.mark is None or present.mark.fence != mark.fence",
        "outputs, a slow worker",
    ),
    Mutant(
        "a write of the same claim is taken for a later claim's",
        "ConditionalPut._is_done",
        "present.mark.fence > mark.fence",
        "present.mark.fence >= mark.fence",
        "outputs, lost answers",
    ),
    Mutant(
        "an output is written without a condition",
        "Present.condition",
        '{"IfNoneMatch": "*"} if self.etag is None else {"IfMatch": self.etag}',
        "{}",
        "outputs, a slow worker",
    ),
    Mutant(
        "a removed output is deleted, without a tombstone",
        "Output.remove",
        "self._put.swap(mark, partial(self._put_object, content, request), removes=not self._is_version)",
        "self._client.delete_object(**self._where)",
        "outputs, a late worker dies after a removal",
    ),
    Mutant(
        "the content of an output has no fence",
        "seal",
        "_png_chunk(mark)",
        'b""',
        "outputs, rollback",
    ),
    Mutant(
        "the row of a higher fence is locked",
        "_statement",
        """
        f"INSERT INTO {table} AS seen ({', '.join(_COLUMNS)}, written_at)"
        f" VALUES ({', '.join(marks[name] for name in _COLUMNS)}, CURRENT_TIMESTAMP)"
        f" ON CONFLICT (pipeline, bucket, key, version) DO UPDATE SET {updated}"
        " WHERE seen.fence <= excluded.fence RETURNING fence"
        """,
        """
        f"INSERT INTO {table} AS seen ({', '.join(_COLUMNS)}, written_at)"
        f" VALUES ({', '.join(marks[name] for name in _COLUMNS)}, CURRENT_TIMESTAMP)"
        f" ON CONFLICT (pipeline, bucket, key, version) DO UPDATE SET {updated}"
        " RETURNING fence"
        """,
        "tests/integration/test_effects.py -k lock_object",
    ),
    Mutant(
        "the same attempt cannot lock its row again",
        "_statement",
        """
        f"INSERT INTO {table} AS seen ({', '.join(_COLUMNS)}, written_at)"
        f" VALUES ({', '.join(marks[name] for name in _COLUMNS)}, CURRENT_TIMESTAMP)"
        f" ON CONFLICT (pipeline, bucket, key, version) DO UPDATE SET {updated}"
        " WHERE seen.fence <= excluded.fence RETURNING fence"
        """,
        """
        f"INSERT INTO {table} AS seen ({', '.join(_COLUMNS)}, written_at)"
        f" VALUES ({', '.join(marks[name] for name in _COLUMNS)}, CURRENT_TIMESTAMP)"
        f" ON CONFLICT (pipeline, bucket, key, version) DO UPDATE SET {updated}"
        " WHERE seen.fence < excluded.fence RETURNING fence"
        """,
        "tests/integration/test_sql_outputs.py",
    ),
    Mutant(
        "an overtaken transaction is not refused",
        "lock_object",
        "not locked",
        "locked is None",
        "tests/integration/test_effects.py -k lock_object",
    ),
    Mutant(
        "the fence is used again at a takeover",
        "_next_fence",
        "seen.fence + 1",
        "seen.fence",
        "outputs, a slow worker",
    ),
    Mutant(
        "a row with a late write expires",
        "LedgerTable.report_late_write",
        '"REMOVE #expires_at ADD #late_writes :added"',
        '"ADD #late_writes :added"',
        "late write, a marker",
    ),
    Mutant(
        "a release forgets the late writes that its claim read",
        "released",
        "seen.late_writes | row.late_writes",
        "row.late_writes",
        "tests/unit/test_late_writes.py -k puts_back",
    ),
    Mutant(
        "a release removes the late writes that came meanwhile",
        "Ledger._put_back",
        "self._end(claim, after)",
        """
        row = replace(claim.row, late_writes=(self._table.get(claim.key) or claim.row).late_writes)
        self._end(replace(claim, row=row), after)
        """,
        "tests/unit/test_late_writes.py -k puts_back",
    ),
    Mutant(
        "a row that is put back expires with its late write",
        "Ledger._put_back",
        "after.expires_at is not None",
        "not after",
        "tests/unit/test_late_writes.py -k does_not_expire",
    ),
    Mutant(
        "bad files are taken for an outage again and again",
        "CircuitBreaker._close",
        "self._bad |= self._failed",
        "self._bad |= set()",
        "tests/unit/test_breaker.py -k f99",
    ),
    Mutant(
        "bad files are taken for an outage although others succeed beside them",
        "CircuitBreaker.failed",
        "len(self._failed) < THRESHOLD or self._is_recent(self._succeeded_at, now)",
        "len(self._failed) < THRESHOLD",
        "tests/unit/test_breaker.py -k f99",
    ),
    Mutant(
        "new files wait while the breaker is open",
        "CircuitBreaker.wait_ms",
        """
        if first:
            ...
        """,
        """
        if first and self._pause_ms is None:
            ...
        """,
        "tests/unit/test_breaker.py -k f99",
    ),
    Mutant(
        "held files wait for half an hour after an outage",
        "MAX_PAUSE_MS",
        "60_000",
        "1_800_000",
        "tests/protocol/test_breaker_runs.py",
    ),
    Mutant(
        "a failed key is probed again before the others",
        "CircuitBreaker.wait_ms",
        "self._until + (self._pause_ms if key in self._failed or key in self._bad else 0)",
        "self._until",
        "tests/unit/test_breaker.py -k f99",
    ),
    Mutant(
        "an outage spends attempts",
        "_failed",
        "counted=counted and not out",
        "counted=counted",
        "tests/unit/test_breaker.py -k f99",
    ),
    Mutant(
        "a message waits for a downstream until SQS drops it",
        "Failures.is_given_up",
        "age_ms >= self.services.settings.max_hold_seconds * 1000",
        "False",
        "tests/unit/test_breaker.py -k f99",
    ),
    Mutant(
        "an environment does not learn of the others' successes",
        "Downstream.wait_ms",
        "at is not None and self.breaker.heard(at, now)",
        "at is None and self.breaker.heard(0, now)",
        "tests/unit/test_breaker.py -k f99",
    ),
    Mutant(
        "an object that S3 refuses to open counts against the downstream",
        "_failed",
        "False if downstream else None",
        "False",
        "tests/unit/test_breaker.py -k not_the_downstreams",
    ),
    Mutant(
        "a wait is put back as if nothing had been begun",
        "Attempts._settle",
        "ledger.wait(claim, reason, retry_at=at, waiter=waiter)",
        "ledger.release(claim)",
        "not yet, rollback",
    ),
    Mutant(
        "a wait spends an attempt",
        "waiting",
        "row.attempts - 1",
        "row.attempts",
        "not yet, budget",
    ),
    Mutant(
        "a duplicate tries before a wait is over",
        "judge_state",
        "(row.retry_at or 0) > now",
        "False",
        "not yet, duplicates",
    ),
    Mutant(
        "a reprocess waits too",
        "judge_state",
        "row.status is Status.FAILED and (row.retry_at or 0) > now and not change.asked_for and not ignored",
        "row.status is Status.FAILED and (row.retry_at or 0) > now and not ignored",
        "tests/unit/test_not_yet.py -k reprocess",
    ),
    Mutant(
        "a wait has no end",
        "_wait",
        "left_ms <= 0",
        "left_ms <= -(10**15)",
        "tests/unit/test_not_yet.py -k never_comes",
    ),
    Mutant(
        "each wait begins a new one",
        "waiting",
        "now if row.waiting_since is None else row.waiting_since",
        "now",
        "tests/unit/test_not_yet.py -k keeps_its_beginning",
    ),
    Mutant(
        "waits use a message's receives up",
        "_waiting",
        "_waited_ms(claim, facts) / 1000 * GROWTH",
        "0",
        "tests/unit/test_not_yet.py -k thirty_hours",
    ),
    Mutant(
        "what waits counts against the downstream",
        "_wait",
        "Outcome(OutcomeKind.WAITING, Write.WAIT, reason, delay)",
        "Outcome(OutcomeKind.WAITING, Write.WAIT, reason, delay, healthy=False)",
        "tests/unit/test_not_yet.py -k no_outage",
    ),
    Mutant(
        "a wait is listed among the failures",
        "Ledger.wait",
        "waiting_partition(self._options.pipeline)",
        "review_partition(self._options.pipeline, claim.key)",
        "tests/unit/test_not_yet.py -k partition",
    ),
    Mutant(
        "the audit resubmits what waits",
        "judge",
        "(row.retry_at or 0) > window.settled_before",
        "(row.retry_at or 0) > 10**15",
        "tests/unit/test_not_yet.py -k audit",
    ),
    Mutant(
        "a commit keeps the reason code",
        "committed",
        "note.code.value if note else None",
        "note.code.value if note else row.reason_code",
        "tests/unit/test_reason_codes.py",
    ),
    Mutant(
        "a retry loses the reason code",
        "claimed",
        "base.reason_code if retry or resumed else None",
        "None",
        "tests/unit/test_reason_codes.py",
    ),
    Mutant(
        "a dead-letter copy has no reason code",
        "Failures._dead_letter",
        '"reason_code"',
        '"no_reason_code"',
        "tests/unit/test_reason_codes.py",
    ),
    Mutant(
        "a reason code matches the text of another reason",
        "matches_reason",
        "wanted == code or wanted in ReasonCode",
        "wanted == code",
        "tests/unit/test_reason_codes.py",
    ),
    Mutant(
        "a wrong return value is tried again",
        "ending",
        "invalid_effect_of(error)",
        "None",
        "tests/unit/test_consumer.py -k f101",
    ),
    Mutant(
        "a heartbeat extends a row that another worker has",
        "Ledger.extend",
        "self._end(claim, after)",
        """
        self._table.update(
            claim.key,
            claim.row,
            after,
            row_unchanged(self._table.get(claim.key) or claim.row, 10**15),
        )
        """,
        "tests/unit/test_worker.py",
    ),
    Mutant(
        "claims that were made together have no heartbeat",
        "Ledger.claim_together",
        "found.append(None if answer is None else self._checked(answer))",
        "found.append(answer)",
        "tests/unit/test_worker.py",
    ),
    Mutant(
        "a heartbeat hides a returned message for longer",
        "Heartbeat.returning",
        "self._receipts.difference_update(receipts)",
        "",
        "tests/unit/test_worker.py",
    ),
    Mutant(
        "a stopped worker begins further records",
        "Worker.get_remaining_time_in_millis",
        "0 if self._stopping.is_set() else self._services.settings.processing_timeout_seconds * 1000 + _PLENTY_MS",
        "self._services.settings.processing_timeout_seconds * 1000 + _PLENTY_MS",
        "tests/unit/test_worker.py",
    ),
    Mutant(
        "a hanging processor keeps its key",
        "Heartbeat.beat",
        "any(now - since > self._limit for since in tuple(self._running.values()))",
        "False",
        "tests/unit/test_worker.py",
    ),
    Mutant(
        "sets: a duplicate of a part wakes no set",
        "SetWakes.before_acknowledging",
        "batch.retry_after[message] is not None",
        "batch.retry_after[message] is not None or message.receives > 1",
        "sets: deaths, a replaced part",
    ),
    Mutant(
        "sets: a part is acknowledged although its wake failed",
        "SetWakes._return",
        "batch.finish(message, WAKE_AGAIN_SECONDS)",
        "",
        "tests/unit/test_sets.py -k f153",
    ),
    Mutant(
        "sets: a part of a manifest wakes nothing",
        "Wakes.sets_of",
        "target.form.kind is FormKind.MANIFEST",
        "False",
        "sets: deaths, a replaced part",
    ),
    Mutant(
        "sets: a manifest does not wake its own set",
        "FormSettings.set_of",
        "key if self.is_control(key) else None",
        "None",
        "sets: a part, then the manifest",
    ),
    Mutant(
        "sets: the digest has no versions of parts",
        "SetReader._contents",
        "parts[key].identity",
        '""',
        "sets: deaths, a replaced part",
    ),
    Mutant(
        "sets: the digest has no version of the manifest",
        "SetReader._contents",
        """
        word = f"{COMPLETE}-{_digest(source.identity, 8)}"
        complete = _state(
            word, source, [source.identity, versions], created_at=max(source.created_at or 0, read.updated_at)
        )
        """,
        """
        word = f"{COMPLETE}-{_digest('', 8)}"
        complete = _state(word, source, [versions], created_at=max(source.created_at or 0, read.updated_at))
        """,
        "sets: a newer manifest",
    ),
    Mutant(
        "sets: missing parts are not in the digest",
        "SetReader._contents",
        """
        if len(parts) < len(listing.keys):
            return Contents(listing, _state(INCOMPLETE, source, source.identity), parts, read.others, newest=read.newest, arrived_at=read.arrived_at)
        if self._form.kind is FormKind.QUIET and (quiet_at := read.newest + quiet_ms) > self._clock():
            return Contents(listing, _state(MOVING, source, read.newest // quiet_ms), parts, quiet_at=quiet_at)
        versions = [(key, parts[key].identity) for key in listing.keys]
        """,
        "versions = [(key, parts[key].identity) for key in listing.keys if key in parts]",
        "tests/unit/test_sets.py -k f152",
    ),
    Mutant(
        "sets: a set with missing parts is processed",
        "SetWork._check",
        "contents.missing",
        "False",
        "sets: the manifest, then its part",
    ),
    Mutant(
        "sets: the set is not read again after the claim",
        "SetWork._check",
        "contents.state.identity != claim.state.identity",
        "False",
        "sets: a replaced part",
    ),
    Mutant(
        "sets: the rows are read before the parts are recorded",
        "SetWork._contents",
        """
        self._register(key, listing)
        row = known_row(self._claim.change, self._claim.seen)
        return kind.reader.contents(key, listing, row=row, whole=True)
        """,
        """
        row = known_row(self._claim.change, self._claim.seen)
        contents = kind.reader.contents(key, listing, row=row, whole=True)
        self._register(key, listing)
        return contents
        """,
        "sets: a replaced part",
    ),
    Mutant(
        "sets: a manifest is recorded before its parts are",
        "Membership.register",
        """
        if known.get("listed", {}).get("S") == manifest:
            return
        """,
        """
        if known.get("listed", {}).get("S") == manifest:
            return
        self._client.put_item(TableName=self._table, Item={**place, "listed": {"S": manifest}})
        """,
        "sets: deaths and time, a replaced part",
    ),
    Mutant(
        "sets: parts are read in their present version",
        "SetWork.ready",
        "contents.parts[key]",
        "self._kind.bucket.look(key)",
        "sets: deaths, a replaced part",
    ),
    Mutant(
        "sets: the committed delete marker of a part is a version",
        "SetReader._committed",
        "State(StateKind.OBJECT, name) if row.kind is StateKind.OBJECT else None",
        "State(StateKind.OBJECT, name)",
        "sets: a deleted part",
    ),
    Mutant(
        "sets: the delete marker before a failing version is a version",
        "SetReader._committed",
        "None if self._bucket.shows_removal(key, marker) else State(StateKind.OBJECT, name)",
        "State(StateKind.OBJECT, marker.version_id)",
        "tests/unit/test_sets.py -k f154",
    ),
    Mutant(
        "sets: wakes end while a worker has the set",
        "judge_row",
        "executions and _awaits_another(row, change)",
        "_awaits_another(row, change)",
        "sets: a replaced part",
    ),
    Mutant(
        "sets: the message of a waiting attempt ends early",
        "_awaits_another",
        "bool(row.waiter_id and change.waiter_ids) and row.waiter_id not in change.waiter_ids",
        "bool(row.waiter_id and change.waiter_ids)",
        "tests/unit/test_sets.py -k comes_early",
    ),
    Mutant(
        "sets: each wake of a waiting set stays in the queue",
        "MessageHandler._busy",
        "ruling.awaited or change.execution is not None",
        "change.execution is not None",
        "tests/unit/test_sets.py -k many_wakes",
    ),
    Mutant(
        "sets: each part that arrives moves the deadline",
        "SetReader._contents",
        "_state(INCOMPLETE, source, source.identity)",
        "_state(INCOMPLETE, source, [source.identity, sorted(parts)])",
        "tests/unit/test_sets.py -k f152",
    ),
    Mutant(
        "sets: manifests are given to the processor of the parts",
        "Objects.work",
        "self._sets is not None and self._sets.is_control(claim.change.key)",
        "False",
        "tests/unit/test_sets.py -k processed_once",
    ),
    Mutant(
        "sets: keys outside of the filters are waited for",
        "parts_of",
        "not wants(key)",
        "False",
        "tests/unit/test_sets.py -k f155",
    ),
    Mutant(
        "sets: a manifest may name a part twice",
        "parts_of",
        "key in places",
        "False",
        "tests/unit/test_sets.py -k f155",
    ),
    Mutant(
        "sets: a manifest may name itself",
        "parts_of",
        "key == set_key",
        "False",
        "tests/unit/test_sets.py -k f155",
    ),
    Mutant(
        "sets: keys may have dots as folders",
        "_key",
        'any(segment in (".", "..") for segment in key.split("/"))',
        "False",
        "tests/unit/test_sets.py -k f155",
    ),
    Mutant(
        "sets: parts may be in another bucket",
        "_key",
        "other != bucket",
        "False",
        "tests/unit/test_sets.py -k f155",
    ),
    Mutant(
        "sets: a manifest has any number of parts",
        "parts_of",
        "number > MAX_PARTS",
        "False",
        "tests/unit/test_sets.py -k too_many_parts",
    ),
    Mutant(
        "sets: a folder has any number of objects",
        "SetReader._folder",
        "len(found) > MAX_PARTS",
        "False",
        "tests/unit/test_sets.py -k f156",
    ),
    Mutant(
        "sets: a folder in motion has one name",
        "SetReader._contents",
        "listing.changed_at // quiet_ms",
        "0",
        "tests/unit/test_sets.py -k f157",
    ),
    Mutant(
        "sets: a folder is not quiet for long enough",
        "SetReader._contents",
        "self._form.quiet_seconds * 1000",
        "self._form.quiet_seconds * 100",
        "tests/unit/test_sets.py -k f157",
    ),
    Mutant(
        "sets: the audit forgets sets that wait",
        "_continues",
        "now - max(row.retry_at or 0, row.updated_at) < SETTLE_MS",
        "True",
        "tests/unit/test_sets.py -k whose_message_was_lost",
    ),
    Mutant(
        "sets: the audit wakes sets whose next look is not due",
        "_continues",
        "now - max(row.retry_at or 0, row.updated_at) < SETTLE_MS",
        "False",
        "tests/unit/test_sets.py -k left_alone",
    ),
    Mutant(
        "sets: the audit wakes committed sets again and again",
        "_continues",
        "row.status in (Status.PROCESSED, Status.REJECTED)",
        "row.status is Status.REJECTED",
        "tests/unit/test_sets.py -k finished_for_a_day",
    ),
    Mutant(
        "sets: the audit wakes rejected sets again and again",
        "_continues",
        "row.status in (Status.PROCESSED, Status.REJECTED)",
        "row.status is Status.PROCESSED",
        "tests/unit/test_sets.py -k finished_for_a_day",
    ),
    Mutant(
        "sets: the audit ignores a set without a row",
        "_continues",
        """
        if row is None:
            return False
        """,
        """
        if row is None:
            return True
        """,
        "tests/unit/test_sets.py -k whose_wake_was_lost",
    ),
    Mutant(
        "sets: the audit ignores a set with a newer state than its row",
        "_continues",
        """
        if row.identity != state.identity:
            return False
        """,
        "",
        "tests/unit/test_sets.py -k newer_state",
    ),
    Mutant(
        "sets: the audit wakes sets while their message is on the way",
        "SetAudit._is_lost",
        "now - (state.created_at or 0) < SETTLE_MS",
        "False",
        "tests/unit/test_sets.py -k left_alone",
    ),
    Mutant(
        "sets: the audit finds a lost set and sends no message",
        "SetAudit.run",
        """
        if not dry_run:
            self._queues.wake(own_message(Origin.PART, self._bucket.name, key))
        found.woken.append(key)
        """,
        """
        if not dry_run:
            found.woken.append(key)
        """,
        "tests/unit/test_sets.py -k whose_wake_was_lost",
    ),
    Mutant(
        "sets: the audit does not know the oldest waiting set",
        "SetAudit.run",
        "self._waiting.oldest_since(self._settings.consumer.pipeline)",
        "None",
        "tests/unit/test_set_waiting.py -k f170",
    ),
    Mutant(
        "sets: a version that is gone uses up the attempts",
        "SetWork.gone",
        'NotYet(f"a version of a part is gone: {error}")',
        "error",
        "tests/unit/test_sets.py -k is_gone",
    ),
    Mutant(
        "two messages of a key at once",
        "KeyLock.take",
        """
        "(attribute_not_exists(#holder) OR #holder = :free OR #holder = :own_row) AND "
        "(attribute_not_exists(#fence) OR #fence < :fence_now)"
        """,
        """
        "(attribute_not_exists(#holder) OR #holder = :own_row OR #holder <> :own_row) AND "
        "(attribute_not_exists(#fence) OR #fence < :fence_now)"
        """,
        "tests/unit/test_messages.py -k as_long_as",
    ),
    Mutant(
        "the item of a lock is taken for a lock that is held",
        "is_holding",
        "outlives or row.is_live(now)",
        "True",
        "tests/unit/test_messages.py -k lapsed",
    ),
    Mutant(
        "two attempts on a key have one fence",
        "KeyLock.take",
        """
        "(attribute_not_exists(#holder) OR #holder = :free OR #holder = :own_row) AND "
        "(attribute_not_exists(#fence) OR #fence < :fence_now)"
        """,
        """
        "(attribute_not_exists(#holder) OR #holder = :free OR #holder = :own_row) AND "
        "(attribute_not_exists(#fence) OR #fence <= :fence_now)"
        """,
        "messages of a key",
    ),
    Mutant(
        "a worker's repeated request finds its own lock held",
        "KeyLock.take",
        'return replace(claim, lock_fence=int(item["fence"]))',
        "return self._busy(claim, _SHORTEST_WAIT_MS)",
        "tests/unit/test_messages.py -k repeated_request",
    ),
    Mutant(
        "a commit does not ask for the lock",
        "KeyLock.with_commit",
        "held.expression",
        '"(#holder = :own_row OR #holder <> :own_row) AND (#holder_fence = :own_fence OR #holder_fence <> :own_fence)"',
        "messages, a late worker",
    ),
    Mutant(
        "a lock expires with the rows",
        "KeyLock._expires_at",
        "(self._retention.expires_at(StateKind.DELETED, until) or 0) + _DAY_SECONDS",
        "self._retention.expires_at(StateKind.DELETED, self._clock())",
        "tests/unit/test_messages.py -k the_lock_stays",
    ),
    Mutant(
        "a failure keeps the lock",
        "is_holding",
        """
        if row is None or row.status is not Status.PROCESSING or row.fence != lock["holder_fence"]:
            return False
        """,
        """
        if row is None:
            return False
        if row.status is not Status.PROCESSING:
            return True
        """,
        "tests/unit/test_messages.py -k failure_after_the_lock",
    ),
    Mutant(
        "a message that finds its key held spends an attempt",
        "Ledger._guarded",
        """
        with suppress(Fenced):
            self._give_back(claim, place)
        """,
        "pass",
        "tests/unit/test_messages.py -k never_processed_at_once",
    ),
    Mutant(
        "a commit without its lock is taken for a failure of the processor",
        "Ledger.commit",
        "refused.passing or all(guard.still_holds(claim) for guard in self._guards)",
        "True",
        "tests/unit/test_messages.py -k late_commit",
    ),
    Mutant(
        "an extension keeps the row of a lock that is lost",
        "Ledger.extend",
        """
        with suppress(ConditionFailed):
            self._table.update(claim.key, after, claim.row, lease_owned(claim.row))
        """,
        "",
        "tests/unit/test_once.py -k extension_without_the_key",
    ),
    Mutant(
        "later messages of a FIFO group overtake a failed one",
        "InGroups.returned",
        "self._returned[message.group] = seconds",
        "pass",
        "messages, FIFO",
    ),
    Mutant(
        "later records of a stream overtake a failed one of their key",
        "InShard.returned",
        "self._blocked |= message.keys",
        "pass",
        "messages, a stream",
    ),
    Mutant(
        "a stream goes on after the last failed record",
        "InShard.returned",
        "self._lowest or (message.id, seconds)",
        "(message.id, seconds)",
        "messages, a stream",
    ),
    Mutant(
        "a block that failed keeps its key",
        "OnceLedger._record",
        "self._ledger.let_go(held, ended=False)",
        "pass",
        "tests/unit/test_once.py -k not_recorded_frees",
    ),
    Mutant(
        "an execution is taken over by the lease",
        "judge_row",
        "executions and row.unfinished and asks",
        "executions and row.is_live(now)",
        "tests/protocol/test_execution_worlds.py -k overwrites",
    ),
    Mutant(
        "an execution that was not started is replaced by another one",
        "Ledger.take_over",
        "self._end(claim, after)",
        """
        after = replace(after, fence=after.fence + 1)
        self._end(claim, after)
        """,
        "tests/protocol/test_execution_worlds.py -k pauses",
    ),
    Mutant(
        "the execution of a failed row is not described",
        "judge_row",
        "row.status is Status.PROCESSING or (row.fence != ended and not row.waits)",
        "row.status is Status.PROCESSING",
        "tests/unit/test_executions.py",
    ),
    Mutant(
        "an aborted execution is followed at once",
        "decide",
        "now < rest",
        "False",
        "tests/protocol/test_execution_worlds.py -k outlives",
    ),
    Mutant(
        "a redriven execution leaves no mark",
        "Later.concerns",
        "ended.redriven",
        "not ended.redriven",
        "tests/unit/test_executions.py",
    ),
    Mutant(
        "the input of an execution depends on the message",
        "ObjectWork.request",
        'Change(change.bucket, change.key, Origin.EXECUTION, row.event_name or "", "")',
        "change",
        "tests/unit/test_executions.py",
    ),
    Mutant(
        "a start of an execution without an answer frees the claim",
        "Later.start",
        "return Started(UNKNOWN_SECONDS)",
        """
        run.begun = False
        raise
        """,
        "tests/unit/test_executions.py",
    ),
    Mutant(
        "a message that sees a recorded end reports a late write",
        "Later.writes",
        "writes = False",
        "writes = True",
        "tests/protocol/test_execution_worlds.py -k redrive",
    ),
    Mutant(
        "the end of an execution is counted by each message that sees it",
        "Ledger._is_own_commit",
        "not self.outlived or row.updated_at == written.updated_at",
        "True",
        "tests/unit/test_executions.py",
    ),
    Mutant(
        "the message of a started execution is acknowledged",
        "Attempts._run",
        "retry_after=returned.retry_after",
        "",
        "tests/protocol/test_execution_worlds.py -k deaths",
    ),
    Mutant(
        "an update without a change is sent",
        "_changes",
        '(changed, removed) if changed or removed else ({"fence": after.fence}, [])',
        "changed, removed",
        "tests/protocol/test_execution_sleepers.py",
    ),
    Mutant(
        "the seal of gzip is another member at the end",
        "seal",
        """
        yield source.take(header)
        yield _empty_blocks(mark)
        yield from source.rest()
        """,
        r"""
        yield from source.rest()
        yield _GZIP + bytes(7) + _empty_blocks(mark) + b"\x03\x00" + bytes(8)
        """,
        "tests/integration/test_seal_readers.py -k as_before",
    ),
    Mutant(
        "BGZF is sealed",
        "_gzip_header",
        "raise SealBreaks",
        "pass",
        "tests/unit/test_outputs.py -k bgzf",
    ),
    Mutant(
        "the comment of a JPEG is behind the index of its pictures",
        "_with_comment",
        r"""
        if segment[1] == 0xE2 and segment.endswith(b"MPF\0"):
            break
        """,
        r"""
        if segment[1] == 0xE2 and segment.endswith(b"MPF\0"):
            pass
        """,
        "tests/integration/test_seal_readers.py -k multi_picture",
    ),
    Mutant(
        "the fence is not found across chunks",
        "_with_fence",
        "found or fence in chunk or fence in end + chunk[:overlap]",
        "found or fence in chunk",
        "tests/unit/test_seal.py -k across",
    ),
    Mutant(
        "an upload that is gone is completed again",
        "_is_final",
        '_status(error) == 409 or _code(error) == "NoSuchUpload"',
        "_status(error) == 409",
        "tests/unit/test_outputs.py -k upload_that_is_gone",
    ),
    Mutant(
        "items that DynamoDB did not take are forgotten",
        "write_batch",
        '(answer.get("UnprocessedItems") or {}).get(table, ())',
        "()",
        "tests/unit/test_membership.py",
    ),
    Mutant(
        "sets: a CSV manifest is split at each line end of Unicode",
        "_csv",
        'io.StringIO(text, newline="")',
        "text.splitlines()",
        "tests/unit/test_set_properties.py",
    ),
    Mutant(
        "sets: a key with a comma is cut",
        "_csv",
        "None in row",
        "False",
        "tests/unit/test_sets.py -k f271",
    ),
    Mutant(
        "sets: the first of two lists in a manifest is taken",
        "_json",
        "len(named) != 1",
        "not named",
        "tests/unit/test_sets.py -k f155",
    ),
    Mutant(
        "sets: the version that a manifest names is ignored",
        "SetReader._read",
        "listing.versions.get(key) in (None, version_of(version))",
        "True",
        "tests/unit/test_sets.py -k f272",
    ),
    Mutant(
        "sets: a known manifest is not read again after it was replaced",
        "SetReader._manifest",
        "self._known.get((key, source.identity))",
        "next((kept for (name, _), kept in self._known.items() if name == key), None)",
        "tests/unit/test_sets.py -k read_again",
    ),
    Mutant(
        "sets: manifests of each size are read",
        "SetReader._parsed",
        "(source.size or 0) > MAX_BYTES",
        "False",
        "tests/unit/test_sets.py -k f156",
    ),
    Mutant(
        "sets: a folder has keys outside of the filters",
        "SetReader._folder",
        "self._settings.wants(name)",
        "True",
        "tests/unit/test_sets.py -k placeholder",
    ),
    Mutant(
        "sets: the placeholder of a folder is a part",
        "SetReader._folder",
        "name not in (key, folder)",
        "name != key",
        "tests/unit/test_sets.py -k placeholder",
    ),
    Mutant(
        "sets: only the first version of a manifest is recorded",
        "Membership.register",
        'known.get("listed", {}).get("S") == manifest',
        '"listed" in known',
        "tests/unit/test_sets.py -k newer_manifest",
    ),
    Mutant(
        "sets: a version that returns has its earlier idempotency key",
        "SetWork._idempotency_key",
        "claim.row.first_claimed_at",
        "0",
        "tests/unit/test_sets.py -k idempotency_key",
    ),
    Mutant(
        "sets: a SQL output has a fence for each version of a set",
        "lock_object",
        '{"version": "", "version_id": change.version, "removed": False}',
        '{"version": change.version, "version_id": change.version, "removed": False}',
        "tests/integration/test_sql_outputs.py -k f273",
    ),
    Mutant(
        "sets: removals from a finished set have no quiet time",
        "SetReader._after_removals",
        "contents.newest > (row.committed_fence or 0) + _CLOCKS_MS",
        "True",
        "tests/unit/test_set_removals.py -k f274",
    ),
    Mutant(
        "sets: a set that lost all parts is processed",
        "SetReader._after_removals",
        "manifest or not listing.keys or self._expired(key, row)",
        "manifest or self._expired(key, row)",
        "tests/unit/test_set_removals.py -k f274",
    ),
    Mutant(
        "sets: a finished manifest that lost parts waits for them",
        "SetReader._after_removals",
        "manifest or not listing.keys or self._expired(key, row)",
        "not listing.keys or self._expired(key, row)",
        "tests/unit/test_set_removals.py -k f274",
    ),
    Mutant(
        "sets: lifecycle expirations are removals",
        "SetReader._expired",
        'int(item.get("expired_at", 0)) > (row.committed_fence or 0)',
        "False",
        "tests/unit/test_set_removals.py -k f275",
    ),
    Mutant(
        "sets: expirations before the commit of a set count",
        "SetReader._expired",
        'int(item.get("expired_at", 0)) > (row.committed_fence or 0)',
        "bool(item)",
        "tests/unit/test_set_removals.py -k f275",
    ),
    Mutant(
        "sets: a request for an emptied set is not served",
        "known_row",
        "None if change.asked_for or (row is not None and row.reprocess_id is not None) else row",
        "row",
        "tests/unit/test_set_removals.py -k f274",
    ),
    Mutant(
        "sets: a replica's Last-Modified is believed",
        "SetReader._contents",
        "self._form.kind is FormKind.QUIET and (quiet_at := read.newest + quiet_ms) > self._clock()",
        "self._form.kind is FormKind.QUIET and (quiet_at := 0) > self._clock()",
        "tests/unit/test_set_removals.py -k f276",
    ),
    Mutant(
        "a commit of the same state looks like its first",
        "committed",
        "again = row.committed_state == identity",
        "again = False",
        "tests/unit/test_set_removals.py -k f276",
    ),
    Mutant(
        "sets: each audit begins at the first key",
        "SetAudit.run",
        'self._rows.read(place).get("after", "")',
        '""',
        "tests/unit/test_sets.py -k f277",
    ),
    Mutant(
        "sets: an audit that ended early says that it is complete",
        "SetAudit.run",
        'start == after == ""',
        "True",
        "tests/unit/test_sets.py -k f277",
    ),
    Mutant(
        "sets: the listing of the audit has no end",
        "SetAudit._sets",
        "remaining_seconds() < RESERVE_SECONDS or seen >= MOST_OBJECTS",
        "False",
        "tests/unit/test_sets.py -k f277",
    ),
    Mutant(
        "sets: a part that is replaced after the retention is no youth",
        "SetReader.look_for",
        "contents.arrived_at",
        "0",
        "tests/unit/test_set_removals.py -k f278",
    ),
    Mutant(
        "sets: a replicated manifest is as old as its Last-Modified",
        "SetReader.look_for",
        "self._first_commit(change.key, contents.listing.source)",
        "0",
        "tests/unit/test_set_removals.py -k f278",
    ),
    Mutant(
        "sets: a part that was read keeps its connection",
        "SetWork._file",
        "one_of_many=True",
        "",
        "tests/unit/test_set_reading.py",
    ),
    Mutant(
        "sets: a dropped stream of a part stays open",
        "OpenedObject.__init__",
        "weakref.ref if one_of_many else _strong",
        "_strong",
        "tests/unit/test_set_reading.py",
    ),
    Mutant(
        "the error of a dropped stream is forgotten",
        "OpenedObject._opened",
        "self._readings.append(stream.reading)",
        "self._readings = [stream.reading][:0]",
        "tests/unit/test_set_reading.py",
    ),
    Mutant(
        "failures of a shard spend no attempt while the breaker is open",
        "Failures.facts",
        "self.breaker.is_open and not message.in_shard",
        "self.breaker.is_open",
        "tests/unit/test_message_streams.py -k many_keys",
    ),
    Mutant(
        "each delivery of a record of a shard is a first attempt",
        "MessageHandler._wait_before",
        "message.receives == 1 and not (message.in_shard and self.downstream.breaker.has_failed(change.key))",
        "message.receives == 1",
        "tests/unit/test_message_streams.py -k outage",
    ),
    Mutant(
        "the copy of a rejected execution is its event",
        "parse_execution_event",
        "own_message(Origin.EXECUTION, bucket, key, state)",
        "json.dumps(event)",
        "tests/unit/test_executions.py",
    ),
    Mutant(
        "a removal forgets that its object was not processed",
        "removal_recorded",
        "(lost := unprocessed_state(seen, change, now=now, retention=retention)) is not None",
        "(lost := unprocessed_state(seen, change, now=now, retention=retention)) is not None and False",
        "removed unprocessed",
    ),
    Mutant(
        "the copy of a removed object vanishes",
        "MessageHandler._without_claim",
        "keeps_copy(change, ruling.row, unprocessed=ruling.unprocessed)",
        "False",
        "removed unprocessed",
    ),
    Mutant(
        "the copy of a version that is gone vanishes",
        "_gone",
        "seen is not None and (seen.unfinished or seen.status is Status.REJECTED)",
        "seen is not None and seen.unfinished",
        "tests/unit/test_removed_unprocessed.py",
    ),
    Mutant(
        "a version that is gone loses its reason",
        "abandoned",
        "_removed_unprocessed(after, seen, row.identity, reason, partition)",
        "after",
        "tests/unit/test_removed_unprocessed.py",
    ),
    Mutant(
        "a second removal forgets that the object was not processed",
        "unprocessed_state",
        "seen.removed_unprocessed",
        "False",
        "tests/unit/test_removed_unprocessed.py",
    ),
    Mutant(
        "an old event proves that an object was not processed",
        "unprocessed_state",
        "now - retention.seconds * 1000",
        "0",
        "tests/unit/test_removed_unprocessed.py",
    ),
    Mutant(
        "an older claim replaces the tombstone of another object",
        "ConditionalPut._is_absent",
        "found.fence >= mark.fence or (not removes and present.removed_by >= mark.fence)",
        "not removes and present.removed_by >= mark.fence",
        "tests/protocol/test_output_rounds.py -k two_objects",
    ),
    Mutant(
        "a late worker replaces a tombstone that is younger than its object's removal",
        "ConditionalPut._is_absent",
        "found.fence >= mark.fence or (not removes and present.removed_by >= mark.fence)",
        "found.fence >= mark.fence",
        "tests/protocol/test_output_rounds.py -k two_objects",
    ),
    Mutant(
        "the tombstone of another object is never replaced",
        "ConditionalPut._is_absent",
        "present.removed_by is None",
        "True",
        "tests/protocol/test_output_rounds.py -k two_objects",
    ),
    Mutant(
        "the wait for a tombstone counts an attempt",
        "_raised",
        "not isinstance(error, NotBegun | OutputReserved)",
        "not isinstance(error, NotBegun)",
        "tests/unit/test_outputs.py -k counts_no_attempt",
    ),
    Mutant(
        "a call that wrote an object passes as no work",
        "_parse_api_call",
        "name not in _WRITES",
        "name",
        "tests/unit/test_cloudtrail_calls.py",
    ),
    Mutant(
        "a bare copy is a late duplicate",
        "as_copy",
        "row is None or row.bare_copy_digest is None or change.rejected_fence is not None",
        "True",
        "rejection, a bare copy",
    ),
    Mutant(
        "a duplicate of the message opens the rejection of its bare copy",
        "Row.is_bare_copy",
        'message_id not in ("", *spent)',
        "message_id",
        "budget, a bare copy",
    ),
    Mutant(
        "any message is the bare copy",
        "Row.is_bare_copy",
        "self.bare_copy_digest == digest",
        "self.bare_copy_digest is not None",
        "tests/unit/test_copies.py",
    ),
    Mutant(
        "the row of exhausted attempts does not know that its copy is bare",
        "Failures.exhaust",
        "after = after_copy(after, copied)",
        "after = after_copy(after, copied._replace(bare_digest=None))",
        "budget, a bare copy",
    ),
    Mutant(
        "a rejected row does not know that its copy is bare",
        "Attempts._reject",
        "copied=copied",
        "copied=copied._replace(bare_digest=None)",
        "messages, a bare copy",
    ),
    Mutant(
        "the mark of a bare copy outlives its commit",
        "committed",
        "spent_messages=None",
        "",
        "tests/unit/test_copies.py",
    ),
    Mutant(
        "a bare copy opens the row again after its attempt",
        "claimed",
        "_spent(base, change.bare_copy_id)",
        "base.spent_messages",
        "tests/unit/test_copies.py",
    ),
    Mutant(
        "a copy without room for all attributes is bare",
        "Queues.dead_letter",
        "(message, needed, {}) if needed else (message, {})",
        "(message, {})",
        "tests/unit/test_copies.py",
    ),
    Mutant(
        "a refused copy lets its message go",
        "after_copy",
        "copied.refusal is not None",
        "False",
        "messages, a refused copy",
    ),
    Mutant(
        "a processor is called again because its copy was refused",
        "judge_state",
        "row.pending_reason_code is not None and not change.asked_for",
        "False",
        "tests/unit/test_copies.py",
    ),
    Mutant(
        "a rejection that waited for its copy loses its reason",
        "exhausted",
        'seen.pending_reason or seen.reason or "the worker died or timed out at every attempt"',
        'seen.reason or "the worker died or timed out at every attempt"',
        "tests/unit/test_copies.py",
    ),
    Mutant(
        "the rest of a body stands for a copy that is too long",
        "Queues.dead_letter",
        'raise CopyRefused(f"the dead-letter queue does not take the copy: {why}")',
        "pointer = body[: 200 * 1024]",
        "tests/unit/test_copies.py",
    ),
    Mutant(
        "malformed writes of a processor are tried again",
        "ending",
        "(invalid := invalid_effect_of(error)) is not None",
        "not committing and (invalid := invalid_effect_of(error)) is not None",
        "messages, malformed writes",
    ),
    Mutant(
        "malformed writes of a block are tried again",
        "OnceLedger._failed",
        "invalid_effect_of(error)",
        "None",
        "tests/unit/test_handover.py -k of_a_block",
    ),
    Mutant(
        "writes that are no list are counted before they are checked",
        "Ledger.commit",
        "check_transact(transact, self._table.name, own=len(own))",
        "len(transact) and check_transact(transact, self._table.name, own=len(own))",
        "tests/unit/test_handover.py -k of_a_block",
    ),
    Mutant(
        "an error of the check of writes leaves the claim without an outcome",
        "check_transact",
        "Exception",
        "MemoryError",
        "tests/unit/test_handover.py -k malformed_writes_take",
    ),
    Mutant(
        "invalid Unicode is taken for an error of the consumer",
        "_content_problem",
        '("has a text that is not valid Unicode", ())',
        '("", ())',
        "tests/unit/test_handover.py -k malformed_writes_take",
    ),
    Mutant(
        "the types of values are left to DynamoDB",
        "_content_problem",
        '"has an attribute that is not in DynamoDB\'s typed form" if details else ""',
        '""',
        "tests/unit/test_handover.py -k of_a_block",
    ),
    Mutant(
        "what DynamoDB refuses at any time is tried again",
        "_cancelled",
        "InvalidTransactionError(why, detail=message)",
        "TransactionRefused(why, passing=False, detail=message)",
        "tests/unit/test_transactions.py -k at_any_time",
    ),
    Mutant(
        "writes that depend on the present item are rejected at once",
        "_is_malformed",
        'reason["Code"] == "ValidationError" and str(reason.get("Message") or "").startswith(_MALFORMED)',
        'reason["Code"] == "ValidationError"',
        "tests/unit/test_handover.py -k conditions_conflicts",
    ),
    Mutant(
        "a malformed output in a group of errors is tried again",
        "invalid_effect_of",
        "isinstance(error, BaseExceptionGroup)",
        "False",
        "tests/unit/test_handover.py -k one_attempt",
    ),
    Mutant(
        "the output of another object is tried again for good",
        "ClaimOutputs.output",
        "removals=self.removals",
        "",
        "tests/unit/test_handover.py -k another_object_takes",
    ),
    Mutant(
        "the output of an object that is renamed is rejected at once",
        "ObjectWork.ready",
        "removals=settings.deletes",
        "removals=False",
        "tests/unit/test_outputs.py -k renamed",
    ),
    Mutant(
        "an answer that Python cannot parse is tried again",
        "commit_from",
        "(ValueError, RecursionError)",
        "ValueError",
        "tests/unit/test_handover.py -k deeply",
    ),
    Mutant(
        "a large number is no return value",
        "_text",
        "except Exception: ...",
        """
        except KeyError:
            return ''
        """,
        "tests/unit/test_handover.py -k wrong_return",
    ),
    Mutant(
        "a subclass of NotYet without its wait fails",
        "wait_seconds",
        "return None",
        "return wanted",
        "tests/unit/test_handover.py -k wait_of_any",
    ),
    Mutant(
        "an overtaken attempt has a negative time left",
        "remaining_seconds",
        "max(limit - spent_ms / 1000, LEAST_REMAINING_SECONDS)",
        "limit - spent_ms / 1000",
        "tests/unit/test_handover.py -k TestRemaining",
    ),
    Mutant(
        "a result that is no text undoes the effect",
        "OnceLedger._commit",
        "kept_result(claim.result)",
        "(claim.result, None)",
        "tests/unit/test_once.py -k no_text",
    ),
    Mutant(
        "a result that is not kept leaves no trace in the row",
        "OnceLedger._commit",
        "note=note",
        "",
        "tests/unit/test_once.py -k no_text",
    ),
    Mutant(
        "a Fenced inside a block leaves the identity busy",
        "OnceLedger.once",
        "self._record(held, error, in_block=True)",
        "isinstance(error, Fenced) or self._record(held, error, in_block=True)",
        "tests/unit/test_once.py -k another_ledger",
    ),
    Mutant(
        "an identity in work is reopened",
        "Ledger.reopen",
        "row_unchanged(row, now)",
        """
        row_unchanged(row, now)._replace(
            expression="#fence >= :seen_fence AND #status <> :seen_status OR #status = :seen_status OR #lease_until > :now"
        )
        """,
        "tests/unit/test_once.py -k in_work",
    ),
    Mutant(
        "a committed identity is reopened",
        "Ledger.reopen",
        "row is None or row.status is not Status.REJECTED",
        "row is None",
        "tests/unit/test_once.py -k by_a_person_only",
    ),
    Mutant(
        "a failure of DynamoDB replaces the error of the block",
        "OnceLedger._record",
        "AWS_ERRORS",
        "NotImplementedError",
        "tests/unit/test_once.py -k is_recorded",
    ),
    Mutant(
        "refused writes are taken for a lost key",
        "Ledger.commit",
        "refused.passing or all(guard.still_holds(claim) for guard in self._guards)",
        "refused.passing",
        "tests/unit/test_once.py -k no_lost_key",
    ),
    Mutant(
        "writes that meet others spend the attempts of a block",
        "OnceLedger._failed",
        "not passing or self.options.max_attempts == 1",
        "True",
        "tests/unit/test_once.py -k meet_others",
    ),
    Mutant(
        "a block with one attempt runs again after a conflict",
        "OnceLedger._failed",
        "not passing or self.options.max_attempts == 1",
        "not passing",
        "tests/unit/test_once.py -k meet_others",
    ),
    Mutant(
        "leases that have ended at their beginning are accepted",
        "OnceOptions.__post_init__",
        '_seconds("lease_seconds", self.lease_seconds, above=0)',
        "",
        "tests/unit/test_once.py -k protect_nothing",
    ),
    Mutant(
        "the parts of an idempotency key run into each other",
        "idempotency_key",
        '"".join(f"{len(part)}:{part}" for part in parts)',
        '"".join(parts)',
        "tests/unit/test_once.py -k run_into",
    ),
    Mutant(
        "a function waits for a record of a stream until its timeout",
        "InShard.response",
        "min(seconds, MAX_PAUSE_SECONDS, left)",
        "min(seconds, MAX_PAUSE_SECONDS)",
        "tests/unit/test_message_streams.py -k before_the_function",
    ),
    Mutant(
        "a request to process again ends with the execution that ran",
        "Later.start",
        "change.identity == claim.state.identity and not change.asked_for",
        "change.identity == claim.state.identity",
        "tests/unit/test_executions.py -k served_after",
    ),
    Mutant(
        "the lease of an execution ends before its next poll",
        "Later._keep",
        "self._ledger.extend(claim, lease_ms=wait + lease_ms)",
        "self._ledger.extend(claim, lease_ms=lease_ms)",
        "tests/unit/test_executions.py -k next_poll",
    ),
    Mutant(
        "a processor that is interrupted has no time to end",
        "make_host",
        "consumer.processing_timeout_seconds + GRACE_SECONDS",
        "consumer.processing_timeout_seconds",
        "tests/unit/test_worker.py -k interrupted",
    ),
    Mutant(
        "the wait after an outage of SQS is never short again",
        "Worker.run",
        """
        wait = _FIRST_WAIT_SECONDS
        if messages:
            self._handle(messages)
        """,
        """
        if messages:
            self._handle(messages)
        """,
        "tests/unit/test_worker.py -k short_wait",
    ),
    Mutant(
        "a check of messages does not count",
        "RowFindings.counts",
        '{"AuditRuns": 1, "AuditFindings": self.stuck}',
        '{"AuditFindings": self.stuck}',
        "tests/unit/test_set_outage.py",
    ),
    Mutant(
        "an audit of sets does not count",
        "SetFindings.counts",
        '{"AuditRuns": 1, "AuditFindings": number, "AuditResubmitted": number}',
        '{"AuditFindings": number, "AuditResubmitted": number}',
        "tests/unit/test_set_outage.py",
    ),
    Mutant(
        "an answer that Lambda cannot write is tried again",
        "_failure",
        "kind in _UNWRITTEN or message == _UNWRITTEN_IN_NODE",
        "False",
        "tests/unit/test_remote.py -k cannot_be_written",
    ),
    Mutant(
        "an execution with a step's output that is too long is tried again",
        "commit_of",
        "execution.error == _TOO_LONG",
        "False",
        "tests/unit/test_executions.py -k each_end",
    ),
    Mutant(
        "an execution is taken over under the same owner",
        "Ledger.take_over",
        "row_changes.extended(_continued(claim), lease_until=until, owner=self._new_owner())",
        "row_changes.extended(_continued(claim), lease_until=until)",
        "tests/unit/test_executions.py -k taken_over",
    ),
    Mutant(
        "the delivery check does not compare the limits of the queues",
        "dead_letter_problems",
        "size is not None and least is not None and int(size) < int(least)",
        "False",
        "tests/unit/test_audit_delivery.py",
    ),
    Mutant(
        "a refusal of S3 is remembered in a warm function",
        "SetReader._manifest",
        "listing.refusal is None",
        "True",
        "tests/unit/test_warm.py",
    ),
    Mutant(
        "a manifest that is uploaded again keeps its first date",
        "SetReader._manifest",
        "replace(known, source=source)",
        "known",
        "tests/unit/test_warm.py -k once_for_each",
    ),
    Mutant(
        "a Fenced of another ledger is taken for a lost lease of the processor",
        "_raised",
        "isinstance(error, Fenced)",
        "False",
        "tests/unit/test_reason_codes.py -k failed_row_has",
    ),
    Mutant(
        "an inventory that was stopped twice goes on at the wrong row",
        "Inventory.pages",
        "(done + len(page), next(pages, ()))",
        "(len(page), next(pages, ()))",
        "tests/integration/test_audit_inventory.py -k stopped",
    ),
    Mutant(
        "a failure waits until its source has deleted the message",
        "_failed",
        "left <= 0",
        "False",
        "tests/unit/test_message_ends.py -k no_other_can_follow",
    ),
    Mutant(
        "the attempts of a backlogged message are not faster",
        "_failed",
        "wait = min(wait, left)",
        "pass",
        "tests/unit/test_message_ends.py -k faster",
    ),
    Mutant(
        "an old message spends no attempts in an outage",
        "_failed",
        "facts.given_up and last_try_at is not None",
        "False",
        "tests/unit/test_message_ends.py -k in_an_outage",
    ),
    Mutant(
        "a message waits until its source has deleted it",
        "_wait",
        "facts.last_try_at is not None and not facts.renews and facts.last_try_at - facts.now < left_ms",
        "False",
        "tests/unit/test_message_ends.py -k keeps_it_no_longer",
    ),
    Mutant(
        "a message that is returned is hidden until its source has deleted it",
        "Failures.in_time",
        "min(seconds, left if left > 0 else _LAST_SECONDS)",
        "seconds",
        "tests/unit/test_message_ends.py -k leaves_a_copy",
    ),
    Mutant(
        "a message that cannot be handled expires without a copy",
        "Failures.is_last_delivery",
        "message.too_old_at is not None and message.too_old_at <= self.services.clock()",
        "False",
        "tests/unit/test_message_ends.py -k leaves_a_copy",
    ),
    Mutant(
        "a lifecycle rule with a date passes",
        "early_ends",
        "seconds is None or seconds < life_seconds",
        "seconds is not None and seconds < life_seconds",
        "tests/unit/test_lifecycle_rules.py",
    ),
    Mutant(
        "a lifecycle rule for a part of the keys passes",
        "_applies",
        "keys.prefix.startswith(prefix) or prefix.startswith(keys.prefix)",
        "keys.prefix.startswith(prefix)",
        "tests/unit/test_lifecycle_rules.py",
    ),
    Mutant(
        "no deployed lifecycle rule is looked at",
        "DeliveryCheck._lifecycle",
        'self._s3.get_bucket_lifecycle_configuration(**self._bucket).get("Rules", ())',
        "()",
        "tests/unit/test_audit_delivery.py",
    ),
    Mutant(
        "a worker starts with the variables of another kind",
        "_kind",
        "len(named) > 1",
        "False",
        "tests/unit/test_worker.py -k one_line",
    ),
    Mutant(
        "a record of DynamoDB loses who made the change",
        "dynamodb_record",
        '{**record, "dynamodb": {**change, **images}}',
        '{"eventID": record.get("eventID"), "dynamodb": {**change, **images}}',
        "tests/unit/test_message_streams.py",
    ),
    Mutant(
        "each notification of SNS is unwrapped",
        "MessageReader._decoded",
        "self._unwrap_sns",
        "True",
        "tests/unit/test_messages.py -k notification",
    ),
    Mutant(
        "a lost key replaces the error of a block",
        "OnceLedger._record",
        """
        except Fenced:
            outcome = OutcomeKind.FENCED
        """,
        """
        except ZeroDivisionError:
            outcome = OutcomeKind.FENCED
        """,
        "tests/unit/test_once.py -k reaches_the_caller",
    ),
    Mutant(
        "a refused start is taken for one without an answer",
        "is_refused",
        "400 <= status < 500",
        "status == 0",
        "tests/unit/test_executions.py -k refused_starts",
    ),
    Mutant(
        "a refused start says nothing about the downstream",
        "Later.start",
        "None if is_throttled(error) else False",
        "None",
        "tests/unit/test_executions.py -k refused_starts",
    ),
    Mutant(
        "a refused start is a failure of its object",
        "Attempts._settle",
        "ledger.postpone(claim, reason, until=at)",
        "ledger.fail(claim, reason, retry_at=at, counted=False)",
        "tests/protocol/test_execution_sleepers.py -k past_a_start",
    ),
    Mutant(
        "a throttled start waits for its lease",
        "Later._start",
        "not is_throttled(error) or remaining_seconds() < pause + RESERVE_SECONDS",
        "True",
        "tests/unit/test_executions.py -k throttled_start",
    ),
    Mutant(
        "an execution that runs keeps the reason of its refused start",
        "extended",
        "row.start_refused",
        "False",
        "tests/unit/test_executions.py -k lost_answer",
    ),
    Mutant(
        "the retry of a refused start counts as a dead worker",
        "_lapsed",
        "seen.start_refused",
        "False",
        "tests/unit/test_telemetry.py",
    ),
    Mutant(
        "the pause of a stream outlasts its invocation",
        "InShard.response",
        "min(seconds, MAX_PAUSE_SECONDS, left)",
        "min(seconds, MAX_PAUSE_SECONDS)",
        "tests/unit/test_message_streams.py -k ends_before_its_invocation",
    ),
    Mutant(
        "an exhausted row is not rejected",
        "Failures.exhaust",
        "self.services.ledger.exhaust(change, seen, after)",
        "True",
        "tests/unit/test_message_ends.py -k without_an_end",
    ),
    Mutant(
        "sets: a look at an expired set ignores the parts of its wake",
        "SetReader.look_for",
        "frozenset(change.parts)",
        "()",
        "tests/unit/test_set_removals.py -k f282",
    ),
    Mutant(
        "sets: a wake names no part",
        "Wakes.wake",
        "own_message(Origin.PART, self._bucket, set_key, parts=parts)",
        "own_message(Origin.PART, self._bucket, set_key)",
        "tests/unit/test_set_removals.py -k f282",
    ),
    Mutant(
        "sets: a part that a person processes again opens an expired set",
        "SetReader._read",
        "row.served_reprocess_id is None",
        "True",
        "tests/unit/test_set_removals.py -k f282",
    ),
    Mutant(
        "sets: a wake names one part of its batch",
        "SetWakes.before_acknowledging",
        "self.wakes.wake(wake, keys)",
        "self.wakes.wake(wake, list(keys)[:1])",
        "tests/unit/test_set_removals.py -k f283",
    ),
    Mutant(
        "sets: a wake names more parts than a look reads",
        "_shares",
        "len(share) == MOST_PARTS",
        "False",
        "tests/unit/test_set_removals.py -k f283",
    ),
    Mutant(
        "sets: the message of a wake has any length",
        "_shares",
        "size + length > _MOST_BYTES",
        "False",
        "tests/unit/test_set_removals.py -k f283",
    ),
    Mutant(
        "sets: the wakes of an expired set are not counted",
        "SetTelemetry.decided",
        "answer.expired",
        "False",
        "tests/unit/test_set_removals.py -k f284",
    ),
    Mutant(
        "a state without a row that is too old does not say so",
        "_judge_without_row",
        'Ruling(Verdict.STALE, "older than the retention: its row was settled and has expired", expired=True)',
        'Ruling(Verdict.STALE, "")',
        "tests/unit/test_set_removals.py -k f284",
    ),
    Mutant(
        "directory markers are processed as files",
        "_skips_marker",
        "policy.directory_markers or not is_skipped_marker(change.key, state, every_version=policy.every_version)",
        "True",
        "tests/unit/test_directory_markers.py -k console",
    ),
    Mutant(
        "a directory marker is claimed as a new object",
        "Ledger._is_new",
        "self._may_be_skipped(change.key)",
        "False",
        "tests/unit/test_directory_markers.py -k console",
    ),
    Mutant(
        "an object is claimed although a directory marker has replaced it",
        "Ledger._judge",
        "isinstance(answer, Claim) and row is None and self._shows_another_state(answer)",
        "False",
        "tests/unit/test_directory_markers.py -k during_the_first_claim",
    ),
    Mutant(
        "a request for a directory marker is skipped",
        "_judge_without_row",
        "not change.asked_for and _skips_marker(change, state, policy, all_rows_since)",
        "_skips_marker(change, state, policy, all_rows_since)",
        "tests/unit/test_directory_markers.py -k request_names",
    ),
    Mutant(
        "the removal of a directory marker is skipped although rows may be missing",
        "_skips_marker",
        "not uploaded and (not policy.deletes or all_rows_since is not None)",
        "not uploaded",
        "tests/unit/test_directory_markers.py -k may_have_expired",
    ),
    Mutant(
        "the removal of an upload with content is skipped",
        "_skips_marker",
        "not uploaded and (not policy.deletes or all_rows_since is not None)",
        "not policy.deletes or all_rows_since is not None",
        "tests/unit/test_directory_markers.py -k upload_with_content",
    ),
    Mutant(
        "a removed directory marker counts as unprocessed",
        "_judge_without_row",
        "not marker and change.reports_upload_since(now - policy.retention_ms)",
        "change.reports_upload_since(now - policy.retention_ms)",
        "tests/unit/test_directory_markers.py -k without_versions",
    ),
    Mutant(
        "the removal of a directory marker gets a row",
        "is_skipped_marker",
        "not every_version and may_be_directory_marker(key)",
        "False",
        "tests/unit/test_directory_markers.py -k made_again",
    ),
    Mutant(
        "each audit finds all directory markers",
        "listed_entry",
        "settings.skips(key, state)",
        "False",
        "tests/unit/test_directory_markers.py -k counts_directory_markers",
    ),
    Mutant(
        "the audit leaves out directory markers that have a row",
        "SQL",
        "held.key IS NULL AND listed.skipped",
        "listed.skipped",
        "tests/unit/test_audit_oracle.py",
    ),
    Mutant(
        "a look of the audit sends a directory marker",
        "Look.at",
        "self.settings.skips(candidate.key, candidate.state)",
        "False",
        "tests/unit/test_directory_markers.py -k turns_out",
    ),
    Mutant(
        "a set has directory markers as parts",
        "SetReader._folder",
        "not is_directory_marker(name, size)",
        "True",
        "tests/unit/test_directory_markers.py -k no_part",
    ),
    Mutant(
        "a claim of a person has no line before its attempt",
        "_is_ordinary",
        "(claim.seen is None or claim.seen.settled) and not claim.change.asked_for",
        "claim.seen is None or claim.seen.settled",
        "tests/unit/test_telemetry.py -k before_its_attempt",
    ),
    Mutant(
        "a claim after a late write has no line before its attempt",
        "_is_ordinary",
        "claim.seen.settled",
        "claim.seen.status is Status.PROCESSED",
        "tests/unit/test_telemetry.py -k before_its_attempt",
    ),
    Mutant(
        "a claim whose end AWS did not record has no line",
        "PowertoolsTelemetry.flush",
        "self._log_verdict(claim.change, claim, now)",
        "pass",
        "tests/unit/test_consumer.py -k leaves_a_line_with_the_key",
    ),
    Mutant(
        "a repeated claim writes the claims of its batch at once",
        "PowertoolsTelemetry.decided",
        "self._flush_metrics()",
        "self.flush()",
        "tests/unit/test_telemetry.py -k lines_of_others",
    ),
    Mutant(
        "a takeover does not name the claim of the dead worker",
        "PowertoolsTelemetry._log_verdict",
        "if (lapsed := _lapsed(answer)) is not None: ...",
        "",
        "tests/unit/test_telemetry.py -k names_the_claim",
    ),
    Mutant(
        "the path that others made is not looked at",
        "DeliveryCheck._way",
        "lambda: self._others(arn, callers)",
        "lambda: iter(())",
        "tests/unit/test_audit_delivery.py -k f311",
    ),
    Mutant(
        "a notification of a part of the keys counts for all",
        "lacking_events",
        "one.keys is None or one.keys.covers(keys)",
        "one.keys is None or one.keys.overlaps(keys)",
        "tests/unit/test_audit_delivery.py -k f311",
    ),
    Mutant(
        "a rule counts while the bucket does not send to EventBridge",
        "DeliveryCheck._others",
        '"EventBridgeConfiguration" in configuration',
        "True",
        "tests/unit/test_audit_delivery.py -k a_rule_sends_the_rest",
    ),
    Mutant(
        "a topic of the bucket counts without a subscription of the queue",
        "DeliveryCheck._subscription",
        'subscription["Endpoint"] == queue_arn',
        "True",
        "tests/unit/test_audit_delivery.py -k a_topic_sends",
    ),
    Mutant(
        "an ordinary line lacks the keys of its thread",
        "ChangeFormatter.format",
        "self.thread_safe_get_current_keys()",
        "False",
        "tests/unit/test_log_lines.py -k a_thread_with_keys",
    ),
    Mutant(
        "an ordinary line has the formats that a processor has changed",
        "ChangeFormatter._constants_of",
        "keys.items() >= _FORMATS.items()",
        "True",
        "tests/unit/test_log_lines.py -k those_of_powertools",
    ),
    Mutant(
        "an ordinary line is written without the buffer of the processor",
        "ChangeLines.__init__",
        "isinstance(logger.registered_formatter, ChangeFormatter)",
        "True",
        "tests/unit/test_log_lines.py -k keeps_its_buffer",
    ),
    Mutant(
        "the first claim forgets the request that it serves",
        "_first_claim",
        "reprocess_id=change.reprocess_id or None",
        "",
        "tests/unit/test_rows.py -k says_nothing",
    ),
    Mutant(
        "an empty key of a HEAD asks for the bucket",
        "_checked_unless_get",
        'model.name != "GetObject"',
        "False",
        "tests/unit/test_clients.py -k other_requests",
    ),
    Mutant(
        "keys that DynamoDB left out of a batch are forgotten",
        "read_batch",
        '(answer.get("UnprocessedKeys") or {}).get(table, {}).get("Keys", ())',
        "()",
        "tests/unit/test_repeats.py -k TestBatches",
    ),
    Mutant(
        "a throttled batch is sent again without a wait",
        "_until_done",
        "pause(wait)",
        "pass",
        "tests/unit/test_repeats.py -k TestBatches",
    ),
    Mutant(
        "a throttled batch is sent again without an end",
        "_until_done",
        "next(waits, None)",
        "next(waits, 1.6)",
        "tests/unit/test_repeats.py -k ends_in_an_error",
    ),
    Mutant(
        "a batch that makes progress ends in an error",
        "_until_done",
        "len(rest) < len(left)",
        "False",
        "tests/unit/test_repeats.py -k progress",
    ),
    Mutant(
        "throttled statements are not sent again",
        "execute_batch",
        "codes[number] in _PASSING_STATEMENTS",
        "False",
        "tests/unit/test_repeats.py -k TestStatements",
    ),
    Mutant(
        "an audit hides that its marks were not written",
        "LedgerTable.mark_many",
        "code is not None and code not in _UNMET",
        "False",
        "tests/unit/test_repeats.py -k a_mark_that",
    ),
    Mutant(
        "a write that meets a transaction is not sent again",
        "send_write",
        "not is_conflict(error)",
        "True",
        "tests/unit/test_repeats.py -k TestConflicts",
    ),
    Mutant(
        "an attempt fails if the lock of its key is in transactions",
        "KeyLock.take",
        "not is_conflict(error)",
        "True",
        "tests/unit/test_messages.py -k lock_in_a_transaction",
    ),
    Mutant(
        "an upload that another write made worthless costs an attempt",
        "Output.put",
        "rewind is None or not uploads_left",
        "True",
        "tests/unit/test_outputs.py -k worthless",
    ),
    Mutant(
        "an upload that is refused each time counts as written",
        "Output.put",
        "rewind is None or not uploads_left",
        "rewind is None",
        "tests/unit/test_outputs.py -k endless_conflicts_end_after",
    ),
    Mutant(
        "a body that was read is uploaded again without its content",
        "_rewinding",
        "isinstance(body, Sequence | bytearray | memoryview)",
        "isinstance(body, Iterable)",
        "tests/unit/test_outputs.py -k read_once",
    ),
    Mutant(
        "a file is uploaded again from its end",
        "Output.put",
        "rewind()",
        "pass",
        "tests/unit/test_outputs.py -k from_where_it_was",
    ),
    Mutant(
        "an attempt that has not taken the key holds it",
        "is_holding",
        'row is None or row.status is not Status.PROCESSING or row.fence != lock["holder_fence"]',
        "row is None or row.status is not Status.PROCESSING",
        "tests/unit/test_messages.py -k has_not_taken_the_key",
    ),
    Mutant(
        "a key is taken although it has changed since it was read",
        "_as_read",
        'f"#{name} = :seen_{name}"',
        'f"(#{name} = :seen_{name} OR #{name} <> :seen_{name})"',
        "tests/unit/test_messages.py -k takes_first",
    ),
    Mutant(
        "an end that was not written keeps the key",
        "KeyLock.let_go",
        "not ended and not self._outlives",
        "False",
        "tests/unit/test_messages.py -k cannot_be_written",
    ),
    Mutant(
        "an execution whose end was not written loses its key",
        "KeyLock.let_go",
        "not ended and not self._outlives",
        "not ended",
        "tests/kinds/test_messages_elsewhere.py -k end_that_is_not_written",
    ),
    Mutant(
        "the key of an execution is free when a lease ends",
        "is_holding",
        "outlives or row.is_live(now)",
        "row.is_live(now)",
        "tests/kinds/test_messages_elsewhere.py",
    ),
    Mutant(
        "the fence of a key goes back with the clock",
        "KeyLock.take",
        'max(int(item.get("fence", 0)) + 1, claim.row.fence)',
        "claim.row.fence",
        "tests/unit/test_messages.py -k ahead_of_the_clock",
    ),
    Mutant(
        "a repeated start has another fence of its key",
        "KeyLock.take",
        "self._is_holder(item, claim)",
        "False",
        "tests/kinds/test_messages_elsewhere.py -k repeated_start",
    ),
    Mutant(
        "a repeated start does not ask for the key",
        "Ledger.take_over",
        "self._guarded(replace(claim, row=after))",
        "replace(claim, row=after)",
        "tests/kinds/test_messages_elsewhere.py -k between_its_row_and_its_lock",
    ),
    Mutant(
        "the lock of an execution expires before its end",
        "KeyLock._expires_at",
        "max(claim.row.lease_until or 0, self._clock() + self._longest_ms)",
        "claim.row.lease_until or 0",
        "tests/unit/test_messages.py -k long_work",
    ),
    Mutant(
        "an attempt whose key could not be taken counts",
        "Ledger._guarded",
        """
        with suppress(Fenced, *AWS_ERRORS):
            self._give_back(claim, place)
        """,
        "pass",
        "tests/unit/test_messages.py -k could_not_be_taken",
    ),
    Mutant(
        "messages are claimed before their processor can start",
        "Ledger.claim_together",
        "any(guard.just_in_time for guard in self._guards)",
        "False",
        "tests/unit/test_messages.py -k of_a_batch",
    ),
    Mutant(
        "the lock of an intake with executions believes leases",
        "_longest_work_ms",
        "execution_settings(environment).execution_seconds * 1000",
        "None",
        "tests/kinds/test_composition.py",
    ),
    Mutant(
        "a worker that has seen the end of a lease takes the key of its extension",
        "KeyLock.extended",
        'self._table.mark(self._key(claim), {"extended_until": until}, self._held(claim))',
        "return self.still_holds(claim)",
        "tests/kinds/test_key_lock.py -k excludes_a_worker",
    ),
    Mutant(
        "a processor starts before its group is free",
        "Attempts._work",
        "claim.held is not None",
        "False",
        "tests/kinds/test_group_worlds.py -k death",
    ),
    Mutant(
        "the commit of a group does not ask for its lock",
        "GroupLock.with_commit",
        "super().with_commit(claim)",
        "()",
        "tests/kinds/test_group_worlds.py -k late",
    ),
    Mutant(
        "a late worker frees the group of its successor",
        "KeyLock.let_go",
        "self._held(claim)",
        'Condition("attribute_exists(#holder)", ("holder",), {})',
        "tests/kinds/test_group_lock.py -k lost_its_group",
    ),
    Mutant(
        "the commit of a group hides a late write",
        "Ledger.commit",
        "lease_owned(claim.row) if transact else no_other_late_writes(claim.row, claim.state.identity)",
        "lease_owned(claim.row) if transact or own else no_other_late_writes(claim.row, claim.state.identity)",
        "tests/kinds/test_group_lock.py -k found_by_the_commit",
    ),
    Mutant(
        "the keys of a group are taken for one holder",
        "GroupLock._name",
        "holder_name(claim.key)",
        "claim.key.sk",
        "tests/kinds/test_group_lock.py -k exclude_each_other",
    ),
    Mutant(
        "an execution holds its group for a lease",
        "_groups",
        "longest_work_ms=longest",
        "longest_work_ms=None",
        "tests/kinds/test_composition.py -k groups",
    ),
    Mutant(
        "a row that waits for its group is asked about an execution",
        "Row.waits",
        "codes = ReasonCode.NOT_YET, ReasonCode.GROUP_HELD, ReasonCode.MAX_RATE",
        "codes = ReasonCode.NOT_YET, ReasonCode.MAX_RATE",
        "tests/kinds/test_group_lock.py -k no_execution_to_ask",
    ),
    Mutant(
        "sets: an old delivery of a wake ends the message of a claim",
        "MessageHandler._handle_part",
        "replace(parsed, waiter=message.waiter, waiter_ids=message.names)",
        'replace(parsed, waiter=f"{message.id}.{message.receives} 0", waiter_ids=(f"{message.id}.{message.receives}",))',
        "tests/kinds/test_set_execution_worlds.py -k old_delivery",
    ),
    Mutant(
        "sets: the wake that polls is not the one that is awaited",
        "_continued",
        "claim.row if waiter in (None, claim.row.waiter) else replace(claim.row, waiter=waiter)",
        "claim.row",
        "tests/kinds/test_sets_elsewhere.py -k lost_is_continued",
    ),
    Mutant(
        "sets: a list that is refused at a repeated start ends the fence",
        "SetWork.request",
        """
        except AWS_ERRORS as error:
            ...
        """,
        """
        except KeyError as error:
            raise LibraryError("the list of the parts could not be stored", detail=repr(error)) from error
        """,
        "tests/kinds/test_sets_elsewhere.py -k stored_again",
    ),
    Mutant(
        "a redriven execution that has lost its key is Fenced at each poll",
        "Ledger.commit",
        """
        if self.outlived:
            ...
        """,
        "",
        "tests/kinds/test_messages_elsewhere.py -k redriven_execution",
    ),
    Mutant(
        "a holder of a later format is not in work",
        "is_holding",
        "row is not None and row.status is Status.LATER_FORMAT",
        "False",
        "tests/kinds/test_key_lock.py -k later_format",
    ),
    Mutant(
        "a lock that is found is not written again",
        "KeyLock._takes_again",
        "self._table.mark(self._key(claim), marks, _as_read(item))",
        "pass",
        "tests/kinds/test_key_lock.py -k written_again",
    ),
    Mutant(
        "a worker that lost its row takes the key from the next attempt on it",
        "KeyLock._has_lost_its_row",
        "row is None or row.fence != claim.row.fence",
        "False",
        "tests/kinds/test_key_lock.py -k lost_its_row",
    ),
    Mutant(
        "a row that comes back with a lower fence waits for the clock",
        "KeyLock._has_lost_its_row",
        "row is None or row.fence != claim.row.fence",
        "True",
        "tests/kinds/test_key_lock.py -k lower_fence",
    ),
    Mutant(
        "a message that waits until its queue deletes it leaves no copy",
        "Failures.may_not_return",
        "message.last_try_at is None or message.deleted_at is None or message.last_try_at > self.services.clock()",
        "True",
        "tests/kinds/test_messages_elsewhere.py -k is_copied_before",
    ),
    Mutant(
        "sets: the audit looks back for as long as a queue keeps a message",
        "LOOK_BACK_MS",
        "28 * DAY",
        "14 * DAY",
        "tests/kinds/test_conformance.py -k expires_without",
    ),
    Mutant(
        "sets: the audit looks back for longer than rows live",
        "SetAudit.__init__",
        "min(LOOK_BACK_MS, settings.consumer.retention_seconds * 1000)",
        "LOOK_BACK_MS",
        "tests/unit/test_sets.py -k older_than_the_retention",
    ),
    Mutant(
        "copies: waits fill the limit of messages in flight",
        "Crowd.is_crowded",
        "self._read() > self._limit * CROWDED_SHARE",
        "False",
        "tests/unit/test_waiting.py -k many_wait",
    ),
    Mutant(
        "copies: each wait is a copy",
        "Crowd.is_crowded",
        "self._read() > self._limit * CROWDED_SHARE",
        "True",
        "tests/unit/test_waiting.py -k few_are",
    ),
    Mutant(
        "copies: a message whose copy SQS refuses is acknowledged",
        "Batch.wait_in_copies",
        "self.finish(message, self._without_copy(message, seconds))",
        "self.finish(message, None)",
        "tests/kinds/test_waiting_worlds.py -k refused",
    ),
    Mutant(
        "copies: a message copies itself at each delivery",
        "Returns._copies_itself",
        "message.delivered == 1 or message.is_named",
        "True",
        "tests/unit/test_waiting.py -k copies_itself_once",
    ),
    Mutant(
        "copies: no message copies itself before its queue deletes it",
        "Returns._nears_its_end",
        "self._clock() + seconds * 1000 >= end",
        "False",
        "tests/kinds/test_waiting_worlds.py -k deletes",
    ),
    Mutant(
        "copies: no message copies itself before its last receive",
        "Returns._nears_its_end",
        "message.delivered >= self._settings.max_receives * LIFE_SHARE",
        "False",
        "tests/unit/test_waiting.py -k many_receives",
    ),
    Mutant(
        "copies: a copy does not continue the wait of its message",
        "names_of",
        "(own,)",
        "()",
        "tests/kinds/test_waiting_worlds.py -k duplicates",
    ),
    Mutant(
        "copies: a copy at the end of a message's life does not continue its wait",
        "names_of",
        "(own, *former)[:_MAX_NAMES] if delivered > 1 else tuple(former)",
        "tuple(former)",
        "tests/unit/test_waiting.py -k known_by",
    ),
    Mutant(
        "copies: no duplicate ends at a row that waits",
        "Message.is_needless",
        "0 < (self.sent_at or 0) <= row.waiter_sent_at",
        "False",
        "tests/unit/test_waiting.py -k needless",
    ),
    Mutant(
        "copies: a message that was sent later ends at a row that waits",
        "Message.is_needless",
        "0 < (self.sent_at or 0) <= row.waiter_sent_at",
        "True",
        "tests/kinds/test_waiting_worlds.py -k purged",
    ),
    Mutant(
        "copies: the message that waits ends at its row",
        "Message.is_needless",
        "row.waiter_id in (None, *self.names)",
        "row.waiter_id is None",
        "tests/kinds/test_waiting_worlds.py -k deaths",
    ),
    Mutant(
        "copies: an event of a state machine is named as the message that comes again",
        "Attempts._settle",
        "message.waiter if claim.change.execution is None else None",
        "message.waiter",
        "tests/kinds/test_conformance.py -k last_one_is_rejected",
    ),
    Mutant(
        "copies: a process ends without the copies of its messages",
        "ParallelGroups._leave",
        "batch.wait_in_copies()",
        "",
        "tests/integration/test_threads.py -k copied_before",
    ),
    Mutant(
        "copies: receives are not carried",
        "Message.__init__",
        "self.delivered + (past.receives if past else 0)",
        "self.delivered",
        "tests/unit/test_waiting.py -k go_on",
    ),
    Mutant(
        "copies: the age is not carried",
        "Message.__init__",
        "past.sent_at if past else self.queued_at",
        "self.queued_at",
        "tests/unit/test_waiting.py -k go_on",
    ),
    Mutant(
        "copies: a redriven copy of a rejection becomes a new message",
        "Message.copy",
        "self.rejected_fence is not None",
        "False",
        "tests/unit/test_waiting.py -k redrive_stays",
    ),
    Mutant(
        "copies: a hop has a new trace",
        "trace_of",
        "header or fresh",
        "fresh",
        "tests/unit/test_waiting.py -k its_trace",
    ),
    Mutant(
        "copies: a copy is judged before it is due",
        "MessageHandler.handle",
        "(left_ms := message.due - self.services.clock()) > 0",
        "(left_ms := message.due - self.services.clock()) > 10**15",
        "tests/unit/test_waiting.py -k asks_the_ledger_nothing",
    ),
    Mutant(
        "copies: a person does not reach a copy",
        "Downstream.is_asked",
        "self._asked_at >= (message.queued_at or now)",
        "False",
        "tests/unit/test_waiting.py -k person_reaches",
    ),
    Mutant(
        "a lock broken by hand leaves its claim to the worker",
        "broken",
        "replace(after, fence=_next_fence(seen, now))",
        "replace(seen, lease_until=now)",
        "a lock broken by hand",
    ),
    Mutant(
        "messages: a lock broken by hand leaves its claim to the worker",
        "broken",
        "replace(after, fence=_next_fence(seen, now))",
        "replace(seen, lease_until=now)",
        "messages, a lock broken by hand",
    ),
    Mutant(
        "a lock broken by hand keeps its fence",
        "broken",
        "_next_fence(seen, now)",
        "seen.fence",
        "tests/unit/test_release.py -k reported_before",
    ),
    Mutant(
        "a lock broken by hand counts no attempt",
        "broken",
        "failed(row, reason, review_partition=review_partition, now=now)",
        "failed(replace(row, attempts=row.attempts - 1), reason, review_partition=review_partition, now=now)",
        "tests/unit/test_release.py -k attempt_counts",
    ),
    Mutant(
        "the lock of a worker that lives is broken",
        "claim_untouched",
        'f"{owned.expression} AND #lease_until = :own_until"',
        'f"{owned.expression} AND (#lease_until = :own_until OR #lease_until <> :own_until)"',
        "tests/unit/test_release.py -k extends_its_lease",
    ),
    Mutant(
        "a timer goes on while the environment is frozen",
        "deadline.__exit__",
        "signal.setitimer(signal.ITIMER_REAL, 0)",
        "None",
        "tests/unit/test_lambda_environment.py -k nothing_runs_on",
    ),
    Mutant(
        "a request on a connection that died during a freeze is not repeated",
        "make_client",
        '{"mode": "standard", "total_max_attempts": 4}',
        '{"mode": "standard", "total_max_attempts": 1}',
        "tests/unit/test_lambda_environment.py -k closed_meanwhile",
    ),
    Mutant(
        "a copy with other content is not told from an exact one",
        "_has_other_content",
        "row.etag != state.etag",
        "False",
        "tests/unit/test_messages.py -k other_content_are",
    ),
    Mutant(
        "a copy with another fingerprint is acknowledged",
        "MessageHandler._without_claim",
        "change.must_equal and content_differs(change, ruling)",
        "False",
        "messages, a fingerprint",
    ),
    Mutant(
        "a message with another fingerprint takes an unfinished row",
        "judge_row",
        "change.must_equal and row.unfinished and _has_other_content(row, change)",
        "False",
        "messages, a fingerprint",
    ),
    Mutant(
        "a swap does not compare the fingerprint",
        "Ledger._take",
        "must_equal=wish.change.must_equal",
        "must_equal=False",
        "messages, a fingerprint, a late worker",
    ),
    Mutant(
        "a fingerprint without a value is the same for all messages",
        "MessageReader._compared",
        "all(one is None for one in _elements(value))",
        "False",
        "tests/unit/test_messages.py -k does_not_have",
    ),
    Mutant(
        "a forgotten key is looked for before the claim only",
        "Ledger._checked",
        "isinstance(answer, Claim)",
        "False",
        "tests/unit/test_forgotten.py -k pause",
    ),
    Mutant(
        "a forgotten key is looked for after the claim only",
        "Ledger.claim",
        "(self._every_version or is_new) and self.is_forgotten(change)",
        "is_new and self.is_forgotten(change) and not self._every_version",
        "tests/unit/test_forgotten.py -k leave_no_row",
    ),
    Mutant(
        "a late removal of a forgotten key gets a row",
        "Ledger._judge",
        "is_gone and self.is_forgotten(change, unknown=True)",
        "False",
        "tests/unit/test_forgotten.py -k leave_no_row",
    ),
    Mutant(
        "another function gets an old event of a forgotten key",
        "Ledger.is_forgotten",
        "is_forgotten(change, forgotten_at, unknown=unknown)",
        "(unknown or self._every_version) and is_forgotten(change, forgotten_at, unknown=unknown)",
        "tests/kinds/test_conformance.py -k forgotten_key",
    ),
    Mutant(
        "the newest marker is read once only",
        "ForgottenKeys.forgotten_at",
        "self._read_at is None or not 0 <= now - self._read_at < UNCHECKED_MS",
        "self._read_at is None",
        "tests/unit/test_forgotten.py -k marker_ends",
    ),
    Mutant(
        "a redriven message of a forgotten key is a new one",
        "sent_at",
        "(change.event_time, change.rejected_fence, asked_at)",
        "(change.event_time, asked_at)",
        "tests/unit/test_forgotten.py -k new_message",
    ),
    Mutant(
        "each message of a forgotten key is refused",
        "is_forgotten",
        "sent < forgotten_at",
        "True",
        "tests/unit/test_forgotten.py -k rule",
    ),
    Mutant(
        "a marker outlives its end",
        "ForgottenKeys._time_in",
        'int(item.get("expires_at", 0)) * 1000 > now',
        "FORGOTTEN_AT in item",
        "tests/unit/test_forgotten.py -k marker_ends",
    ),
    Mutant(
        "the log names a forgotten key",
        "PowertoolsTelemetry.decided",
        "answer.verdict is Verdict.FORGOTTEN",
        "False",
        "tests/unit/test_telemetry.py -k forgotten",
    ),
    Mutant(
        "a start without a look at the item",
        "Starts._move",
        'f"#{name} >= :begin AND #{name} <= :limit"',
        'f"#{name} >= :begin AND (#{name} <= :limit OR #{name} > :limit)"',
        "tests/protocol/test_rates.py",
    ),
    Mutant(
        "an idle rate is reset by a worker that has read it before",
        "Starts._move",
        'f"(attribute_not_exists(#{name}) OR #{name} < :begin)"',
        'f"(attribute_not_exists(#{name}) OR #{name} < :begin OR #{name} >= :begin)"',
        "tests/protocol/test_rates.py",
    ),
    Mutant(
        "each retry waits alone, without a place",
        "Starts._place",
        'self._move("places_until", interval, begin, longest)',
        'self._move("places_until", 1, begin, longest)',
        "tests/protocol/test_rates.py",
    ),
    Mutant(
        "each retry takes a start",
        "Starts.take",
        "if self._start(in_line=in_line): ...",
        "if self._start(in_line=in_line) and in_line: return None",
        "tests/protocol/test_rates.py",
    ),
    Mutant(
        "new messages overtake the line",
        "Starts._start",
        "None if in_line else now",
        "None",
        "tests/protocol/test_rates.py -k overtake",
    ),
    Mutant(
        "a wait for the rate counts an attempt",
        "_without_start",
        "_wait(claim, wanted, Reason(code, str(later)), facts, rejected=code)",
        "_failed(claim, Reason(code, str(later)), facts)",
        "tests/kinds/test_conformance.py -k a_rate_delays",
    ),
    Mutant(
        "a repeated start of an execution gives its claim up",
        "_without_start",
        "if claim.continued: ...",
        "",
        "tests/kinds/test_start_rate.py",
    ),
    Mutant(
        "an end of an execution takes a start",
        "Later.start",
        "run.begun = run.judge_again = True",
        "run.begin()\nrun.judge_again = True",
        "tests/kinds/test_conformance.py -k a_rate_delays",
    ),
)
