"""The stack of examples/pictures, to copy."""

import json
from pathlib import Path

from examples.pictures.processor import pictures
from examples.pictures.stack import PREFIX, PicturesStack

from tests.synth.build import new_app, resources, statements, template_of, variables


def test_the_processor_may_write_its_outputs_and_has_pillow(tmp_path: Path) -> None:
    """The wheel is Lambda's, for Arm, on every machine."""
    app = new_app(outdir=str(tmp_path))
    stack = PicturesStack(app, "Pictures")
    template = template_of(stack)
    written = [one for one in statements(template) if "s3:PutObject" in one["Action"]]

    app.synth()

    assert pictures.PREFIX == PREFIX
    assert any(f"/{PREFIX}*" in json.dumps(one["Resource"]) for one in written)
    assert variables(template, "PicturesConsumer")["OUTPUT_BUCKET"] == "reference"
    [rules] = [
        bucket["Properties"]["LifecycleConfiguration"]["Rules"]
        for bucket in resources(template, "AWS::S3::Bucket", "Copies").values()
    ]
    assert any(rule["Prefix"] == PREFIX for rule in rules)
    assert list(tmp_path.rglob("PIL/_imaging.cpython-313-aarch64-linux-gnu.so"))
