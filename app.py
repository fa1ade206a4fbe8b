"""The invoices of the README: `cdk deploy`, and upload CSV files with the columns `number` and `cents`."""

from pathlib import Path

from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from cdk_intake_ledger import IntakePipeline, Processor

CODE = str(Path(__file__).parent / "examples" / "invoices" / "processor")


class Billing(Stack):
    """A pipeline whose processor keeps a row with the sum of each file in the table `Totals`."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        key = dynamodb.Attribute(name="file", type=dynamodb.AttributeType.STRING)
        totals = dynamodb.Table(self, "Totals", partition_key=key)

        code = Processor.from_asset(CODE, entrypoint="invoices:process", environment={"TOTALS": totals.table_name})
        invoices = IntakePipeline(self, "Invoices", processor=code)
        totals.grant_write_data(invoices)  # grants to the processor's role

        CfnOutput(self, "InvoicesBucket", value=invoices.bucket.bucket_name)
        CfnOutput(self, "TotalsTable", value=totals.table_name)


if __name__ == "__main__":
    app = App()
    Billing(app, "Billing")
    app.synth()
