"""Checks that messages still reach the function of an intake: its sources, their mappings, and its rule."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from intake_ledger.delivery_check.deployed import NOT_POLLING, Deployed, own_mapping_problems
from intake_ledger.delivery_check.looked import Looked, describe_pause
from intake_ledger.protocol.settings import ConsumerSettings

_ON = ("ACTIVE", "CREATING", "ENABLED", "ENABLING", "UPDATING")
"""States of a stream that can be read, or soon will (API references of Kinesis and DynamoDB)."""


class SourceCheck:
    """Checks the sources of an intake. `make_client` makes a client by the name of its service."""

    def __init__(
        self, settings: ConsumerSettings, deployed: str, *, function: str, make_client: Callable[[str], Any]
    ) -> None:
        self._settings = settings
        self._make_client = make_client
        # A filter is accepted at synthesis, and workers take the messages in place of the function.
        self._deployed = replace(
            Deployed.read(deployed), function=function, filtered=True, enabled=not settings.has_workers
        )

    def look(self) -> Looked:
        """Check everything. A deleted resource or a missing permission is a result, never an error."""
        looked, deployed = Looked(whose="function"), self._deployed
        for name, arn in deployed.sources.items():
            looked.add(lambda name=name, arn=arn: self._source(name, arn), f"the {name}", name, deployed)  # type: ignore[misc] # of the loop
        if deployed.rule:
            looked.add(self._rule, "the EventBridge rule", "rule", deployed)
        if deployed.sources:
            looked.add(self._mappings, "the event source mappings", "function", deployed)
        return looked

    def _source(self, name: str, arn: str) -> Iterator[str]:
        match arn.split(":")[2]:
            case "kinesis":
                answer = self._make_client("kinesis").describe_stream_summary(StreamARN=arn)
                state = answer["StreamDescriptionSummary"]["StreamStatus"]
            case "dynamodb":
                answer = self._make_client("dynamodbstreams").describe_stream(StreamArn=arn, Limit=1)
                state = answer["StreamDescription"]["StreamStatus"]
            case _:
                names = ["QueueArn"]
                self._make_client("sqs").get_queue_attributes(QueueUrl=self._settings.queue_url, AttributeNames=names)
                return
        if state not in _ON:
            again = self._deployed.again(name)
            yield f"the {name} {arn} is {state}, so that new records do not reach the ledger: {again}"

    def _mappings(self) -> Iterator[str]:
        deployed = self._deployed
        answer = self._make_client("lambda").list_event_source_mappings(FunctionName=deployed.function)
        mappings = {mapping.get("EventSourceArn"): mapping for mapping in answer["EventSourceMappings"]}
        for name, arn in deployed.sources.items():
            what = f"the {name}'s event source mapping"
            if (mapping := mappings.get(arn)) is None:
                yield f"{what} to {deployed.function} is gone: {deployed.again('function')}"
                continue
            for problem in own_mapping_problems(deployed, mapping, what):
                yield (self._pause() if NOT_POLLING in problem else "") or problem

    def _pause(self) -> str:
        return describe_pause(self._make_client("dynamodb"), self._settings.table, self._settings.pipeline)

    def _rule(self) -> Iterator[str]:
        *bus, name = self._deployed.rule.partition(":rule/")[2].split("/")
        of_bus: Mapping[str, str] = {"EventBusName": bus[0]} if bus else {}
        rule = self._make_client("events").describe_rule(Name=name, **of_bus)
        if rule["State"] == "DISABLED":
            option = "".join(f" --event-bus-name {one}" for one in bus)
            yield f"the EventBridge rule {name} is disabled: run `aws events enable-rule --name {name}{option}`"
