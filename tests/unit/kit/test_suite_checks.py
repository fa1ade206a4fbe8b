"""Checks of the suite fail when their assumption does not hold. AWS is a few answers here."""

import json
from collections.abc import Callable, Iterator
from itertools import repeat
from types import SimpleNamespace
from typing import Any, cast, override

import pytest
from botocore.exceptions import ClientError

from intake_ledger_suite import test_durable, test_faults, test_metrics, test_pipelines, test_services, test_waits
from intake_ledger_suite.deployed import Deployed
from intake_ledger_testing.memory_durable_functions import FUNCTION, MemoryDurableFunctions

Calls = dict[str, int]


class Answers(Deployed):
    """A stack whose tables have these effects at each look, and that waits for nothing."""

    def __init__(self, effects: Iterator[Calls], delayed: int, clients: dict[str, Any]) -> None:
        aws = SimpleNamespace(is_local=False, client=clients.__getitem__)
        super().__init__(cast("Any", aws), "stack", {})
        self.out = dict.fromkeys(
            ("Effects", "PlainBucket", "EveryBucket", "CountedBucket", "CountedLedger", "WaitingBucket", "DurableTap"),
            "x",
        ) | {"LoopingBucket": "x", "DurableVersion": FUNCTION}
        self._effects, self._delayed = effects, delayed

    @override
    def put(self, pipeline: str, key: str, order: Any = None) -> str:
        return "v1"

    @override
    def remove(self, pipeline: str, key: str) -> str:
        return "marker"

    @override
    def calls(self, place: str) -> Calls:
        return next(self._effects)

    @override
    def depth(self, queue: str) -> tuple[int, int, int]:
        return 0, 0, self._delayed

    @override
    def pause(self, seconds: float) -> None:
        """Time passes for the condition, not for the test."""

    @override
    def until[T](self, condition: Callable[[], T], what: str, *, seconds: float = 300) -> T:
        for _ in range(3):
            if found := condition():
                return found
        raise AssertionError(f"not: {what}")


NO_EFFECT: Iterator[Calls] = repeat({})


def seen(check: Callable[..., None], *, effects: Iterator[Calls] = NO_EFFECT, delayed: int = 0, **clients: Any) -> str:
    """Run a check, and return its failure, or "passed"."""
    names = check.__code__.co_varnames[: check.__code__.co_argcount]
    given = {"evidence": lambda _: None} if "evidence" in names else {}
    try:
        check(checks=Answers(effects, delayed, {name.rstrip("_"): client for name, client in clients.items()}), **given)
    except (AssertionError, pytest.fail.Exception) as failure:
        return str(failure) or "failed"
    return "passed"


def head(status: int, **headers: str) -> Any:
    def refuse(**_: Any) -> None:
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        raise ClientError(cast("Any", {"Error": {"Code": str(status)}, "ResponseMetadata": metadata}), "HeadObject")

    return SimpleNamespace(head_object=refuse)


def test_a_marker_without_a_date_is_noticed() -> None:
    check = test_services.test_marker_has_a_date
    assert seen(check, s3=head(405, **{"last-modified": "today"})) == "passed"
    assert seen(check, s3=head(405)) != "passed"
    assert seen(check, s3=head(404, **{"last-modified": "today"})) != "passed"


@pytest.mark.parametrize(("second", "passes"), [("ConditionalCheckFailed", True), ("ValidationError", False)])
def test_an_update_that_is_refused_for_another_reason_is_noticed(second: str, passes: bool) -> None:
    answers = iter([{}, {"Error": {"Code": second}}])
    row = {"place": {"S": "partiql"}, "id": {"S": "row"}, "first": {"N": "1"}, "second": {"S": "two"}}
    dynamodb = SimpleNamespace(
        put_item=lambda **_: None,
        batch_execute_statement=lambda **_: {"Responses": [next(answers)]},
        get_item=lambda **_: {"Item": row},
    )
    found = seen(test_services.test_partiql_update_with_several_clauses_is_taken_once, dynamodb=dynamodb)
    assert (found == "passed") is passes


@pytest.mark.parametrize(
    "check",
    [
        test_faults.test_kill_of_a_worker_costs_only_time,
        test_pipelines.test_transactions_with_commits_have_one_effect_each,
    ],
)
def test_no_effect_and_two_effects_are_noticed(check: Callable[..., None]) -> None:
    assert seen(check, effects=repeat({"v1": 1})) == "passed"
    assert "has 2 effects of v1" in seen(check, effects=repeat({"v1": 2}))
    assert "has an effect of v1" in seen(check)


def test_waits_that_are_no_copies_or_that_end_early_are_noticed() -> None:
    calls, check = {"v1": 1, "v1#calls": 21}, test_waits.test_hops_of_a_wait_are_no_loop
    assert seen(check, effects=repeat(calls), delayed=1) == "passed"
    assert "the waits were no copies" in seen(check, effects=repeat(calls))
    assert "a wait of 20 hops has ended" in seen(check, effects=repeat({"v1#calls": 15}), delayed=1)


def test_a_loop_that_lambda_does_not_stop_is_noticed() -> None:
    def rounds(most: int) -> Iterator[Calls]:
        yield from repeat({"v1": 1, "v1#calls": 21}, 2)
        yield from repeat({"v": 1}, most)
        yield from repeat({})

    check = test_waits.test_hops_with_a_loop_in_the_same_function_go_on
    assert seen(check, effects=rounds(16), delayed=1) == "passed"
    assert "has not stopped a loop" in seen(check, effects=rounds(24), delayed=1)


@pytest.mark.parametrize(("units", "requests", "passes"), [(44, 11, True), (90, 11, False), (44, 30, False)])
def test_more_requests_than_the_page_has_are_noticed(units: int, requests: int, passes: bool) -> None:
    """20 new keys need 40 units and 40 requests, and up to ten starts one each."""

    def read(*, MetricName: str, **_: Any) -> Any:  # noqa: N803 - as boto3
        is_units = MetricName == "ConsumedWriteCapacityUnits"
        return {"Datapoints": [{"Sum": units} if is_units else {"SampleCount": requests}]}  # of each operation

    check = test_metrics.test_requests_for_a_new_key_are_those_of_the_page_of_costs
    found = seen(check, effects=repeat({"v1": 1}), cloudwatch=SimpleNamespace(get_metric_statistics=read))
    assert (found == "passed") is passes


class Functions(MemoryDurableFunctions):
    """A durable function whose executions end at once. `status` is their end."""

    exceptions = SimpleNamespace(ResourceNotFoundException=KeyError)

    def __init__(self, *, status: str = "SUCCEEDED", same: bool = True, error: str = "") -> None:
        super().__init__(clock=lambda: 0)
        self.status, self.same, self.error = status, same, error

    @override
    def invoke(self, **request: Any) -> dict[str, Any]:
        if not self.same:
            self.all.clear()
        answer = super().invoke(**request)
        one = self.all[request["DurableExecutionName"]]
        if one.status == "RUNNING":
            self.end(one.name, self.status, error=self.error)
        return answer

    def get_waiter(self, _name: str) -> Any:
        return SimpleNamespace(wait=lambda **_: None)

    def ignore(self, **_: Any) -> None:
        """Change the function."""

    update_function_configuration = publish_version = put_function_concurrency = ignore
    delete_function_concurrency = ignore


class Forgetful(Functions):
    @override
    def list_durable_executions_by_function(self, **_: Any) -> dict[str, Any]:
        return {"DurableExecutions": []}


class EachOnce(dict[str, int]):
    """The same number of calls for each order."""

    def __missing__(self, _order: str) -> int:
        return 1

    @override
    def get(self, order: str, _default: Any = None) -> int:
        return self[order]


def test_executions_that_differ_from_the_assumptions_are_noticed() -> None:
    once = repeat(EachOnce())
    starts, names = (
        test_durable.test_durable_starts_with_one_name_are_one_execution,
        test_durable.test_durable_names_find_their_execution,
    )
    assert seen(starts, lambda_=Functions()) == "passed"
    assert seen(starts, lambda_=Functions(same=False)) != "passed"
    assert seen(names, lambda_=Functions()) == "passed"
    assert seen(names, lambda_=Forgetful()) != "passed"
    assert "knows a start that waits" in seen(
        test_durable.test_durable_queue_has_starts_that_are_not_found, lambda_=Functions()
    )
    stop = test_durable.test_durable_stop_is_final
    stopped = Functions(status="STOPPED", error="Suite.Stopped")
    assert seen(stop, lambda_=stopped, effects=once) == "passed"
    assert seen(stop, lambda_=Functions(status="STOPPED"), effects=once) != "passed"
    assert seen(stop, lambda_=Functions(), effects=once) != "passed"
    retries = test_durable.test_durable_retries_follow_a_death_and_no_failure
    assert seen(retries, lambda_=Functions(), effects=once) != "passed"


@pytest.mark.parametrize(("more", "passes"), [({}, True), ({"input": "{}"}, False)])
def test_an_input_in_the_event_of_an_end_is_noticed(more: dict[str, str], passes: bool) -> None:
    functions = Functions()

    def receive(**_: Any) -> dict[str, Any]:
        [arn] = [one.arn for one in functions.all.values()]
        detail = {"durableExecutionArn": arn, "status": "SUCCEEDED"} | more
        return {"Messages": [{"Body": json.dumps({"detail": detail})}]}

    found = seen(
        test_durable.test_durable_event_of_an_end_has_no_input,
        lambda_=functions,
        sqs=SimpleNamespace(receive_message=receive),
    )
    assert (found == "passed") is passes
