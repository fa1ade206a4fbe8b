"""Synthesises combinations with the installed CDK: `python -m tests.synth.combinations.synthesis <folder> [name ...]`.

It does not use pytest, which the environment of the oldest CDK does not have.
"""

import inspect
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from aws_cdk import App

from cdk_intake_ledger import IntakeConfigurationError
from tests.synth.combinations.combination import Combination
from tests.synth.combinations.rows import ALL

VALIDATION = "builtin_cloud_formation_validation"
QUICK: dict[str, Any] = {VALIDATION: False} if VALIDATION in inspect.signature(App.__init__).parameters else {}
"""CDK's validation of the template takes seconds for each app. The oldest CDK does not have it."""

REFUSAL = "refusal.json"
"""The file with the message of a refused app."""


def synthesise(item: Combination, folder: Path) -> None:
    """Write the cloud assembly of an app, or its refusal.

    Args:
        item: the app.
        folder: a new folder for this app.

    """
    folder.mkdir(parents=True)
    try:
        app = App(context=dict(item.context), outdir=str(folder), **QUICK)
        item.build(app)
        app.synth()
    except (IntakeConfigurationError, RuntimeError) as error:
        (folder / REFUSAL).write_text(json.dumps(str(error)))


def main(folder: Path, names: Collection[str]) -> None:
    """Synthesise some combinations, each in a folder with its name; all if there are no names."""
    for item in ALL:
        if not names or item.name in names:
            synthesise(item, folder / item.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
