"""`make bench` and the measured tables of docs/cost.md, without measuring: each benchmark's own code puts its figures
together, so that they have their true shape, and only what takes time is replaced.
"""

import functools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import aws_lambda_powertools
import botocore
import pytest
import urllib3
from benchmarks import __main__ as bench
from benchmarks import (
    audit_growth,
    audit_scale,
    audit_shards,
    cold,
    cost,
    counted,
    cpu,
    hotkey,
    idempotency,
    measured,
    memory,
    profile,
    read,
    synth,
    throughput,
    throughput_requests,
    throughput_stack,
)
from benchmarks.measure import Figure, machine
from benchmarks.stub import stub
from examples.demo.stack import stage_code

import intake_ledger
from tests.idempotency import scenarios
from tests.synth.build import new_app, resources, template_of

PLACE = r"<!-- measured: \w+ -->\n.*?<!-- end -->"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cost.md").read_text()
HALF = {"median": 0.5, "least": 0.5, "most": 0.5}


def ask_once_for_each(event: dict[str, Any], _context: object) -> None:
    """A handler: one request for each message."""
    import boto3  # noqa: PLC0415 - with the variables of the benchmark

    client = boto3.client("dynamodb")
    for _ in event["Records"]:
        client.delete_item(TableName="table", Key={"pk": {"S": "1"}})


@pytest.fixture(scope="module")
def requests() -> dict[str, dict[str, float]]:
    """Requests of a handler in this process, from `benchmarks.throughput_requests`."""
    with stub() as endpoint, cpu.environment(endpoint):
        events: list[dict[str, list[dict[str, str]]]] = [{"Records": [{}] * 3}] * 4
        return throughput_requests.profile(f"{__name__}.ask_once_for_each", os.getpid(), events)


@pytest.fixture(scope="module")
def figures(requests: dict[str, dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Stored figures of each benchmark, by name."""
    turn = throughput.Turn(clock=20, emulator=10, functions=5)
    slower = throughput.Turn(clock=40, emulator=15, functions=10)
    rows = throughput.figures({throughput.FLOOR: [turn, turn], "ledger": [slower, turn]})
    load = mock.create_autospec(throughput.Load, instance=True, sides={"ledger": None})
    load.requests.return_value = requests
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hotkey, "OVERWRITES", (10,))
        patched.setattr(memory, "peak", lambda *_: 50.0)
        patched.setattr(cpu, "PIECE", 20)
        patched.setattr(idempotency, "PIECE", 20)
        patched.setattr(cpu, "cpu_ms", lambda *_: 2.0)
        patched.setattr(read, "cpu_ms", lambda *_: 2.0)
        patched.setattr(scenarios, "SCENARIOS", scenarios.SCENARIOS[:1])
        patched.setattr(cold, "milliseconds", lambda code, *_: 10.0 if code == "pass" else 100.0)
        patched.setattr(cold, "imports", lambda _: {"intake_ledger": 20.0, "others": 3.0})
        patched.setattr(synth, "synthesised", lambda *_, **__: Counter({"AWS::SQS::Queue": 2}))
        patched.setattr(synth, "said", lambda *_, **__: [7.0, 6.0, 0.5])
        patched.setattr(synth, "calls", lambda *_: 100)
        patched.setattr(audit_growth, "SIZES", {1_000: 1})
        patched.setattr(audit_growth, "alone", audit_growth.once)
        patched.setattr(audit_scale, "SAMPLE", 1_000)
        patched.setattr(audit_scale, "JOINED", 1_000)
        return {
            "counted": counted.measure(),
            "cost": cost.measure(),
            "hotkey": hotkey.measure(),
            "memory": memory.measure(),
            "cpu": cpu.measure(changes=cpu.PIECE, rounds=1),
            "read": read.measure(changes=cpu.PIECE, rounds=1),
            "idempotency": idempotency.measure(rounds=1, pieces=1),
            "profile": profile.measure(changes=cpu.PIECE),
            "cold": cold.measure(rounds=1),
            "synth": synth.measure(rounds=1),
            "throughput": {"rows": rows, "requests": throughput.in_turn(load, 2)},
            "audit_growth": audit_growth.measure(),
            "audit_shards": audit_shards.measure(sizes=((2_000, 1_000),)),
            "audit_scale": audit_scale.measure(),
        }


@pytest.fixture(scope="module")
def stored_figures(figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """build/bench.json."""
    about = {
        "at": "2026-11-21T10:20:30+00:00",
        "seconds": 12.3,
        "load": 1.5,
        "options": {"rounds": 3},
        "machine": machine(),
    }
    stored = {name: about | {"figures": values} for name, values in figures.items()}
    return dict(json.loads(json.dumps(stored)))


@pytest.mark.thorough
def test_every_benchmark_prints_what_it_stores(stored_figures: dict[str, Any]) -> None:
    """A title, and one line for each row."""
    assert stored_figures.keys() == bench.SHOWN.keys()
    for name, show in bench.SHOWN.items():
        lines = show(stored_figures[name]["figures"]).splitlines()
        assert len(lines) > 2, name
        for row in (
            stored_figures[name]["figures"] if name not in ("cold", "idempotency", "synth", "throughput") else ()
        ):
            assert any(line.startswith(row) for line in lines), (name, row)


@pytest.mark.thorough
def test_a_pipeline_asks_little_more_of_the_cdk_than_its_resources_by_hand(tmp_path: Path) -> None:
    """Each question and setting is a call of another process. The checks may need as many as the resources."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "processor.py").write_text(synth.PROCESSOR)
    (tmp_path / "layer").mkdir()
    by_hand, ours = (synth.calls(*side) for side in synth.sides(tmp_path).values())
    assert ours <= 2 * by_hand


def test_the_parts_of_the_profile_are_there() -> None:
    """Each is an installed file or folder. A renamed one would not be counted."""
    roots = {
        Path(str(module.__file__)).parents[1] for module in (aws_lambda_powertools, botocore, intake_ledger, urllib3)
    }
    marks = [mark for marks in profile.PARTS.values() for mark in marks]
    assert [mark for mark in marks if not any((root / mark.strip("/")).exists() for root in roots)] == []


def file_of(part: str) -> str:
    """A file of a part of the profile."""
    return profile.PARTS[part][0].strip("/")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["intake_ledger/any.py", file_of("rows and statements")], "rows and statements"),
        ([file_of("rows and statements"), "botocore/client.py", "botocore/signers.py", "hmac.py"], "boto: signing"),
        (["botocore/validate.py", "botocore/serialize.py", "json/encoder.py"], "boto: writing the body"),
        ([file_of("log lines"), "json/encoder.py"], "log lines"),
        ([file_of("log lines"), "aws_lambda_powertools/metrics/base.py"], "Powertools' metrics"),
    ],
)
def test_a_part_has_what_it_calls_but_for_the_parts_above_it(files: list[str], expected: str) -> None:
    """The work of a general library belongs to its caller."""
    parts: list[str] = []

    def look() -> None:
        parts.append(profile.part(sys._getframe()))

    call = look
    for file in reversed(files):
        code = compile("call()", f"/site-packages/{file}", "exec")
        call = functools.partial(exec, code, {"call": call})
    call()
    assert parts == [expected]


def test_every_measured_table_has_its_place_in_the_page(stored_figures: dict[str, Any]) -> None:
    """`python -m benchmarks.measured` writes the figures into their tables and changes nothing else."""
    tables = measured.tables(stored_figures)
    pages = [page.read_text() for page in measured.PAGES]
    assert {name for page in pages for name in measured.places(page)} == tables.keys()
    for page in pages:
        written = measured.written(page, tables)
        assert [name for name in measured.places(page) if tables[name] not in written] == []
        assert re.sub(PLACE, "", written, flags=re.DOTALL) == re.sub(PLACE, "", page, flags=re.DOTALL)


def test_the_pages_show_the_rows_that_are_measured(stored_figures: dict[str, Any]) -> None:
    """If a row or a column was added, renamed or removed, a person has to write the table again."""
    pages = "".join(page.read_text() for page in measured.PAGES)
    shown = dict(re.findall(r"<!-- measured: (\w+) -->\n(.*?)\n<!-- end -->", pages, flags=re.DOTALL))
    for name in ("cpu", "read", "powertools", "cold", "synth"):
        measured_table = measured.tables(stored_figures)[name]
        assert _names(shown[name]) == _names(measured_table), name
    for name in ("hotkey", "memory", "audit", "throughput", "runs"):
        head = next(line for line in measured.tables(stored_figures)[name].splitlines() if line.startswith("|"))
        assert head in shown[name], name


def _names(table: str) -> list[str]:
    """The columns of a table, and then the first cell of each row."""
    head, *rows = table.splitlines()
    return [*head.split(" | "), *(row.split(" | ")[0] for row in rows)]


def test_no_measured_figure_stands_beside_the_tables() -> None:
    """Only benchmarks write milliseconds, megabytes, shares and ratios with a spread."""
    prose = PAGE[PAGE.index("## CPU of the consumer") :]
    prose = re.sub(PLACE, "", prose, flags=re.DOTALL)
    assert re.findall(r"\d[\d.,]* (?:ms|MB|kB|seconds)\b|\d\.\d+ \(\d", prose) == []


def test_a_table_that_was_not_measured_is_left_as_it_is(stored_figures: dict[str, Any]) -> None:
    """A run of some benchmarks does not change the tables of others."""
    tables = measured.tables({name: values for name, values in stored_figures.items() if name != "memory"})
    assert "memory" not in tables
    assert "`memory`" not in tables["runs"]
    assert "| `cpu` | 2026-11-21 10:20 | 1.5 | rounds 3 | 12 |" in tables["runs"]
    written = measured.written(PAGE, tables)
    assert next(line for line in PAGE.splitlines() if line.startswith("| `memory`")) in written
    assert written.count("| `cpu` |") == 1


@pytest.mark.parametrize(
    ("value", "least", "verdict"),
    [(0.6, False, "0.60, met"), (0.61, False, "0.60, missed"), (0.6, True, "0.60, met"), (0.59, True, "0.60, missed")],
)
def test_a_goal_is_met_or_missed(value: float, least: bool, verdict: str) -> None:
    assert measured.held(value, 0.6, least=least) == verdict


def test_every_goal_has_its_row(stored_figures: dict[str, Any]) -> None:
    tables = measured.tables(stored_figures)
    for name, goal in measured.GOALS.items():
        assert any(f"| {name} |" in table and f" {goal:.2f}, " in table for table in tables.values()), name
    ledger = next(line for line in tables["throughput"].splitlines() if line.startswith("| ledger |"))
    assert ledger.endswith(" 0.80, missed |")


def test_the_throughput_is_taken_within_each_round(stored_figures: dict[str, Any]) -> None:
    ledger = stored_figures["throughput"]["figures"]["rows"]["ledger"]
    assert ledger["of the naive one"] == {"median": 0.75, "least": 0.5, "most": 1}
    assert ledger["of the naive one, by CPU"] == {"median": 0.8, "least": 0.6, "most": 1}
    assert ledger["objects per second"] == {"median": 37.5, "least": 25, "most": 50}


def test_requests_are_counted_by_operation(requests: dict[str, dict[str, float]]) -> None:
    """They exclude the first batch."""
    assert requests.keys() == {"DeleteItem"}
    assert requests["DeleteItem"]["requests"] == 1
    assert requests["DeleteItem"]["CPU ms of each"] > 0


def test_three_consumers_are_compared_that_have_the_same_to_run_on(tmp_path: Path) -> None:
    """Batches and memory are equal. Only the work differs."""
    stack = throughput_stack.ThroughputStack(new_app(), throughput_stack.STACK, code=stage_code(tmp_path))
    template = template_of(stack)
    mappings = [mapping["Properties"] for mapping in resources(template, "AWS::Lambda::EventSourceMapping").values()]
    assert [mapping.get("BatchSize", throughput.BATCH) for mapping in mappings] == [throughput.BATCH] * 3
    consumers = [template["Resources"][mapping["FunctionName"]["Ref"]]["Properties"] for mapping in mappings]
    assert {(consumer["MemorySize"], consumer["Runtime"], *consumer["Architectures"]) for consumer in consumers} == {
        (512, "python3.13", "arm64")
    }
    together = [consumer["Environment"]["Variables"].get("INTAKE_COMMIT_TOGETHER", "naive") for consumer in consumers]
    assert sorted(together) == ["false", "naive", "true"]


def test_one_benchmark_is_kept_beside_the_others(tmp_path: Path) -> None:
    output = tmp_path / "build" / "bench.json"
    for name, number in (("cpu", 1), ("cold", 2), ("cpu", 3)):
        bench.keep(name, {"figures": {"row": {"n": number}}}, output)
    kept = json.loads(output.read_text())
    assert {name: result["figures"]["row"]["n"] for name, result in kept.items()} == {"cpu": 3, "cold": 2}
    assert list(output.parent.iterdir()) == [output]


def test_what_is_kept_says_how_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "peak", lambda *_: 50.0)
    kept = bench.measured("memory", 2)
    assert kept["options"] == {"rounds": 2}
    assert kept["figures"]["one object of 1 MB"]["peak MB"] == {"median": 50, "least": 50, "most": 50}
    assert kept["machine"] == machine()
    assert bench.measured("memory", None)["options"] == {"rounds": 3}


def test_one_that_fails_leaves_the_others_and_fails_the_whole_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each runs in a separate process, with the same rounds."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[3:])
        return subprocess.CompletedProcess(command, 1 if "cold" in command else 0)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--rounds", "2"])
    with pytest.raises(SystemExit, match=r"cold$"):
        bench.main()
    assert asked == [[name, "--rounds", "2"] for name in bench.SHOWN]
    assert "bench.json" in capsys.readouterr().out


def test_a_benchmark_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "cpus"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "there is no benchmark cpus: expected some of counted, cost" in capsys.readouterr().err


def test_a_figure_has_its_extremes() -> None:
    assert str(Figure.of([3.0, 1.0, 2.0])) == "2 (1 to 3)"
    assert str(Figure.of([2.0])) == "2"
