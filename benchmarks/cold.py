"""Measures the cold start, from a fresh interpreter to the end of the first event, and compares it with `import boto3`
and its two clients.

    python -m benchmarks.cold [--rounds N]

Each figure is the CPU time of a separate interpreter minus that of an empty one. The rows alternate. The first event is
one new object, and a stub answers its requests (`benchmarks.stub`). The runtime is imported from the layer of the
wheel, as in Lambda. "From sources" are the rows of a layer without byte code for this Python: a folder without write
access, so that each cold start compiles it. boto3 has byte code, as in Lambda.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from benchmarks.cpu import environment
from benchmarks.measure import side_by_side, table
from benchmarks.stub import stub
from hatch_build import build

from cdk_intake_ledger.functions.layer import archive
from intake_ledger_testing.events import s3_notification, sqs_event

ROOT = Path(__file__).parents[1]
FLOOR = "import boto3, clients of DynamoDB and S3"
CLIENTS = "import boto3; table, bucket = boto3.client('dynamodb'), boto3.client('s3')"
CALLS = """
row = {"pk": {"S": "1"}, "sk": {"S": "1"}}
table.put_item(TableName="table", Item=row)
bucket.get_object(Bucket="bucket", Key="key")["Body"].read()
table.delete_item(TableName="table", Key=row)
"""
HANDLER = "from intake_ledger.consumer import handler"
FIRST_EVENT = """
import json, os, sys
event = json.loads(os.environ["BENCHMARK_EVENT"])
class Context:
    def get_remaining_time_in_millis(self): return 130_000
assert handler(event, Context()) == {"batchItemFailures": []}
"""
END = "\nimport os\nos._exit(0)"
PACKAGES = 7
PROCESSOR = "def process(change): return change.key\n"
CODES = {
    FLOOR: CLIENTS,
    "the same, and their first three calls": CLIENTS + CALLS,
    "import of the consumer": HANDLER,
    "import of the consumer, first event": HANDLER + FIRST_EVENT,
}


def layer_sizes(directory: Path) -> dict[str, int]:
    """Return the bytes of the staged layer: all files, the library's files, and the archive that Lambda gets."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    ours = [path for path in files if "intake_ledger" in path.parts]
    return {
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "zipped": _zipped(directory, files),
        "of it ours": sum(path.stat().st_size for path in ours),
        "of it ours, zipped": _zipped(directory, ours),
    }


def _zipped(directory: Path, files: list[Path]) -> int:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in files:
            out.write(path, path.relative_to(directory))
    return archive.getbuffer().nbytes


def milliseconds(code: str, paths: str, piece: int = 0) -> float:  # noqa: ARG001 - one piece is all there is
    """Return the CPU time of an interpreter from its start to the end of the code. Its shutdown is not measured,
    because Lambda does not shut it down.
    """
    variables = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen([sys.executable, "-c", f"{code}{END}"], env=variables, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, code
    return (used.ru_utime + used.ru_stime) * 1000


def imports(paths: str) -> dict[str, float]:
    """Return the milliseconds that each top-level package's modules take in the consumer's import."""
    variables = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-X", "importtime", "-c", HANDLER]
    told = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stderr
    spent: Counter[str] = Counter()
    for line in told.splitlines()[1:]:
        own, _, name = line.removeprefix("import time:").split("|")
        spent[name.strip().partition(".")[0]] += int(own)
    packages = dict(spent.most_common(PACKAGES))
    packages["others"] = spent.total() - sum(packages.values())
    return {name: microseconds / 1000 for name, microseconds in packages.items()}


def measure(*, rounds: int = 15) -> dict[str, Any]:
    """Return milliseconds more than an empty interpreter, ratios to the floor, and the layer's sizes."""
    with tempfile.TemporaryDirectory() as name, stub() as endpoint, environment(endpoint):
        layer, sources = Path(name, "layer"), Path(name, "sources")
        build(ROOT, Path(name, "layer.zip"))
        zipfile.ZipFile(Path(name, "layer.zip")).extractall(layer)
        zipfile.ZipFile(BytesIO(archive())).extractall(sources)
        for directory in (layer, sources):
            (directory / "python" / "processor.py").write_text(PROCESSOR)
        bucket = os.environ["INTAKE_BUCKET_NAME"]
        event = sqs_event(s3_notification(bucket, "key", version_id="v", etag="e", size=11, time=datetime.now(UTC)))
        os.environ["BENCHMARK_EVENT"] = json.dumps(event)
        os.environ["INTAKE_PROCESSOR"] = "processor:process"

        def beyond_empty(code: str, directory: Path, piece: int) -> float:
            paths = str(directory / "python")
            return milliseconds(code, paths, piece) - milliseconds("pass", paths, piece)

        runs = {name: partial(beyond_empty, code, layer) for name, code in CODES.items()}
        runs |= {
            f"{name}, from sources": partial(beyond_empty, code, sources)
            for name, code in CODES.items()
            if HANDLER in code
        }
        found = side_by_side(runs, floor=FLOOR, rounds=rounds)
        (layer / "python" / "processor.py").unlink()
        return {
            "milliseconds": found,
            "imports": imports(str(layer / "python")),
            "layer": layer_sizes(layer),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    found = measure(rounds=parser.parse_args().rounds)
    print(table("Cold start, ms", found["milliseconds"]))
    print(table("Where the import of the consumer goes, ms", {"": found["imports"]}))
    print(table("Layer", {"": cast("dict[str, Any]", found["layer"])}))


if __name__ == "__main__":
    main()
