"""The stack to copy: pictures arrive in one bucket, and their grey copies are in another one.

`npx aws-cdk@2.1148.1 deploy --app "python -m examples.pictures.stack"` deploys it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import IntakePipeline, Processor

if TYPE_CHECKING:
    from constructs import Construct

PREFIX = "grey/"


class PicturesStack(Stack):
    """A pipeline that also handles deletions, its output bucket, and the permission to write there."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self.copies = s3.Bucket(self, "Copies", enforce_ssl=True, removal_policy=RemovalPolicy.RETAIN)
        self.pictures = IntakePipeline(
            self,
            "Pictures",
            processor=Processor.from_asset(
                Path(__file__).parent / "processor",  # with a requirements.txt: synthesis installs Pillow
                entrypoint="pictures:process",
                environment={"OUTPUT_BUCKET": self.copies.bucket_name},
            ),
            deletes=True,
        )
        self.pictures.grant_output(self.copies, PREFIX)
        CfnOutput(self, "PicturesBucket", value=self.pictures.bucket.bucket_name)
        CfnOutput(self, "CopiesBucket", value=self.copies.bucket_name)


def main() -> None:
    app = App()
    PicturesStack(app, "Pictures")
    app.synth()


if __name__ == "__main__":
    main()
