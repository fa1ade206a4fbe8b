"""Each check of `intake-ledger acceptance` fails when its assumption does not hold. AWS is a few answers here."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from tests.inside.acceptance import CHECKS, Check, Outcome, Result, World, outcome_of
from tests.inside.kit import FUNCTION, MemoryDurableFunctions

PIPELINE = SimpleNamespace(bucket="b", queue_url="q", dead_letter_url="d", consumer_function="f", table="t")

NO_EFFECT: Iterator[dict[str, int]] = repeat({})
NO_WAIT: Iterator[int] = repeat(0)


def named(name: str) -> Check:
    """The check, with all that a local AWS excludes."""
    [found] = [one for one in CHECKS if one.name == name]
    return found


class Here(World):
    """A world that waits for nothing. `effects` are the answers to each question about effects."""

    effects: Iterator[dict[str, int]]
    waits: Iterator[int]

    def pipeline(self, name: str) -> Any:
        return PIPELINE

    def put(self, pipeline: str, key: str, order: Any = None) -> str:
        return "v1"

    def calls(self, place: str) -> dict[str, int]:
        return next(type(self).effects)

    def delayed(self, queue_url: str) -> int:
        return next(type(self).waits)

    def pause(self, seconds: float) -> None:
        """Time passes for the condition, not for the test."""

    def until(self, condition: Callable[[], Any], what: str, *, seconds: float = 300) -> Any:
        for _ in range(3):
            if found := condition():
                return found
        return super().until(condition, what, seconds=0)


def seen(
    name: str,
    *,
    effects: Iterator[dict[str, int]] = NO_EFFECT,
    waits: Iterator[int] = NO_WAIT,
    **clients: Any,
) -> Outcome:
    """Run a check on a world with these clients, as on AWS."""
    kind = type("Here", (Here,), {"effects": effects, "waits": waits})
    aws = cast("Any", SimpleNamespace(**clients))
    outputs = {"EffectsTable": "effects", "DurableVersion": FUNCTION, "DurableTapUrl": "q"}
    world = kind(aws=aws, stack="s", outputs=outputs, local=False)
    return outcome_of(named(name), cast("World", world), clock=count().__next__)


def head(status: int, **headers: str) -> Any:
    def refuse(**_: Any) -> None:
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        raise ClientError(cast("Any", {"Error": {"Code": str(status)}, "ResponseMetadata": metadata}), "HeadObject")

    return SimpleNamespace(delete_object=lambda **_: {"VersionId": "m"}, head_object=refuse)


def test_a_marker_without_a_date_is_noticed() -> None:
    assert seen("marker-date", s3=head(405, **{"last-modified": "today"})).result is Result.PASSED
    assert seen("marker-date", s3=head(405)).detail == "405 with Last-Modified: None"
    assert seen("marker-date", s3=head(404, **{"last-modified": "today"})).result is Result.FAILED


def partiql(*answers: dict[str, Any]) -> Any:
    left = iter(answers)
    row = {"place": {"S": "partiql"}, "id": {"S": "row"}, "first": {"N": "1"}, "second": {"S": "two"}}
    return SimpleNamespace(
        put_item=lambda **_: None,
        batch_execute_statement=lambda **_: {"Responses": [next(left)]},
        get_item=lambda **_: {"Item": row},
    )


def test_an_update_that_is_taken_twice_or_never_is_noticed() -> None:
    refusal = {"Error": {"Code": "ConditionalCheckFailed"}}
    assert seen("partiql-update", dynamodb=partiql({}, refusal)).result is Result.PASSED
    assert seen("partiql-update", dynamodb=partiql({}, {})).result is Result.FAILED
    invalid = {"Error": {"Code": "ValidationError"}}
    assert seen("partiql-update", dynamodb=partiql(invalid, invalid)).result is Result.FAILED


@pytest.mark.parametrize("name", ["own-key-eventbridge", "machine"])
def test_no_effect_and_two_effects_are_noticed(name: str) -> None:
    assert seen(name, effects=repeat({"v1": 1})).result is Result.PASSED
    assert "and not one" in seen(name, effects=repeat({"v1": 2})).detail
    assert "has an effect of v1" in seen(name).detail


def test_waits_that_are_no_copies_are_noticed() -> None:
    """So is a wait that Lambda has stopped."""
    calls = {"v1": 1, "v1#calls": 21}
    assert seen("hops", effects=repeat(calls), waits=repeat(1)).result is Result.PASSED
    assert "the waits were no copies" in seen("hops", effects=repeat(calls)).detail
    assert "a wait of 20 hops has ended" in seen("hops", effects=repeat({"v1#calls": 15}), waits=repeat(1)).detail


def test_a_loop_that_lambda_does_not_stop_is_noticed() -> None:
    def rounds(most: int) -> Iterator[dict[str, int]]:
        yield from repeat({"v1": 1, "v1#calls": 21}, 2)
        yield from repeat({"v": 1}, most)
        yield from repeat({})

    assert "ended after 16 rounds" in seen("hops-with-loop", effects=rounds(16), waits=repeat(1)).detail
    assert "has not stopped a loop" in seen("hops-with-loop", effects=rounds(24), waits=repeat(1)).detail


@pytest.mark.parametrize(("units", "requests", "result"), [(44, 11, "passed"), (90, 11, "failed"), (44, 30, "failed")])
def test_more_requests_than_the_page_has_are_noticed(units: int, requests: int, result: str) -> None:
    """20 new keys need 40 units and 40 requests, and up to ten starts one each."""

    def read(*, MetricName: str, **_: Any) -> Any:  # noqa: N803 - as boto3
        if MetricName == "ConsumedWriteCapacityUnits":
            return {"Datapoints": [{"Sum": units}]}
        return {"Datapoints": [{"SampleCount": requests}]}  # of each of four operations

    cloudwatch = SimpleNamespace(get_metric_statistics=read)
    assert seen("requests", effects=repeat({"v1": 1}), cloudwatch=cloudwatch).result == result


def test_a_check_that_excludes_a_local_aws_asks_nothing_there() -> None:
    """Without clients, each request would be an error."""
    for one in CHECKS:
        if one.only_aws:
            world = World(aws=cast("Any", None), stack="s", outputs={}, local=True)
            assert outcome_of(replace(one), world, clock=count().__next__).result is Result.NOT_HERE


class Functions(MemoryDurableFunctions):
    """A durable function whose executions end at once. `status` is their end."""

    def __init__(self, *, status: str = "SUCCEEDED", same: bool = True, error: str = "") -> None:
        super().__init__(clock=lambda: 0)
        self.status, self.same, self.error = status, same, error

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
    def list_durable_executions_by_function(self, **_: Any) -> dict[str, Any]:
        return {"DurableExecutions": []}


def test_a_second_execution_of_a_start_is_noticed() -> None:
    assert seen("durable-starts", functions=Functions()).result is Result.PASSED
    assert "the same start was answered with" in seen("durable-starts", functions=Functions(same=False)).detail


def test_an_execution_that_no_list_has_is_noticed() -> None:
    assert seen("durable-names", functions=Functions()).result is Result.PASSED
    assert "before another version, no list has" in seen("durable-names", functions=Forgetful()).detail


def test_a_start_that_is_known_while_it_waits_is_noticed() -> None:
    assert "knows a start that waits" in seen("durable-queue", functions=Functions()).detail


class EachOnce(dict[str, int]):
    """The same number of calls for each order."""

    def __missing__(self, _order: str) -> int:
        return 1

    def get(self, order: str, _default: Any = None) -> int:
        return self[order]


def test_a_stop_and_a_death_are_judged_by_the_invocations() -> None:
    once = repeat(EachOnce())
    stopped = Functions(status="STOPPED", error="Acceptance.Stopped")
    assert seen("durable-stop", functions=stopped, effects=once).result is Result.PASSED
    without = seen("durable-stop", functions=Functions(status="STOPPED"), effects=once)
    assert "the error of the stopped execution is None" in without.detail
    assert "the stopped execution is SUCCEEDED" in seen("durable-stop", functions=Functions(), effects=once).detail
    assert "1 invocations. The error" in seen("durable-retries", functions=Functions(), effects=once).detail


@pytest.mark.parametrize(("more", "result"), [({}, Result.PASSED), ({"input": "{}"}, Result.FAILED)])
def test_an_input_in_the_event_of_an_end_is_noticed(more: dict[str, str], result: Result) -> None:
    functions = Functions()

    def receive(**_: Any) -> dict[str, Any]:
        [arn] = [one.arn for one in functions.all.values()]
        return {
            "Messages": [{"Body": json.dumps({"detail": {"durableExecutionArn": arn, "status": "SUCCEEDED"} | more})}]
        }

    assert seen("durable-event", functions=functions, sqs=SimpleNamespace(receive_message=receive)).result is result
