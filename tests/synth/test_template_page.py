"""The page that a reviewer reads before anyone may deploy is the template."""

import re
from pathlib import Path

from cdk_intake_ledger import IntakePipeline
from tests.synth.build import new_stack, processor, template_of

PAGE = Path(__file__).parents[2] / "docs" / "template.md"


def test_every_resource_is_on_the_page() -> None:
    """Each once, with a reason, and nothing that is not there any more."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor())
    resources = template_of(stack)["Resources"].items()
    deployed = sorted((one["Type"], re.sub("[0-9A-F]{8}$", "", name)) for name, one in resources)
    rows = re.findall(r"^\| `(AWS::[\w:]+)` \| `(\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert sorted((type_, name) for type_, name, _ in rows) == deployed
