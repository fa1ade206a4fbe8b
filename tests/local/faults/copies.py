"""Lines whose messages wait as delayed copies, also for a second: a large part of each queue seems to be in flight."""

from aws_cdk import aws_lambda as lambda_

from intake_ledger.protocol.settings import ConsumerSettings, environment_of

AS_COPIES = ("Killed", "Outage", "Grouped", "Executions", "Durable", "Messages", "Sets")


def wait_as_copies(line: str, function: lambda_.IFunction) -> None:
    """Let the messages of this line wait as copies, if it is one of `AS_COPIES`."""
    consumer = function.node.default_child
    if line not in AS_COPIES or not isinstance(consumer, lambda_.CfnFunction):
        return
    for name, text in environment_of(ConsumerSettings, in_flight_limit=1, least_copy_seconds=1).items():
        consumer.add_property_override(f"Environment.Variables.{name}", text)
