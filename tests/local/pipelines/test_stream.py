"""The stream that a deployed processor reads an object through."""

import io
import zipfile
from collections.abc import Callable

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import ObjectStream
from tests.local.processors.probing import probe
from tests.local.support import Pipeline


@pytest.mark.failure_mode("F125")
def test_the_local_pipeline_hands_out_what_a_deployed_function_gets(
    pipeline: Callable[[str, str], Pipeline],
) -> None:
    """The same class, which answers each way of reading alike; a seekable one locally would hide a mistake."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.csv", "id,text\n1,a\n2,b\n")
    second, seen = pipeline("Local", "Second"), []
    version = second.put("probe.zip", file.getvalue())

    local = LocalPipeline(lambda change: seen.append(probe(change)))
    local.put("probe.zip", file.getvalue())
    local.run()

    assert seen == [second.effect("probe.zip", version)["content"]]
    assert f"'type': '{ObjectStream.__module__}.ObjectStream', 'file': (True, False, False)" in seen[0]
