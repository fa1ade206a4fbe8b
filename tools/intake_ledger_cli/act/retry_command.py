"""The command that repairs: it chooses for each row what ends its trouble, and never takes a claim."""

import secrets
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from botocore.exceptions import ClientError
from rich.console import Group

from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.ulids import RANDOM_BITS, ulid
from intake_ledger_cli.act import operations, retrying, selection
from intake_ledger_cli.act.again import AgainCall, check_id, send_requests
from intake_ledger_cli.act.choice import Act, Asked, Choice, choose
from intake_ledger_cli.act.redrive_lock import redrive_lock
from intake_ledger_cli.act.retrying import Redrive, RedriveResult, RetryResult, dead_letter_of, request_of
from intake_ledger_cli.act.selection import ReprocessResult, Selection, Target, row_target
from intake_ledger_cli.act.sender import RateLimit, Sender
from intake_ledger_cli.app import Because, DryRun, PerSecond, Wait, Yes, app, argument, now_ms, option
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.dead_letters import DeadLetterMessage
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.executions import executions_of, standing
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.errors import UsageError, denied_action, unless_denied
from intake_ledger_cli.options import Call, check_reason, with_shared_options
from intake_ledger_cli.read.inspection import key_in
from intake_ledger_cli.show.console import console, many
from intake_ledger_cli.show.json_output import document
from intake_ledger_cli.show.render import view

if TYPE_CHECKING:
    from intake_ledger_cli.read.operation_wait import OperationWaitResult

COMMITTED = "committed"
"""The good outcome of a wait."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice for a row, a dead letter or a key."""

    key: str
    version_id: str | None
    status: str
    """The status of its row, `no row`, or `dead letter`: other rows than those that need review were not read."""
    choice: Act
    why: str


@dataclass(slots=True)
class RetriedResult:
    """The document of `retry`."""

    request_id: str
    """The ID of the operation, for `wait --id` and `operations stop`."""
    dry_run: bool
    choices: list[Chosen] = field(default_factory=list)
    redriven: RedriveResult | None = None
    """The dead letters. None: they were not read."""
    due: RetryResult | None = None
    """The rows whose next attempt is due now."""
    reopened: int = 0
    """Rejections that were sent again without their dead letters."""
    refused: list[str] = field(default_factory=list)
    """Keys of rejections whose message SQS refused, with the reason."""
    again: ReprocessResult | None = None
    """The requests to process again."""
    waited: "OperationWaitResult | None" = None
    """With --wait: how the requests have ended."""

    @property
    def failed(self) -> bool:
        """True if SQS refused a message, or a request was not committed at the end of the wait."""
        parts = (self.redriven and self.redriven.failed, self.due and self.due.failed, self.again and self.again.failed)
        ended = self.waited is None or self.waited.outcome == COMMITTED
        return any(parts) or bool(self.refused) or not ended

    def numbers(self) -> str:
        """The work until now, for the record of the operation."""
        letters = self.redriven or RedriveResult()
        numbers = [(letters.moved, "redriven"), (len(letters.failed), "not moved"), (letters.unmoved, "left")]
        numbers += [(self.due.retried if self.due else 0, "tried now")]
        numbers += [(self.reopened, "reopened"), (self.again.sent if self.again else 0, "requested again")]
        return ", ".join(f"{number:,} {text}" for number, text in numbers if number) or "nothing sent"


@app.command("retry")
@with_shared_options
def retry_command(
    call: Call,
    keys: Annotated[list[str] | None, argument(help="Keys of objects, not encoded.")] = None,
    *,
    keys_from: Annotated[
        str | None, option("--from", help="A file with one key a line, or - for standard input.")
    ] = None,
    prefix: Annotated[str | None, option(help="All that is unfinished under this prefix. '' is all.")] = None,
    reason: Annotated[str | None, option(help="All with this reason code, or this text in the reason.")] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="All that failed or waits, after an outage. Closes the circuit breaker.")
    ] = False,
    letter: Annotated[str | None, option(help="The dead letter with this ID. It opens a rejected message.")] = None,
    version_id: Annotated[str | None, option(help="With EVERY_VERSION: only this version of the key.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also what is committed: effects may repeat. With --prefix, all objects.")
    ] = False,
    since: Annotated[str | None, option(help="With --again: all whose last commit is not before.")] = None,
    before: Annotated[str | None, option(help="With --again: all whose last commit is before.")] = None,
    processor_version: Annotated[str | None, option(help="With --again: all that this version committed.")] = None,
    request_id: Annotated[str | None, option("--id", help="With --again: the ID of a call to repeat.")] = None,
    resume: Annotated[str | None, option(help="With --again: the ID of a call to continue.")] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
    because: Because = "",
    wait: Wait = False,
    yes: Yes = False,
) -> None:
    """Try again what is rejected, failed or waits. It chooses by the row, and repeats no committed effect by itself."""
    listed = selection.keys_from(keys_from) if keys_from is not None else ()
    names = tuple(dict.fromkeys((*(keys or ()), *listed)))
    chosen = Selection(
        keys=names, prefix=prefix, reason=reason, waiting=waiting, letter=letter, version_id=version_id, since=since,
        before=before, processor_version=processor_version,
    )  # fmt: skip
    streams = again and (prefix is not None or chosen.of_commits or resume is not None) and reason is None
    _check(chosen, again=again, streams=streams, request_id=request_id, resume=resume)
    aws, deployed = call.open("retry --again" if streams else "retry")
    if given := resume or request_id:
        check_id(given, deployed, now_ms())
    request_id = given or ulid(now_ms(), secrets.randbits(RANDOM_BITS))
    sender, result = Sender(aws, deployed, request_id, RateLimit(rate)), RetriedResult(request_id, dry_run)
    run: AgainCall | RetryCall
    if streams:
        run = AgainCall(sender, chosen, dry_run)
        result.again = run.result
        if resume is not None:
            run.resume()
    else:
        chosen = replace(chosen, keys=tuple(dict.fromkeys(key_in(deployed, key) for key in names)))
        run = RetryCall(sender, chosen, result, again=again)
    try:
        run.run(because, yes=yes)
        if wait and sender.recorded:
            from intake_ledger_cli.read import operation_wait  # noqa: PLC0415 - it imports the runtime's clients

            result.waited = operation_wait.follow(aws, deployed, request_id)
    finally:
        if run.begun:
            call.output(result, Group(*view("RetriedResult", _shown(result), now_ms())))
    if result.failed:
        raise typer.Exit(1)
    if not streams and not result.choices:
        check_reason(reason)


def _check(chosen: Selection, *, again: bool, streams: bool, request_id: str | None, resume: str | None) -> None:
    """Check the options.

    Raises:
        UsageError: They select nothing, or contradict each other.

    """
    names, others = chosen.keys, replace(chosen, keys=()).one_by_one
    if not again and (chosen.of_commits or request_id is not None or resume is not None):
        raise UsageError("--since, --before, --processor-version, --id and --resume need --again: effects may repeat")
    if resume is not None and (request_id is not None or chosen.prefix is not None or chosen.of_commits):
        raise UsageError("--resume takes the selection and the ID of the earlier call: omit the other options")
    if chosen.of_commits and chosen.one_by_one:
        raise UsageError("--since, --before and --processor-version select commits: combine them with --prefix only")
    if names and (chosen.prefix is not None or others):
        raise UsageError("keys name all: omit --prefix, --reason, --waiting and --letter")
    if streams and chosen.one_by_one:
        raise UsageError("--again with --prefix or --resume selects all: omit the others")
    if not (streams or chosen.one_by_one or chosen.prefix is not None):
        raise UsageError("retry needs what to try: keys, --from FILE, --prefix, --reason, --waiting or --letter")
    if chosen.version_id is not None and len(names) != 1:
        raise UsageError(f"--version-id {chosen.version_id} needs exactly one key, and {len(names)} were given")
    if chosen.of_commits:
        chosen.commits  # noqa: B018 - it refuses wrong times


@dataclass(slots=True)
class RetryCall:
    """One call of the command."""

    sender: Sender
    wanted: Selection
    result: RetriedResult
    _: KW_ONLY
    again: bool
    begun: bool = False
    """False before all is chosen."""
    _letters: list[str] = field(default_factory=list)
    """The IDs of the dead letters that move."""
    _rows: dict[Act, list[ObjectRow]] = field(default_factory=lambda: {act: [] for act in Act})
    _targets: list[Target] = field(default_factory=list)
    """Objects without a row, to process."""

    def run(self, because: str, *, yes: bool) -> None:
        """Choose, ask, and act. One at a time for a pipeline.

        Raises:
            CliError: Another one runs.

        """
        by = operations.caller(self.aws)
        with redrive_lock(self.aws, self.deployed, by) as lock:
            self.sender.renew = lock.renew
            self._plan()
            self.begun = True
            if not self.result.dry_run and self._acts:
                self._act(because, by, yes=yes)

    @property
    def aws(self) -> Aws:
        """The clients."""
        return self.sender.aws

    @property
    def deployed(self) -> DeployedPipeline:
        """The pipeline."""
        return self.sender.deployed

    @property
    def _acts(self) -> Counter[Act]:
        """The number of choices by what is done, if anything is."""
        counted = Counter(one.choice for one in self.result.choices if one.choice not in (Act.SKIP, Act.LEAVE))
        return counted + Counter({Act.NOW: 1} if self.wanted.waiting else {})

    def _plan(self) -> None:
        """Read the rows and the dead letters, and choose."""
        named = self._named()
        letters, unread = self._read_letters()
        entries = self._read_rows()
        asked = Asked(now=now_ms(), again=self.again, in_bucket=self.deployed.work.in_bucket, unread=unread)
        if any(one.row.status is Status.REJECTED for one in entries):
            asked = self._with_restore(asked)
        left = {one.id: one for one in letters}
        by_key = _by_key(letters)
        for entry in entries:
            own = [one for one in by_key.get(entry.key, ()) if self._is_about(one, entry)]
            closed = [one for one in own if not self._opens(one, entry)]
            choice = choose(entry.row, has_letter=len(own) > len(closed), asked=asked)
            choice = replace(choice, why=self._why(choice, entry, closed, asked.now))
            self._choose(entry.key, entry.row.version_id, entry.row.status.value, choice)
            self._rows[choice.act].append(entry)
            for one in own:
                if left.pop(one.id, None) is not None and choice.act is Act.REDRIVE and one not in closed:
                    self._letters.append(one.id)
        for one in left.values():
            if one.identity and self.wanted.version_id not in (None, one.identity):
                continue
            self._letters.append(one.id)
            choice = choose(None, has_letter=True, asked=asked)
            status = "no row" if self.wanted.keys else "dead letter"  # otherwise only rows that need review were read
            self._choose(", ".join(one.keys) or one.id, one.identity or None, status, choice)
        self._choose_without_row(named, entries, by_key, asked)

    def _choose_without_row(
        self, named: list[Target], entries: list[ObjectRow], letters: Iterable[str], asked: Asked
    ) -> None:
        """Choose for named keys that have neither a row nor a dead letter. `letters` are the keys of these."""
        each = self.deployed.ordering is Ordering.EVERY_VERSION and self.again
        known = {(one.key, one.row.identity if each else None) for one in entries} | {(key, None) for key in letters}
        for target in named:
            identity = target.state.identity if target.state else None
            if not {(target.key, identity), (target.key, None)} & known:
                choice = choose(None, has_letter=False, asked=asked)
                self._choose(target.key, target.state.version_id if target.state else None, "no row", choice)
                if choice.act is Act.AGAIN:
                    self._targets.append(target)
        if self.result.again is not None and self.result.dry_run:
            self.result.again.sent = self._acts[Act.AGAIN]

    def _why(self, choice: Choice, entry: ObjectRow, closed: list[DeadLetterMessage], now: int) -> str:
        """The reason, with what the execution and the dead letters say. `closed` do not open the row by themselves."""
        if closed and choice.act is Act.LEAVE and entry.row.committed_state is None:
            return f"its dead letter has no fence: `retry --letter {closed[0].id}` opens it"
        executions = executions_of(self.aws, self.deployed) if entry.row.status is Status.PROCESSING else None
        if executions is not None:
            return standing(executions, self.deployed, entry.key, entry.row, now)[1]
        return choice.why

    def _choose(self, key: str, version_id: str | None, status: str, choice: Choice) -> None:
        self.result.choices.append(Chosen(key, version_id, status, choice.act, choice.why))

    def _named(self) -> list[Target]:
        """The keys that a person has named. To process them again, S3 must have them."""
        keys, work = self.wanted.keys, self.deployed.work
        if not (keys and self.again and work.in_bucket):
            return [Target(key) for key in keys]
        self.result.again = ReprocessResult()
        return self.wanted.named(self.aws, self.deployed, self.result.again)

    def _read_letters(self) -> tuple[list[DeadLetterMessage], str]:
        """The dead letters, and why others may exist."""
        if self.wanted.waiting:
            return [], "the dead-letter queue was not read"
        try:
            found = Redrive(self.sender, self.wanted.filter, dry_run=True).run()
        except ClientError as error:
            if (action := denied_action(error)) is None:
                raise
            return [], f"{action} is not allowed"
        self.result.redriven = found
        reasons = (
            (found.hidden_by_others, f"{found.hidden_by_others:,} of its queue were hidden"),
            (found.overfull, "SQS allows no more messages in flight"),
        )
        letters = found.dead_letters
        found.dead_letters = letters if self.result.dry_run else []
        return letters, next((why for number, why in reasons if number), "")

    def _read_rows(self) -> list[ObjectRow]:
        told = "only dead letters are tried, rows are not known"
        with unless_denied(lambda action: console(stderr=True).print(f"{told}: {action} is not allowed")):
            return list(self.wanted.rows(self.aws, self.deployed))
        return []

    def _with_restore(self, asked: Asked) -> Asked:
        try:
            table = self.aws.dynamodb.describe_table(TableName=self.deployed.table)["Table"]
        except ClientError as error:
            if (action := denied_action(error)) is None:
                raise
            return replace(asked, unread=f"a restore of the table cannot be excluded: {action} is not allowed")
        if (restored := table.get("RestoreSummary")) is None:
            return asked
        return replace(asked, restored_at=int(restored["RestoreDateTime"].timestamp() * 1000) + 999)

    def _is_about(self, letter: DeadLetterMessage, entry: ObjectRow) -> bool:
        return self.deployed.ordering is Ordering.LATEST or letter.identity in ("", entry.row.version_id)

    def _opens(self, letter: DeadLetterMessage, entry: ObjectRow) -> bool:
        """True if the consumer takes the letter for a copy of the rejection, or the row needs none."""
        from intake_ledger.aws.queues import body_digest  # noqa: PLC0415 - it imports the runtime's clients

        bare = not letter.attributes and not self.deployed.work.in_bucket and entry.row.status is Status.REJECTED
        return not bare or body_digest(letter.body) == entry.row.bare_copy_digest

    def _announced(self) -> str:
        """The effect as a sentence."""
        acts, noun = self._acts, self.deployed.work.noun
        does = [
            (acts[Act.REDRIVE], f"move {many(len(self._letters), 'dead letters')} back to the queue"),
            (acts[Act.NOW], f"try {many(len(self._rows[Act.NOW]), noun)} {self.deployed.work.retried}"),
            (acts[Act.REOPEN], f"open {many(acts[Act.REOPEN], f'rejected {noun}')} whose dead letters are gone"),
            (acts[Act.AGAIN], f"process {many(acts[Act.AGAIN], noun)} again, although their effects may repeat"),
        ]
        left = sum(one.choice is Act.LEAVE for one in self.result.choices)
        more = f" {many(left, noun)} will be left." if left else ""
        return f"{self.deployed.name} will {', and '.join(text for number, text in does if number)}.{more}"

    def _act(self, because: str, by: str, *, yes: bool) -> None:
        """Ask, and carry out the choices."""
        sender, result = self.sender, self.result
        sender.check()
        what, does = f"retry {'--again ' if self.again else ''}{self.wanted}", self._announced()
        with sender.acting(what, result.numbers, does=does, yes=yes, because=because, by=by):
            self._send_letters()
            self._reopen()
            self._make_due()
            targets = [*(row_target(self.deployed, one, "") for one in self._rows[Act.AGAIN]), *self._targets]
            if targets:
                result.again = result.again or ReprocessResult()
                send_requests(sender, targets, result.again)

    def _send_letters(self) -> None:
        planned = self.result.redriven
        if planned is None or not self._letters:
            return
        wanted = replace(self.wanted.filter, ids=frozenset(self._letters))
        moving = Redrive(self.sender, wanted)
        self.result.redriven = moving.outcome
        try:
            moving.run()
        finally:
            for name in ("left", "removed", "closed", "hidden_by_others"):
                setattr(moving.outcome, name, getattr(planned, name))

    def _reopen(self) -> None:
        rows, result = self._rows[Act.REOPEN], self.result
        if not self.deployed.work.in_bucket:
            for one in rows:
                self.sender.check()
                retrying.await_source(self.aws, self.deployed, one)
                result.reopened += 1
            return

        def answered(place: int, why: str | None) -> None:
            if why is None:
                result.reopened += 1
            else:
                result.refused.append(f"{rows[place].key}: {why}")

        letters = [dead_letter_of(self.deployed, one) for one in rows]
        self.sender.send([request_of(self.deployed, one, result.request_id) for one in letters], answered)

    def _make_due(self) -> None:
        letters = [one for one in self._rows[Act.REDRIVE] if one.row.status is Status.FAILED]
        rows = [*self._rows[Act.NOW], *letters]
        if not rows and not self.wanted.waiting:
            return
        aws, deployed, now = self.aws, self.deployed, now_ms()
        self.result.due = done = RetryResult()
        retrying.close_breaker(aws, deployed, now)
        retrying.retry_rows(rows, now, done, self.sender)
        if not deployed.reads_stream:
            with suppress(ClientError):  # it is only a hint
                done.in_flight = retrying.in_flight(aws, deployed)


def _by_key(letters: Iterable[DeadLetterMessage]) -> dict[str, list[DeadLetterMessage]]:
    found: dict[str, list[DeadLetterMessage]] = {}
    for one in letters:
        for key in one.keys:
            found.setdefault(key, []).append(one)
    return found


def _shown(found: RetriedResult) -> dict[str, Any]:
    """The document for people: with the number of each choice, and the identities of closed dead letters."""
    shown: dict[str, Any] = document(found)
    for one, closed in zip(shown["redriven"]["closed"], found.redriven.closed, strict=True) if found.redriven else ():
        one["identity"] = closed.identity
    chosen = Counter(one.choice.value for one in found.choices)
    moved, requested = found.redriven and found.redriven.moved, found.again and found.again.sent
    if found.dry_run or not (moved or found.reopened or requested):
        del shown["requestId"]
    if found.dry_run and found.redriven:
        # The numbers of a real call.
        shown["redriven"]["moved"] = found.redriven.matched
    return ({"chosen": chosen} if chosen or found.again is None else {}) | shown
