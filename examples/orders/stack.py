"""The stack: a bus of the shop, an intake of its orders, and a stock.

The CDK context `withoutLedger` puts a hand-written consumer in the place of the intake.
"""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct
from examples.by_hand import ByHand

from cdk_intake_ledger import MessageIntake, MessageSource, Processor

STACK = "Orders"
PROCESSOR, FUNCTIONS = (Path(__file__).parent / name for name in ("processor", "functions"))
PLACED = events.EventPattern(source=["shop"], detail_type=["Order placed"])


class OrdersStack(cdk.Stack):
    """Orders arrive on a bus of EventBridge. EventBridge may deliver an event twice, and the shop may send it twice."""

    def __init__(self, scope: Construct, id: str = STACK, *, with_ledger: bool = True) -> None:
        super().__init__(scope, id)
        self.bus = events.EventBus(self, "Shop")
        self.stock = dynamodb.Table(
            self,
            "Stock",
            partition_key=dynamodb.Attribute(name="article", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        orders = self._intake() if with_ledger else self._by_hand()
        self.stock.grant(orders.function, "dynamodb:GetItem", "dynamodb:UpdateItem")
        for name, value in {
            "Bus": self.bus.event_bus_name,
            "StockTable": self.stock.table_name,
            "DeadLetters": orders.dead_letter_queue.queue_url,
            "Function": orders.function.function_name,
        }.items():
            cdk.CfnOutput(self, f"Out{name}", value=value)

    def _intake(self) -> MessageIntake:
        return MessageIntake(
            self,
            "Orders",
            source=MessageSource.event_bridge(PLACED, event_bus=self.bus),
            key="detail.article",
            # A cancellation would name the same order.
            identity="join(' ', [\"detail-type\", detail.order_id])",
            processor=Processor.from_asset(
                PROCESSOR, entrypoint="stock:process", environment={"STOCK_TABLE": self.stock.table_name}
            ),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )

    def _by_hand(self) -> ByHand:
        orders = ByHand(
            self,
            "ByHand",
            code=FUNCTIONS,
            handler="by_hand.handler",
            environment={"STOCK_TABLE": self.stock.table_name},
            timeout=cdk.Duration.seconds(3),
            max_receive_count=3,
        )
        events.Rule(self, "Placed", event_bus=self.bus, event_pattern=PLACED, targets=[targets.SqsQueue(orders.queue)])
        return orders


if __name__ == "__main__":
    app = cdk.App()
    OrdersStack(app, with_ledger=app.node.try_get_context("withoutLedger") is None)
    app.synth()
