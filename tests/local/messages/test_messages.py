"""Keyed messages of all five sources, deployed: each effect once, with duplicates, failures and a redrive."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from examples.orders import run as orders
from examples.orders import stack as orders_stack

from cdk_intake_ledger.testing import LocalAws
from tests.local.conftest import Outputs, Typed
from tests.local.messages.message_stack import STACK
from tests.local.messages.stream_records import of_kinesis, of_table
from tests.local.support import TIMEOUT
from tests.unit.messages.stream_mapping import StreamMapping

SOURCES = {"Sqs": "sqs", "Fifo": "fifo", "Kinesis": "kinesis", "DynamoDb": "dynamodb", "EventBridge": "eventbridge"}
STREAMS = ("Kinesis", "DynamoDb")

ORDERS = [
    ("o-1", "e-1", "book"),
    ("o-1", "e-1", "book"),
    ("o-1", "e-2", "book"),
    ("o-2", "e-3", "fail once"),
    ("o-3", "e-4", "reject"),
    ("o-1", "e-1", "book"),
]
"""Key, identity and the order to the processor: copies, two identities of a key, a failure and a rejection."""
AT_FIRST = {("o-1", "e-1", 1): 1, ("o-1", "e-2", 1): 1, ("o-2", "e-3", 2): 1}
"""Effects before the redrive: key, identity and attempt, with the number of calls."""


class Intakes:
    """The deployed intakes and their sources."""

    def __init__(self, aws: LocalAws, outputs: dict[str, str]) -> None:
        self.aws = aws
        self.out = {name.removeprefix("Out"): value for name, value in outputs.items()}
        self._number = count()
        for order in ORDERS:
            for name in SOURCES:
                self.send(name, *order)

    def send(self, name: str, key: str, identity: str, do: str) -> None:
        order = {"order_id": key, "event_id": identity, "do": do}
        body, number = json.dumps(order), str(next(self._number))
        match name:
            case "Sqs":
                self.aws.client("sqs").send_message(QueueUrl=self.out["SqsQueue"], MessageBody=body)
            case "Fifo":
                self.aws.client("sqs").send_message(
                    QueueUrl=self.out["FifoQueue"],
                    MessageBody=body,
                    MessageGroupId=key,
                    MessageDeduplicationId=number,
                )
            case "Kinesis":
                self.aws.client("kinesis").put_record(
                    StreamName=self.out["Stream"], PartitionKey=key, Data=body.encode()
                )
            case "DynamoDb":
                # An unchanged item would make no record.
                item = {name: {"S": value} for name, value in {**order, "number": number}.items()}
                self.aws.client("dynamodb").put_item(TableName=self.out["Changes"], Item=item)
            case "EventBridge":
                entry = {"Source": "shop", "DetailType": "Order", "Detail": body, "EventBusName": self.out["Bus"]}
                self.aws.client("events").put_events(Entries=[entry])

    def effects(self, name: str) -> "Counter[tuple[str, str, int]]":
        found: Counter[tuple[str, str, int]] = Counter()
        for key in ("o-1", "o-2", "o-3"):
            answer = self.aws.client("dynamodb").query(
                TableName=self.out["Effects"],
                KeyConditionExpression="place = :place",
                ExpressionAttributeValues={":place": {"S": f"{SOURCES[name]}/{key}"}},
                ConsistentRead=True,
            )
            found.update((key, item["identity"]["S"], int(item["attempt"]["N"])) for item in answer["Items"])
        return found

    def dead_letters(self, name: str) -> list[dict[str, Any]]:
        """The dead-letter messages, which stay. Records that this test reads from a stream have not quite the form of
        Lambda's, so those about the rejected message are other contents, each with a letter of its own.
        """
        answer = self.aws.client("sqs").receive_message(
            QueueUrl=self.out[f"{name}DeadLetters"],
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            VisibilityTimeout=0,
        )
        return [
            one
            for one in answer.get("Messages", [])
            if one["MessageAttributes"]["reason_code"]["StringValue"] != "identity_rejected"
        ]

    def repair(self, name: str) -> None:
        self.aws.client("dynamodb").put_item(
            TableName=self.out["Effects"], Item={"place": {"S": f"open/{SOURCES[name]}"}, "id": {"S": "-"}}
        )

    def read_stream(self, name: str) -> None:
        """Read the whole stream again as Lambda does. The local AWS goes on after a failed record, and Lambda stays."""
        mapping = StreamMapping(lambda records: self._invoke(name, records))
        read = (
            of_kinesis(self.aws, self.out["Stream"]) if name == "Kinesis" else of_table(self.aws, self.out["Changes"])
        )
        [records] = read.values()
        mapping.run(records, most=20)

    def tick(self, name: str) -> list[str]:
        """Problems of the delivery, as the schedule's call finds them."""
        problems: list[str] = self._call(name, {"checkRows": True, "everySeconds": 21_600})["delivery"]
        return problems

    def _invoke(self, name: str, records: Any) -> list[str]:
        response = self._call(name, {"Records": list(records)})
        return [one["itemIdentifier"] for one in response["batchItemFailures"]]

    def _call(self, name: str, event: dict[str, Any]) -> Any:
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.out[f"{name}Function"], Payload=json.dumps(event).encode()
        )
        return json.load(answer["Payload"])


@pytest.fixture(scope="module")
def message_stacks(outputs: Outputs) -> Outputs:
    return outputs


@pytest.fixture(scope="module")
def intakes(aws: LocalAws, message_stacks: Outputs) -> Intakes:
    """The intakes, to whose sources all messages were sent."""
    return Intakes(aws, message_stacks[STACK])


@pytest.fixture
def types(typed: Typed) -> Callable[..., Any]:
    """Runs a command for an intake, and reads its document."""
    return lambda intake, *arguments: json.loads(typed(*arguments, "--stack", STACK, "--pipeline", intake, "--json"))


@pytest.mark.parametrize("name", SOURCES)
def test_each_effect_happens_once_and_a_rejected_message_after_its_redrive(
    intakes: Intakes, types: Callable[..., Any], name: str
) -> None:
    """Copies have no effect, a failure is repeated, and the rejected message waits with its reason for an operator."""
    aws = intakes.aws
    [letter] = aws.wait_until(lambda: intakes.dead_letters(name), f"{name} rejects a message", timeout=TIMEOUT)
    assert letter["MessageAttributes"]["reason"]["StringValue"] == "no amount in o-3"
    assert letter["MessageAttributes"]["reason_code"]["StringValue"] == "unprocessable"
    if name in STREAMS:
        intakes.read_stream(name)
    aws.wait_until(lambda: sum(intakes.effects(name).values()) >= 3, f"{name} has its effects", timeout=TIMEOUT)
    assert intakes.effects(name) == AT_FIRST

    [row] = types(name, "list", "--status", "REJECTED")["rows"]
    assert (row["key"], row["version_id"], row["reason"]) == ("o-3", "e-4", "no amount in o-3")
    assert types(name, "status")["messageSource"] == SOURCES[name]
    assert len(types(name, "inspect", "o-1")["states"]) == 2

    intakes.repair(name)
    assert types(name, "retry", "o-3", "--yes")["redriven"]["moved"] == 1
    aws.wait_until(lambda: ("o-3", "e-4", 1) in intakes.effects(name), f"{name} redrives", timeout=TIMEOUT)
    assert intakes.effects(name) == AT_FIRST | {("o-3", "e-4", 1): 1}
    assert intakes.dead_letters(name) == []
    if name in STREAMS:
        # A replay of the stream has no effect.
        intakes.read_stream(name)
        assert intakes.effects(name) == AT_FIRST | {("o-3", "e-4", 1): 1}


@pytest.mark.failure_mode("F693")
@pytest.mark.parametrize("name", SOURCES)
def test_a_tick_reports_what_is_broken_in_the_delivery(intakes: Intakes, name: str) -> None:
    """The function finds its sources and mappings by the settings of its template, and with its own permissions."""
    assert intakes.tick(name) == []
    lambda_ = intakes.aws.client("lambda")
    found = lambda_.list_event_source_mappings(FunctionName=intakes.out[f"{name}Function"])["EventSourceMappings"]
    assert len(found) == (2 if name in STREAMS else 1)
    for mapping in found:
        source = "queue" if ":sqs:" in mapping["EventSourceArn"] else "stream"
        lambda_.update_event_source_mapping(UUID=mapping["UUID"], FunctionResponseTypes=[])
        [problem] = intakes.tick(name)
        lambda_.update_event_source_mapping(UUID=mapping["UUID"], FunctionResponseTypes=["ReportBatchItemFailures"])
        assert problem.startswith(f"the {source}'s event source mapping does not report failures by item")
        assert problem.endswith(f"run `cdk deploy {STACK} --revert-drift`")
    assert intakes.tick(name) == []


@pytest.mark.failure_mode("F693")
def test_a_tick_reports_a_disabled_rule(intakes: Intakes) -> None:
    events, bus = intakes.aws.client("events"), intakes.out["Bus"]
    [rule] = events.list_rules(EventBusName=bus)["Rules"]
    events.disable_rule(Name=rule["Name"], EventBusName=bus)
    [problem] = intakes.tick("EventBridge")
    events.enable_rule(Name=rule["Name"], EventBusName=bus)
    assert problem.startswith(f"the EventBridge rule {rule['Name']} is disabled")


def test_the_example_books_each_order_once(aws: LocalAws, message_stacks: Outputs) -> None:
    """Orders that arrive twice change the stock once, and an order that is too large has a reason."""
    outcome = orders.run(aws, message_stacks[orders_stack.STACK])
    assert outcome.right, outcome
