"""Test how a defect is seeded: by a definition of the runtime and a change of its code, wherever it stands."""

import ast
import itertools
from pathlib import Path

import pytest

import intake_ledger
from tests.local.faults.defects import DEFECTS, seeded
from tests.protocol.mutants import MUTANTS
from tests.seeds import DoesNotFitError, Runtime, changed

RUNTIME = Path(intake_ledger.__file__).parent
CODE = '''
LIMIT = 10


class Ledger:
    """Some words."""

    def commit(self, claim, *, late=False):
        if (claim.fence == 1
            and not late):  # a comment
            return self._write(claim, late=late, at=f"{claim.at} now")
        try:
            return self._write(claim, late=True, at=None)
        except ValueError as error:
            print(error)
            raise

    @property
    def limit(self):
        return LIMIT

    @limit.setter
    def limit(self, value):
        print(value)
'''


def change(tmp_path: Path, definition: str, old: str, new: str) -> str:
    """The changed lines of the code, as the parser writes them."""
    (tmp_path / "ledger.py").write_text(CODE)
    path, text = Runtime(tmp_path).change(definition, old, new)
    assert path == Path("ledger.py")
    before = ast.unparse(ast.parse(CODE)).splitlines()
    return "\n".join(line.strip() for line in text.splitlines() if line not in before)


@pytest.mark.parametrize(
    ("definition", "old", "new", "lines"),
    [
        ("LIMIT", "10", "10_000", "LIMIT = 10000"),
        ("Ledger.commit", "claim.fence == 1 and not late", "True", "if True:"),
        ("Ledger.commit", "raise", "return None", "return None"),
        ("Ledger.commit", "late=late", "", "return self._write(claim, at=f'{claim.at} now')"),
        ("Ledger.commit", "late=True, at=None", "at=0", "return self._write(claim, at=0)"),
        ("Ledger.commit", "claim.at", "0", "return self._write(claim, late=late, at=f'{0} now')"),
        ("Ledger.commit", "except ValueError as error: ...", "except KeyError: ...", "except KeyError:"),
        ("Ledger.commit", "if claim.fence == 1 and not late: ...", "if late: ...", "if late:"),
        ("Ledger.commit", "print(error)\nraise", "", "pass"),
        ("Ledger.limit", "value", "None", "print(None)"),
        ("Ledger", '"""Some words."""', "claims = 0", "claims = 0"),
    ],
)
def test_a_change_names_a_definition_and_fragments_of_its_code(
    tmp_path: Path, definition: str, old: str, new: str, lines: str
) -> None:
    """Expressions, statements, named arguments and clauses. The layout of the source does not matter."""
    assert change(tmp_path, definition, old, new) == lines


@pytest.mark.parametrize(
    ("definition", "old", "new", "said"),
    [
        ("Ledger.comit", "raise", "", "does not define Ledger.comit: Ledger.commit?"),
        ("Ledger.commit", "late == 2", "", "Ledger.commit (in ledger.py) has this 0 times, and not once: late == 2"),
        ("Ledger.commit", "self._write", "None", "has this 2 times"),
        ("Ledger.commit", '" now"', '"then"', "has this 0 times"),
        ("LIMIT", "if (", "20", "these are not two fragments of code of one kind: 'if (' and '20'"),
        ("SQL", "SELECT 1", "", "the runtime's SQL has this 0 times, and not once: SELECT 1"),
    ],
)
def test_a_change_that_does_not_fit_says_what_was_sought_and_where(
    tmp_path: Path, definition: str, old: str, new: str, said: str
) -> None:
    """A misspelled definition, a fragment that the definition does not have once, and a fragment that is not code."""
    with pytest.raises(DoesNotFitError) as refused:
        change(tmp_path, definition, old, new)
    assert said in str(refused.value)


def test_a_name_that_two_modules_define_means_the_one_with_the_code(tmp_path: Path) -> None:
    """If both have it, the change is refused and both modules are named."""
    (tmp_path / "a.py").write_text("def decide(row):\n    return row.fence\n")
    (tmp_path / "b.py").write_text("def decide(row):\n    return row.status or row.kind\n")
    runtime = Runtime(tmp_path)
    assert runtime.change("decide", "row.status", "None") == (
        Path("b.py"),
        "def decide(row):\n    return None or row.kind\n",
    )
    (tmp_path / "c.py").write_text("def decide(row):\n    return row.status\n")
    with pytest.raises(DoesNotFitError, match=r"decide \(in a.py, b.py, c.py\) has this 2 times"):
        Runtime(tmp_path).change("decide", "row.status", "None")


def test_a_defect_is_refused_by_its_name() -> None:
    """`prove.py` and the fault runs print it."""
    wrong = next(one for one in MUTANTS if one.definition == "Ledger.commit")._replace(old="self._comit(claim)")
    with pytest.raises(DoesNotFitError, match=rf"'{wrong.name}' does not fit.*Ledger.commit \(in .*self._comit"):
        changed(wrong)


def test_each_defect_of_the_fault_runs_is_seeded_into_a_copy() -> None:
    """`python -m tests.local.faults --defects` runs them. Each fits, and one file of the copy is another one."""
    files = [changed(defect)[0] for defect in DEFECTS]
    with seeded(DEFECTS[0]) as folder:
        copies = {path.relative_to(folder / "intake_ledger"): path for path in folder.rglob("*.py")}
        [path] = (path for path, copy in copies.items() if copy.read_bytes() != (RUNTIME / path).read_bytes())
        assert path == files[0]


@pytest.mark.thorough
def test_defects_still_fit_where_modules_move(tmp_path: Path) -> None:
    """All modules of the runtime are in one folder with other names here, in another layout. No defect knows either."""
    number = itertools.count()
    for path in sorted(RUNTIME.rglob("*.py")):
        (tmp_path / f"module_{next(number)}.py").write_text(ast.unparse(ast.parse(path.read_text())))
    for path in RUNTIME.rglob("*.sql"):
        (tmp_path / f"query_{next(number)}.sql").write_text(path.read_text().replace(" AND ", "\n AND "))
    moved = Runtime(tmp_path)
    for mutant in (one for one in (*MUTANTS, *DEFECTS) if "/" not in one.definition):
        _, text = moved.change(mutant.definition, mutant.old, mutant.new)
        assert text.split() == changed(mutant)[1].split(), mutant.name
