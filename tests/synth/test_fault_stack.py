"""The stack of the fault runs."""

import pytest

from tests.local.faults.stack import FaultsStack
from tests.synth.build import new_app


@pytest.mark.thorough
def test_it_has_room_for_all_lines() -> None:
    """The CDK refuses more than 500 resources. `make thorough` deploys half of the lines."""
    app = new_app()
    FaultsStack(app, "Faults", downstream="http://127.0.0.1", proxy="http://127.0.0.1")
    app.synth()
