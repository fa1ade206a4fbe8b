"""Names that a release may not change in a minor version: logical IDs of kept resources, metrics, rows, codes.

`python -m tests.synth.released_names` writes the present ones into `released_names.json`.
"""

import dataclasses
import json
from pathlib import Path

from aws_cdk import Stack

from cdk_intake_ledger import FileSets, IntakePipeline, SetForm
from intake_ledger.contract import METRICS
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import FORMAT, STORED_STATUSES, Row
from intake_ledger.protocol.settings import PIPELINE_TAG
from intake_ledger_cli.show import json_output
from tests.synth.build import new_app, new_stack, processor, template_of
from tests.synth.message_stack import message_intakes

FILE = Path(__file__).with_name("released_names.json")
KEPT = (
    "AWS::S3::Bucket",
    "AWS::DynamoDB::Table",
    "AWS::SQS::Queue",
    "AWS::Logs::LogGroup",
    "AWS::Lambda::Function",
    "AWS::Lambda::EventSourceMapping",
)
"""Resources with data, messages or a history, and those whose names are in other systems."""
Names = dict[str, list[str]]


def present() -> Names:
    """The names of the present code, by subject."""
    stacks = (_files(), message_intakes(new_app()))
    resources = [item for stack in stacks for item in template_of(stack)["Resources"].items()]
    names = {
        **{type_: [name for name, one in resources if one["Type"] == type_] for type_ in KEPT},
        "metrics": [*METRICS],
        "attributes of a row": [field.name for field in dataclasses.fields(Row)],
        "statuses of a row": [status.value for status in STORED_STATUSES],
        "reason codes": [code.value for code in ReasonCode],
        "formats": [f"row {FORMAT}", f"json {json_output.VERSION}"],
        "tags": [PIPELINE_TAG],
    }
    return {subject: sorted(found) for subject, found in names.items()}


def released() -> Names:
    """The names in the file. Nothing was released if there is no file."""
    names: Names = json.loads(FILE.read_text()) if FILE.exists() else {}
    return names


def removed(before: Names, after: Names) -> list[str]:
    """Names that are in `before` only, with their subject."""
    return [
        f"{subject}: {name}" for subject in before for name in before[subject] if name not in after.get(subject, ())
    ]


def _files() -> Stack:
    stack = new_stack("Files")
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.manifest("loads/*/manifest.json"), processor=processor())
    return stack


if __name__ == "__main__":
    FILE.write_text(json.dumps(present(), indent=1) + "\n")
