"""The option `exclusive_by`: the lock of a group of keys guards each claim of the group.

It is the lock of a key, with one item per group, whose holder may be the row of any key of the group. A key that has to
wait for its group waits as after a `NotYet`: its row shows that, the wait counts no attempt, and it ends at `max_wait`.

Keys that wait stand in line: each has an item next to the lock. The end of an attempt wakes the first of them:

    K is held       the row waits ─► join the line ─► read the lock: held
    the end         write the outcome, which frees the group ─► read the line ─► remove its first key ─► wake it

If the end comes before the key has joined the line, the key finds the group free, and wakes the first one itself. A
wake is a hint. The key that gets it looks at the lock as each other one. If the wake is lost, its own message comes.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from intake_ledger.aws.queues import Queues
from intake_ledger.events.parser import own_message
from intake_ledger.keyed.key_lock import KeyLock, is_holding
from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS, LedgerTable
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.errors import GroupHeld, SettingsError
from intake_ledger.protocol.handover import Element
from intake_ledger.protocol.row import Retention, RowKey, group_key, group_line
from intake_ledger.protocol.settings import ConsumerSettings, longest_execution_seconds, variable_of
from intake_ledger.protocol.verdict import Ruling

if TYPE_CHECKING:
    from intake_ledger.consumer.composition import KindTools

_MOST_GONE = 25
"""Keys in line that wait no more, and that one end removes. The next end goes on."""


class GroupLock(KeyLock):
    """Guards claims by the locks of their groups; see `Guard`. A claim without a group needs none."""

    _reads_first = True

    def __init__(
        self,
        table: LedgerTable,
        pipeline: str,
        retention: Retention,
        group_of: Callable[[str], str | None],
        *,
        clock: Callable[[], int],
        wake: Callable[[str], None],
        longest_work_ms: int | None = None,
    ) -> None:
        """Make the guard of one pipeline.

        Args:
            table: the ledger's table.
            pipeline: the name of the pipeline.
            retention: as for `KeyLock`.
            group_of: gives the group of a key. None: it has none.
            clock: gives epoch milliseconds.
            wake: sends a message with this body to the queue of the pipeline.
            longest_work_ms: as for `KeyLock`.

        """
        super().__init__(table, pipeline, retention, clock=clock, longest_work_ms=longest_work_ms)
        self._pipeline = pipeline
        self._group_of = group_of
        self._wake = wake

    def take(self, claim: Claim) -> Claim | Ruling:
        """See `Guard`. A claim whose group is held says so, and keeps its row until its attempt has ended."""
        return claim if self._group(claim) is None else super().take(claim)

    def with_commit(self, claim: Claim) -> Sequence[Element]:
        """See `Guard`."""
        return () if self._group(claim) is None else super().with_commit(claim)

    def still_holds(self, claim: Claim) -> bool:
        """See `Guard`."""
        return self._group(claim) is None or super().still_holds(claim)

    def extended(self, claim: Claim, *, until: int) -> bool:
        """See `Guard`."""
        return self._group(claim) is None or super().extended(claim, until=until)

    def let_go(self, claim: Claim, *, ended: bool) -> None:
        """See `Guard`. A claim that has found its group held joins the line. Any other one may have freed the group.

        An error of AWS loses a wake at most.
        """
        if self._group(claim) is None:
            return
        with suppress(*AWS_ERRORS):
            if claim.held is None:
                super().let_go(claim, ended=ended)
            elif not self._joins(claim) or not self._is_free(claim):
                return
            self._wake_next(claim)

    def in_turn(self, key: str) -> str | None:
        """See `FencingGuard`."""
        return self._group_of(key)

    def fences(self, claim: Claim) -> dict[str, int]:
        """See `FencingGuard`. The fence orders the work of all keys of the group."""
        return {} if self._group(claim) is None else {"group_fence": self.fence_of(claim)}

    def _busy(self, claim: Claim, wait_ms: int, item: Mapping[str, Any]) -> Claim:
        why = f"another key of the group {self._group(claim)} is in work"
        if item:
            since = datetime.fromtimestamp(int(item["held_since"]) / 1000, UTC).isoformat(timespec="seconds")
            why += f" since {since}: {holder_hash(item['holder'])}"
        return replace(claim, held=GroupHeld(why, retry_in=max(wait_ms / 1000, 1)))

    def _joins(self, claim: Claim) -> bool:
        """Stand in line, in the order of the first claims. False: the key was there before it looked at the lock."""
        name = self._name(claim)
        place = f"{group_line(self._pipeline)}{claim.row.first_claimed_at:015}/{holder_hash(name)}"
        content = {"waiter": name, "fence": claim.row.fence, "expires_at": self._expires_at(None)}
        return self._table.put_new(RowKey(self._key(claim).pk, place), content) == content

    def _is_free(self, claim: Claim) -> bool:
        """True if no key of the group is in work. Also not the claim's own, whose work may go on elsewhere."""
        lock = self._item(claim)
        if not lock.get("holder"):
            return True
        holder = self._table.get(holder_row(lock["holder"]))
        return not is_holding(holder, lock, outlives=self._outlives, now=self._clock())

    def _wake_next(self, claim: Claim) -> None:
        """Wake the first key in line that still waits, if the group is free."""
        for _ in range(_MOST_GONE):
            first = self._table.first(self._key(claim).pk, group_line(self._pipeline))
            if first is None or not self._is_free(claim):
                return
            place, item = first
            try:
                # Before the wake: the key may be back in line soon after it.
                self._table.delete(place, Condition("#fence = :seen", ("fence",), {":seen": item["fence"]}))
            except ConditionFailed:
                continue  # another end has woken it
            waiter, bucket = holder_row(item["waiter"]), claim.change.bucket
            row = self._table.get(waiter)
            if row is not None and row.waits_for_group:
                self._wake(own_message(Origin.GROUP, bucket, waiter.pk.removeprefix(f"{bucket}/"), row.state))
                return

    def _group(self, claim: Claim) -> str | None:
        return self._group_of(claim.change.key)

    def _key(self, claim: Claim) -> RowKey:
        return group_key(self._pipeline, self._group(claim) or "")

    def _name(self, claim: Claim) -> str:
        return holder_name(claim.key)

    def _row_of(self, holder: str, claim: Claim) -> RowKey:  # noqa: ARG002 - the name says everything
        return holder_row(holder)


def make_guard(settings: ConsumerSettings, tools: "KindTools", is_control: Callable[[str], bool] | None) -> GroupLock:
    """The lock of the groups that `exclusive_by` names. Keys without work, which `is_control` tells, need no lock."""
    pattern = settings.exclusive_by
    assert pattern is not None, "the setting is set"
    longest = longest_execution_seconds(tools.environment)
    return GroupLock(
        tools.table,
        settings.pipeline,
        tools.options.retention,
        lambda key: None if is_control is not None and is_control(key) else pattern.group_of(key),
        clock=tools.platform.clock,
        wake=Queues(tools.sqs, settings.queue_url, settings.dlq_url).wake,
        longest_work_ms=None if longest is None else longest * 1000,
    )


def check(settings: ConsumerSettings, kinds: Mapping[str, str], _executions: str | None) -> None:
    """Refuse groups of messages, and calls with several changes; see `check_options`."""
    own, calls = variable_of(ConsumerSettings, "exclusive_by"), variable_of(ConsumerSettings, "max_per_call")
    if source := kinds.get("messages"):
        raise SettingsError(
            f"{own} and {source} are set: messages of one key exclude each other. Use the group as the key"
        )
    if settings.max_per_call > 1:
        raise SettingsError(
            f"{calls} is {settings.max_per_call}, and {own} is set, and a call would hold several groups: omit {calls}"
        )


def holder_name(key: RowKey) -> str:
    """The row in one text. A sort key of objects and sets has no line break."""
    return f"{key.sk}\n{key.pk}"


def holder_hash(name: str) -> str:
    """The hash by which reasons name a holder. A reason must not keep the name of a key that is forgotten."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def holder_row(name: str) -> RowKey:
    """The row with this name."""
    sk, _, pk = name.partition("\n")
    return RowKey(pk, sk)
