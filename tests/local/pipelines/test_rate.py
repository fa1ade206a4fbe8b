"""A deployed pipeline with a rate of starts, and a downstream that counts them."""

import bisect
import sys
from pathlib import Path

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.pipelines.rate_stack import BURST, RATE, STACK
from tests.local.recorded import ROOT

pytestmark = pytest.mark.thorough
FILES, PAUSE_SECONDS = 30, 3


@pytest.mark.failure_mode("F510")
def test_the_downstream_counts_no_more_starts_than_the_rate(tmp_path: Path) -> None:
    """All environments are on one machine, so their clocks do not differ. Each file is started once."""
    with LocalAws(start_timeout=240) as aws:
        app = f"{sys.executable} -m tests.local.pipelines.rate_stack"
        outputs = aws.deploy(app, STACK, context={"code": str(tmp_path)}, cwd=ROOT)[STACK]
        for number in range(FILES):
            aws.client("s3").put_object(Bucket=outputs["Bucket"], Key=f"in/{number}", Body=b"1")

        def effects() -> list[dict[str, dict[str, str]]]:
            found: list[dict[str, dict[str, str]]] = aws.client("dynamodb").scan(TableName=outputs["EffectsTable"])[
                "Items"
            ]
            return found

        aws.wait_until(lambda: len({one["place"]["S"] for one in effects()}) == FILES, "all files start", timeout=120)
        items = effects()
    assert len(items) == FILES
    assert {one["attempt"]["S"] for one in items} == {"1"}
    times = sorted(int(one["id"]["S"].partition("-")[0]) for one in items)
    for window in (1, 4, 10):
        most = RATE * (window + PAUSE_SECONDS) + BURST
        assert all(bisect.bisect_left(times, at + window * 1_000) - place <= most for place, at in enumerate(times))
    assert times[-1] - times[0] >= ((FILES - BURST) / RATE - PAUSE_SECONDS) * 1_000
