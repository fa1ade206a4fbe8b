"""Compare the executions of a fault run with the claims and commits that the ledger's table recorded.

The table's stream has each change of a row. It belongs to the run: the pipeline neither has nor needs one.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

OVER = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution, as Step Functions or Lambda describes it."""

    name: str
    key: str
    version: str
    attempt: int
    fence: int
    status: str
    started: float
    """Epoch seconds."""
    stopped: float
    """Epoch seconds of the end of its last task. 0 while it runs."""
    commit: str = ""
    """The commit in its output. Empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A row after one of its changes."""

    pk: str
    sk: str
    status: str
    version: str
    fence: int
    attempt: int
    commit: str = ""

    @property
    def key(self) -> str:
        """The key of the object."""
        return self.pk.partition("/")[2]

    @property
    def execution(self) -> str:
        """The name of the execution of this claim."""
        return f"{hashlib.sha256(f'{self.pk}\n{self.sk}'.encode()).hexdigest()[:40]}-{self.fence}"


@dataclass(frozen=True, slots=True)
class Started:
    """The executions of a run and the changes of its rows, in order, with the requirements."""

    executions: Sequence[Execution]
    images: Sequence[Image]
    current: Mapping[str, str]
    """The newest version of each key."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """The number of executions that each version of a key needs. One if it is omitted."""
    name_of: Callable[[str], str] = str
    """The service's name of an execution, for its name in the ledger."""


def judge_executions(facts: Started) -> list[str]:
    """Return the problems."""
    return [
        *_without_partner(facts),
        *_attempts(facts),
        *(problem for own in _by_key(facts.executions).values() for problem in _at_the_same_time(own)),
        *_commits(facts),
    ]


def _by_key(executions: Sequence[Execution]) -> dict[str, list[Execution]]:
    found: dict[str, list[Execution]] = defaultdict(list)
    for one in sorted(executions, key=lambda one: one.started):
        found[one.key].append(one)
    return found


def _without_partner(facts: Started) -> Iterator[str]:
    """Each claim has one execution with its name, version and attempt, and each execution has a claim."""
    # The first change under a fence is the claim. A later one may give the attempt back.
    claims = {(one.key, one.fence): one for one in reversed(facts.images)}
    started = {(one.key, one.fence): one for one in facts.executions}
    for (key, fence), claim in claims.items():
        if (key, fence) not in started:
            yield f"{key}: the claim with the fence {fence} has no execution"
            continue
        one = started[key, fence]
        if one.name != facts.name_of(claim.execution):
            yield f"{key}: the execution of {fence} has the name {one.name!r}"
        if (one.version, one.attempt) != (claim.version, claim.attempt):
            yield (
                f"{key}: the execution of {fence} got {one.version!r}, attempt {one.attempt}, "
                f"claimed was {claim.version!r}, attempt {claim.attempt}"
            )
    for key, fence in started.keys() - claims.keys():
        yield f"{key}: no claim has the fence {fence} of an execution"
    for one in facts.executions:
        if one.status not in OVER:
            yield f"{one.key}: an execution is {one.status} in the end"


def _attempts(facts: Started) -> Iterator[str]:
    """Each version has exactly the executions of its attempts. An older version may have been skipped."""
    made: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in facts.executions:
        made[one.key, one.version].append(one.attempt)
    for key, version in facts.current.items():
        made.setdefault((key, version), [])
    for (key, version), attempts in made.items():
        wanted = list(range(1, facts.attempts.get(key, 1) + 1))
        if sorted(attempts) != wanted:
            yield f"{key}: {version!r} had the attempts {sorted(attempts)}, expected were {wanted}"


def _at_the_same_time(own: Sequence[Execution]) -> Iterator[str]:
    """Yield executions of a key that began before the end of the previous execution, or whose fence did not grow."""
    for before, after in pairwise(own):
        if not before.stopped or after.started < before.stopped:
            yield f"{after.key}: two executions at the same time, {before.fence} and {after.fence}"
        if after.fence <= before.fence:
            yield f"{after.key}: the execution of {before.fence} was followed by that of {after.fence}"


def _commits(facts: Started) -> Iterator[str]:
    """Each success is committed once, with its output. A failure is never committed."""
    commits: dict[tuple[str, int], list[Image]] = defaultdict(list)
    for image in facts.images:
        if image.status == "PROCESSED":
            commits[image.key, image.fence].append(image)
    for one in facts.executions:
        found = [image.commit for image in commits[one.key, one.fence]]
        wanted = [one.commit] if one.status == "SUCCEEDED" and one.commit else []
        if found != wanted:
            yield f"{one.key}: the execution of {one.fence} has the commits {found}, its output is {wanted}"


def counted(executions: Sequence[Execution]) -> str:
    """The number of executions by status."""
    found = Counter(one.status.lower() for one in executions)
    return ", ".join(f"{number} {status}" for status, number in sorted(found.items(), reverse=True))
