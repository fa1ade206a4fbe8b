"""The stack to copy: images arrive in one bucket, their WebP is in another one, and a table has the pages.

`npx aws-cdk@2.1148.1 deploy --app "python -m examples.content.stack"` deploys it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import IntakePipeline, Processor

if TYPE_CHECKING:
    from constructs import Construct

UPLOADS, PREFIX = "images/", "web/"


class ContentStack(Stack):
    """A pipeline that also handles removals, the bucket of the WebP, and the table of the pages."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self.web = s3.Bucket(self, "Web", enforce_ssl=True, removal_policy=RemovalPolicy.RETAIN)
        self.pages = dynamodb.TableV2(
            self, "Pages", partition_key=dynamodb.Attribute(name="page", type=dynamodb.AttributeType.STRING)
        )
        self.images = IntakePipeline(
            self,
            "Images",
            processor=Processor.from_asset(
                Path(__file__).parent / "processor",  # with a requirements.txt: synthesis installs Pillow
                entrypoint="content:process",
                environment={"OUTPUT_BUCKET": self.web.bucket_name, "CONTENT_TABLE": self.pages.table_name},
            ),
            filters=[s3.NotificationKeyFilter(prefix=UPLOADS)],
            deletes=True,
        )
        self.images.grant_output(self.web, PREFIX)
        self.pages.grant_read_write_data(self.images)
        CfnOutput(self, "ImagesBucket", value=self.images.bucket.bucket_name)
        CfnOutput(self, "PagesTable", value=self.pages.table_name)


def main() -> None:
    app = App()
    ContentStack(app, "Content")
    app.synth()


if __name__ == "__main__":
    main()
