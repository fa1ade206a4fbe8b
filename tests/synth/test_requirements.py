"""A requirements file is read at synthesis: each line has to mean the same version tomorrow."""

import re
from pathlib import Path

import pytest

from cdk_intake_ledger.bundling.wheels import parse_requirements, read_requirements
from tests.synth.build import rules_in

HASH = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "line",
    [
        "markupsafe==3.0.3",
        "markupsafe == 3.0.3  # with a comment",
        "markupsafe===3.0.3",
        "requests[socks]==2.32.0",
        "markupsafe==3.0.3 ; python_version >= '3.12'",
        f"markupsafe==3.0.3 --hash={HASH}",
        f"markupsafe==3.0.3 --hash {HASH}",
        f"inhouse @ https://example.org/inhouse-1-py3-none-any.whl#sha256={'0' * 64}",
        "boto3",
    ],
)
def test_what_always_means_the_same_is_accepted(line: str) -> None:
    """A version, a hash, or a name that Lambda has."""
    assert parse_requirements([line]).problems == []


@pytest.mark.parametrize(
    ("line", "rule", "text"),
    [
        (
            "pandas",
            "requirement-pinned",
            "r line 1 is 'pandas', which is not pinned: .* Write pandas==<version>, or let `uv pip compile`",
        ),
        ("pandas>=2", "requirement-pinned", "is 'pandas>=2', which is not pinned: .* Write pandas==1.2.3"),
        ("pandas==2.*", "requirement-pinned", r"'pandas==2.\*', which is not pinned"),
        ("boto3>=1.20", "requirement-pinned", "which is not pinned"),
        ("boto3<1.30", "requirement-pinned", "which is not pinned"),
        ("boto3[crt]", "requirement-pinned", "which is not pinned"),
        (
            "inhouse @ https://example.org/inhouse-1-py3-none-any.whl",
            "requirement-url-hash",
            "a URL without a hash: .* Append #sha256=",
        ),
        ("./inhouse-1-py3-none-any.whl", "requirement-format", "a wheel, or name its folder by --find-links"),
        ("git+https://example.org/inhouse.git", "requirement-format", "which is not a requirement"),
        ("-e .", "requirement-option", "r line 1 is '-e .'"),
        ("-e ../inhouse", "requirement-option", "wheels of a package index are installed"),
        ("--no-binary :all:", "requirement-option", "is '--no-binary :all:', which is not supported"),
        ("-c constraints.txt", "requirement-option", "is '-c constraints.txt', which is not supported"),
        ("what is this", "requirement-format", "which is not a requirement"),
        ("pandas==2.3.0 --global-option=x", "requirement-format", "which is not a requirement"),
        ("-r missing.txt", "requirements-unreadable", "missing.txt' cannot be read"),
        ("pandas=='2", "requirement-format", "which is not a requirement"),
    ],
)
def test_everything_else_is_refused_with_its_line_and_the_fix(line: str, rule: str, text: str) -> None:
    """A name without a version would be another one next week, under the same asset hash."""
    (problem,) = parse_requirements([line], "r").problems
    assert re.search(text, problem), problem
    assert rules_in(problem) == [rule]


def test_all_problems_of_a_file_are_told_with_their_lines(tmp_path: Path) -> None:
    """Continued lines count from their beginning; an included file counts separately."""
    (tmp_path / "more.txt").write_text("# more\nnumpy\n")
    (tmp_path / "requirements.txt").write_text(
        f"\ufeff# all of it\nmarkupsafe==3.0.3 \\\n    --hash={HASH} \\\n    --hash={HASH}\n\npandas\n-r more.txt\n"
    )
    requirements = read_requirements(tmp_path / "requirements.txt")
    assert [problem.partition(" is ")[0] for problem in requirements.problems] == [
        "requirements.txt line 6",
        "more.txt line 2",
    ]
    assert requirements.lines == [f"markupsafe==3.0.3 --hash={HASH} --hash={HASH}"]


def test_the_hash_is_that_of_the_pins(tmp_path: Path) -> None:
    """Not of comments, order and the place of a folder of wheels; but of Python and of the machine."""
    pins = parse_requirements(["# first", "a==1", "b==2"])
    same = parse_requirements(["b==2", "", "--find-links ./wheels", "a==1  # for a reason"])
    assert pins.digest("3.13", "arm64") == same.digest("3.13", "arm64")
    others = [
        parse_requirements(["a==1", "b==3"]).digest("3.13", "arm64"),
        parse_requirements(["a==1", f"b==2 --hash={HASH}"]).digest("3.13", "arm64"),
        pins.digest("3.12", "arm64"),
        pins.digest("3.13", "x86_64"),
        pins.digest("3.13", "arm64"),
    ]
    assert len(set(others)) == len(others)


def test_folders_of_wheels_are_looked_for_beside_the_file(tmp_path: Path) -> None:
    """uv runs in another place."""
    (tmp_path / "requirements.txt").write_text("--find-links wheels\n--index-url=https://example.org/simple\na==1\n")
    assert read_requirements(tmp_path / "requirements.txt").options == [
        f"--find-links {tmp_path / 'wheels'}",
        "--index-url https://example.org/simple",
    ]
