"""The stack: a bus of the shop, an intake of its orders, and a stock."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from constructs import Construct

from cdk_intake_ledger import MessageIntake, MessageSource, Processor

STACK = "Orders"
PROCESSOR = Path(__file__).parent / "processor"


class OrdersStack(cdk.Stack):
    """Orders arrive on a bus of EventBridge. EventBridge may deliver an event twice, and the shop may send it twice."""

    def __init__(self, scope: Construct, id: str = STACK) -> None:
        super().__init__(scope, id)
        bus = events.EventBus(self, "Shop")
        stock = dynamodb.Table(
            self,
            "Stock",
            partition_key=dynamodb.Attribute(name="article", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        orders = MessageIntake(
            self,
            "Orders",
            source=MessageSource.event_bridge(
                events.EventPattern(source=["shop"], detail_type=["Order placed"]), event_bus=bus
            ),
            key="detail.article",
            identity="detail.order_id",
            processor=Processor.from_asset(
                PROCESSOR, entrypoint="stock:process", environment={"STOCK_TABLE": stock.table_name}
            ),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        stock.grant(orders, "dynamodb:GetItem", "dynamodb:UpdateItem")
        for name, value in {
            "Bus": bus.event_bus_name,
            "StockTable": stock.table_name,
            "DeadLetters": orders.dead_letter_queue.queue_url,
            "Function": orders.function.function_name,
        }.items():
            cdk.CfnOutput(self, f"Out{name}", value=value)


if __name__ == "__main__":
    app = cdk.App()
    OrdersStack(app)
    app.synth()
