"""The requests to Lambda about executions of a durable function.

Only Invoke, GetDurableExecution, ListDurableExecutionsByFunction and, if wanted, StopDurableExecution are sent. An
execution is found by its ARN, whose ID Lambda makes. The answer to Invoke has it, before GetDurableExecution knows the
execution: Lambda may queue the start. The row keeps the ARN with the time of the answer. Until the queue must have
dropped the start, an execution that is not found is taken for one that runs.
"""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from botocore.exceptions import ClientError

from intake_ledger.executions.decide import OVERTAKEN, QUEUED, Execution, epoch_ms
from intake_ledger.protocol.settings_durable import DurableSettings

_STATUSES = {"STOPPED": "ABORTED"}
"""Lambda's names for what Step Functions names otherwise."""
_ANOTHER_INPUT = frozenset({"DurableExecutionAlreadyStartedException", "DurableExecutionAlreadyExists"})
"""AWS's API reference has the first name, and the page about idempotency the second one."""
_MARGIN_MS = 60_000
"""The clocks differ, and a started execution is not visible at once."""


class Lambda(Protocol):
    """The methods of boto3's Lambda client that this module calls."""

    def invoke(self, **request: Any) -> Any: ...

    def get_durable_execution(self, *, DurableExecutionArn: str) -> Any: ...  # noqa: N803 - boto3's

    def list_durable_executions_by_function(self, **request: Any) -> Any: ...

    def stop_durable_execution(self, **request: Any) -> Any: ...


class _Kept(NamedTuple):
    """The text that a row keeps: the time of the answer in epoch milliseconds, and the ARN if it is known."""

    at: int
    arn: str | None

    def __str__(self) -> str:
        return f"{self.at} {self.arn or ''}"


class DurableFunction:
    """Starts executions of one durable function, and asks how they stand. The client is made at the first request."""

    service = "Lambda"
    most_bytes = 256 * 1024
    """The longest input of an execution that is started asynchronously (GetDurableExecution, `InputPayload`)."""

    def __init__(
        self, make_client: Callable[[], Lambda], settings: DurableSettings, table: str, clock: Callable[[], int]
    ) -> None:
        """Make the place.

        Args:
            make_client: makes boto3's client of Lambda.
            settings: of the function.
            table: the ledger's table. Names of executions are unique in an account and region, so they have it.
            clock: gives epoch milliseconds.

        """
        self._make_client = make_client
        self._made: Lambda | None = None
        self._table = table
        self._clock = clock
        self.settings = settings
        self.limit_ms = settings.execution_seconds * 1000
        self.longest_task_ms = settings.longest_invocation_seconds * 1000
        self.stops_overtaken = settings.stop_overtaken

    def name_of(self, name: str) -> str:
        """The name of an execution at Lambda, for its name in the ledger."""
        digest, _, fence = name.rpartition("-")
        return f"{hashlib.sha256(f'{self._table}\n{digest}'.encode()).hexdigest()[:40]}-{fence}"

    def start(self, name: str, given: str) -> str:
        """Start an execution, and return the text for its row to keep.

        An execution with this name that runs or has ended is a success. If it has another input, a deploy came between
        two starts, and Lambda does not tell its ARN.

        Raises:
            ClientError: Lambda refused the request, or the SDK repeated it without success. The execution may
                run nevertheless. Also BotoCoreError.

        """
        arn = None
        try:
            answer = self._client.invoke(
                FunctionName=self.settings.function,
                InvocationType="Event",
                DurableExecutionName=self.name_of(name),
                Payload=given.encode(),
            )
            arn = answer.get("DurableExecutionArn")
        except ClientError as error:
            if error.response["Error"]["Code"] not in _ANOTHER_INPUT:
                raise
        return str(_Kept(self._clock(), arn))

    def describe(self, name: str, kept: str | None) -> Execution | None:
        """The execution with this name. None: Lambda knows none, and no accepted start can begin it any more.

        The queue has dropped its start then, its retention has ended, or a person has deleted it. In each case the same
        start may be repeated: its name keeps a late starter of the fence from starting it a second time.

        Raises:
            ClientError: Lambda refused a request. Also BotoCoreError.

        """
        known = self._kept(name, kept)
        if known and known.arn and (found := self._get(known.arn)) is not None:
            return _execution(name, found, None)
        # Also with an ARN: a second start may have been answered with an ARN that nothing gets.
        if (arn := self._find(name)) is not None and (found := self._get(arn)) is not None:
            return _execution(name, found, str(_Kept(self._clock(), arn)))
        waits = known is not None and self._clock() < known.at + self.settings.event_age_seconds * 1000 + _MARGIN_MS
        return Execution(name, QUEUED) if waits else None

    def stop(self, name: str, kept: str | None) -> None:
        """Stop the execution with this name, if Lambda knows it. One that has ended stays as it is.

        Raises:
            ClientError: Lambda refused a request. Also BotoCoreError.

        """
        known = self._kept(name, kept)
        if (arn := (known.arn if known else None) or self._find(name)) is not None:
            self._client.stop_durable_execution(DurableExecutionArn=arn, Error={"ErrorType": OVERTAKEN})

    def _kept(self, name: str, text: str | None) -> _Kept | None:
        """The kept text, if it is of the execution with this name. None: there is none, or it has another fence."""
        at, _, arn = (text or "").partition(" ")
        name_there = arn.split("/")[-2] if arn.count("/") >= 2 else ""
        if not at.isdecimal() or (arn and name_there != self.name_of(name)):
            return None
        return _Kept(int(at), arn or None)

    def _find(self, name: str) -> str | None:
        """The ARN of the execution with this name, if a list has it. If none has, a repeated start still tells it.

        AWS's API reference says that a list without a qualifier has executions of `$LATEST`. Others have seen that it
        has all versions, and that Lambda refuses a name together with a qualifier. So both lists are asked for.
        """
        named = self.name_of(name)
        unqualified, _, _ = self.settings.function.rpartition(":")
        for function in (unqualified, self.settings.function):
            try:
                answer = self._client.list_durable_executions_by_function(
                    FunctionName=function, DurableExecutionName=named
                )
            except ClientError as error:
                if error.response["Error"]["Code"] != "InvalidParameterValueException":
                    raise
                continue
            # The filter takes names that contain the text, as older pages say.
            for one in answer.get("DurableExecutions", ()):
                if one["DurableExecutionName"] == named:
                    return str(one["DurableExecutionArn"])
        return None

    def _get(self, arn: str) -> Any:
        try:
            return self._client.get_durable_execution(DurableExecutionArn=arn)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return None

    @property
    def _client(self) -> Lambda:
        if self._made is None:
            self._made = self._make_client()
        return self._made


def _execution(name: str, answer: Any, kept: str | None) -> Execution:
    error = answer.get("Error") or {}
    return Execution(
        name,
        _STATUSES.get(answer["Status"], answer["Status"]),
        epoch_ms(answer.get("EndTimestamp")),
        answer.get("Result"),
        error.get("ErrorType"),
        error.get("ErrorMessage"),
        kept,
    )
