"""The short form of the exhaustive search, in every test run; `make prove` explores the long one."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger
from tests.protocol import message_worlds, program
from tests.protocol.explorer import Explorer, Scenario, Worker, World
from tests.protocol.mutants import MUTANTS
from tests.protocol.program import Config, Effect, Memory
from tests.protocol.prove import tell
from tests.protocol.scenarios import FULL, REJECTS, SHORT
from tests.protocol.set_search import WORLDS
from tests.seeds import Mutant, changed
from tests.settings import quick

REDUCED = (
    "puts, no audit", "puts, a slow worker", "rollback, slow claims", "unversioned, deleted", "rejection, rollback",
    "expiry", "reprocess, budget", "grouped commits, lost answers", "grouped commits, a slow worker", "transactions",
    "every version, losses", "outputs, a slow worker",
)  # fmt: skip
"""Short worlds of each kind in which the reduced search is compared with the whole one."""
LARGE = (
    "keyed effects, rollback", "removed unprocessed", "not yet", "not yet, rollback", "rejection, a refused copy",
    "late write, a transaction or not", "budget, an audit", "markers, deletes off",
)  # fmt: skip
"""Short worlds that take seconds, and each of which has a smaller relative: for `make thorough`."""


@pytest.mark.parametrize(
    "name", quick([*(name for name in SHORT if name not in LARGE), *LARGE], len(SHORT) - len(LARGE))
)
def test_every_order_of_steps_keeps_the_guarantees(name: str) -> None:
    """In no order of deliveries, steps and faults is G1, G2, G3 or G4 violated, or work left without a way to go on."""
    result = Explorer(SHORT[name]).explore()
    assert not result.violation, tell(name, result)
    assert result.complete


def test_a_violation_is_told_with_the_steps_that_lead_to_it() -> None:
    """A world in which losses are never found again ends in a trace that a person can read."""
    scenario = SHORT["losses"]._replace(no_audit=True)
    result = Explorer(scenario).explore()
    assert "G4" in result.violation
    assert any("is lost" in step for step in result.trace)


@pytest.mark.thorough
@pytest.mark.failure_mode("F96")
@pytest.mark.parametrize("effect", [Effect.PLAIN, Effect.KEYED])
def test_an_effect_without_the_fence_is_wrong_if_a_late_worker_dies(effect: Effect) -> None:
    """The ledger does not repair it, and the search finds it: an older version is written over the current one."""
    scenario = Scenario("p p", Config(effect=effect), pauses=1, crashes=1)
    assert not Explorer(scenario).explore().violation
    result = Explorer(scenario._replace(exact=True)).explore()
    assert result.violation == "G4: at rest S3 shows v#2, the downstream has v#1"
    assert any("the lease of" in step for step in result.trace)
    assert any("dies" in step for step in result.trace)


def test_effects_with_the_fence_or_in_the_commit_are_right_if_a_late_worker_dies() -> None:
    """The worlds of the test above hold with the other kinds, although nothing is excused there."""
    for effect, name in ((Effect.FENCED, "outputs, a late worker dies"), (Effect.TRANSACT, "transactions, zombies")):
        assert FULL[name] == Scenario("p p", Config(effect=effect), pauses=1, crashes=1)
        assert Explorer(FULL[name])._exact


@pytest.mark.failure_mode("F560")
def test_rejected_rows_of_a_commit_that_a_backup_lacks_stay() -> None:
    """The page of the protocol says so. A look for each new key would cost a request."""
    result = Explorer(Scenario("p p", REJECTS._replace(memory=Memory.KEPT), restores=1)).explore()
    assert result.violation == "G4: at rest S3 shows v#2, the downstream has v#1"
    assert "the table is put back from the backup" in result.trace


@pytest.mark.parametrize(
    ("owner", "name", "step"),
    [
        (Consumer, "handle", "w0 raises KeyError: 'seeded'"),
        # The consumer catches an error of one message and logs it as its own error.
        (Ledger, "commit", "w0 raises AssertionError"),
        (AuditInOneFunction, "run", "the audit raises KeyError: 'seeded'"),
    ],
)
def test_an_exception_in_the_code_under_search_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, step: str
) -> None:
    """It has the steps that lead to it and the traceback, as a violated guarantee has its steps."""
    monkeypatch.setattr(owner, name, Mock(side_effect=KeyError("seeded")))
    result = Explorer(SHORT["puts"]).explore()
    assert result.violation.startswith(step)
    assert result.trace[0] == "S3: p"
    assert step in result.trace[-1]
    assert "KeyError: 'seeded'" in result.raised
    assert "KeyError: 'seeded'" in tell("puts", result)


def test_a_request_that_the_store_forbids_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's assertions judge the ledger. The trace shows who sent the request."""
    monkeypatch.setattr(LedgerTable, "get_items", lambda self, _: self._client.get_item(ConsistentRead=False))
    result = Explorer(SHORT["losses"]).explore()
    assert "the ledger never decides on an eventual read" in result.violation
    assert "look.py" in result.raised


def test_a_failure_of_the_search_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in a stand-in for AWS, in this folder, says nothing about the code under search. The search fails."""

    def fails(*_: object, **__: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(program._S3, "head_object", fails)
    with pytest.raises((KeyError, AssertionError)) as raised:
        Explorer(SHORT["puts"]).explore()
    assert "broken" in str(raised.value)


@pytest.mark.parametrize("name", quick(REDUCED, 3))
def test_the_reduced_search_visits_what_stands_for_the_worlds_of_the_whole_one(name: str) -> None:
    """The reduced search leaves out the worlds that `waits` describes. None of them is at rest."""
    whole, reduced = Explorer(SHORT[name], reduced=False), Explorer(SHORT[name])
    assert not whole.explore().violation
    assert not reduced.explore().violation
    kept = [world for world in whole.worlds if not waits(reduced, world)]
    different = {reduced.standing_for(world)[0] for world in kept} ^ set(reduced.worlds)
    assert not different, f"{len(different)} worlds"
    assert len(reduced.worlds) < len(whole.worlds)
    assert not any(waits(reduced, world) for world in whole.worlds if whole._quiet(world))


def waits(explorer: Explorer, world: World) -> bool:
    """Return whether a worker waits before a read whose answer no later step changes, or the audit before its end."""
    if world.bad:
        return False
    if world.audit is not None and explorer._audit_past("", world)[1] != world:
        return True
    return any(explorer._past_settled_reads("", world, slot)[1] != world for slot in range(len(world.workers)))


def test_workers_differ_by_their_names_alone() -> None:
    """The mirror image of a worker sends the mirrored request. No other part of a world names workers."""
    explorer = Explorer(SHORT["puts, lost answers"]._replace(deliveries=2))
    assert not explorer.explore().violation
    second = {world.workers[1] for world in explorer.worlds} - {None}
    assert len(second) > 5
    for worker in cast("set[Worker]", second):
        mirrored = explorer._outcome(1, worker)
        alone = program.run(worker.message, "w1", explorer.config, worker.start, worker.history)
        assert repr(mirrored) == repr(alone)
    for world in explorer.worlds:
        others = world._replace(items=(), workers=(), audit=None)
        assert not re.search(r"w[01]\.\d", repr(others))


@pytest.mark.parametrize("name", ["puts, no audit", "transactions"])
def test_a_trace_names_each_worker_by_one_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Also where the search went on with a mirror image: a name receives a message, works on that and is free again."""
    resting = len([world for world in explored(name).worlds if explored(name)._quiet(world)])
    assert resting > 5
    for number in range(resting):
        left = iter([""] * number + ["stop here"])
        monkeypatch.setattr(Explorer, "_at_rest", lambda *_, left=left: next(left))
        busy: set[str] = set()
        for clause in "; ".join(Explorer(SHORT[name]).explore().trace).split("; "):
            if found := re.search(r"\bw[01]\b", clause):
                assert (found[0] in busy) != ("receives" in clause), clause
                (busy.discard if re.search("acknowledges|gives|dies", clause) else busy.add)(found[0])
        assert not busy


@cache
def explored(name: str) -> Explorer:
    explorer = Explorer(SHORT[name])
    explorer.explore()
    return explorer


def test_the_long_form_contains_the_short_one() -> None:
    """Nothing is explored in tests alone."""
    assert FULL.items() >= SHORT.items()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_seeded_defect_still_fits_the_code(mutant: Mutant) -> None:
    """Its place occurs once, and its imports and the named test exist. `make prove` shows that the test finds it."""
    path, text = changed(mutant)
    if path.suffix == ".py":
        compile(text, mutant.name, "exec")
    # A world finds code that ends in an ImportError, whatever the code means.
    for node in ast.walk(ast.parse(text)) if "import " in mutant.new else ():
        if isinstance(node, ast.ImportFrom):
            module = import_module(str(node.module))
            assert all(hasattr(module, one.name) for one in node.names), ast.unparse(node)
    if mutant.found_by.startswith("tests/"):
        paths = [word for word in mutant.found_by.split() if word.startswith("tests/")]
        assert all(Path(path).is_file() for path in paths)
    else:
        assert mutant.found_by in FULL.keys() | WORLDS.keys() | message_worlds.FULL.keys()
