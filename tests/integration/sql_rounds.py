"""Kill and delay workers at each statement of their SQL transaction: `make sql-rounds`.

Each worker is a process with its own connection. In a round, an object gets three states, and the last may be its
removal. Attempts are killed by SIGKILL, or pause as late workers while their successors run.
"""

import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

import psycopg
from examples.postgres import postgres

from intake_ledger import Overtaken
from intake_ledger.outputs import sql

ROUNDS = 150
POINTS = ("connected", "taken", "deleted", "half copied", "copied", "before commit", "committed")
Fate = Literal["killed", "late", "well"]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["__main__", "tests.integration.sql_rounds"])
_PATIENCE = 60
"""Seconds until a worker that does not answer is a failure."""


@dataclass(frozen=True)
class Attempt:
    """One attempt on a state: what an `ObjectChange` tells, and where it is killed or pauses."""

    key: str
    state: int
    fence: int
    lines: int
    """0: the state is a removal."""
    fate: Fate
    point: str
    bucket: str = "uploads"
    fenced_version: str | None = None

    @property
    def kind(self) -> str:
        return "created" if self.lines else "removed"

    @property
    def version_id(self) -> str:
        return f"v{self.state}"

    @property
    def idempotency_key(self) -> str:
        return f"{self.key} {self.state}"


@dataclass
class Worker:
    """A process that runs an attempt."""

    process: BaseProcess
    answers: Connection
    backend: int = 0


@dataclass
class Result:
    """The rounds that ended with other lines than those of the last state, and what was done to attempts."""

    wrong: list[int] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)


def create(dsn: str) -> None:
    """Create the tables."""
    with psycopg.connect(dsn) as connection:
        connection.execute(sql.schema())
        connection.execute("CREATE TABLE lines (key text NOT NULL, number int NOT NULL, state int NOT NULL)")
        connection.execute("CREATE INDEX ON lines (key)")


def write(dsn: str, attempt: Attempt, at: Callable[[str, int], None], *, fenced: bool) -> None:
    """The processor: replace the lines of the object. `at` is called after each step."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        backend = connection.info.backend_pid
        at("connected", backend)
        if fenced:
            sql.lock_object(cursor, attempt)
        at("taken", backend)
        cursor.execute("DELETE FROM lines WHERE key = %s", (attempt.key,))
        at("deleted", backend)
        with cursor.copy("COPY lines FROM STDIN") as copy:
            for number in range(attempt.lines):
                if number == attempt.lines // 2:
                    at("half copied", backend)
                copy.write_row((attempt.key, number, attempt.state))
        at("copied", backend)
        cursor.execute("SELECT count(*) FROM lines WHERE key = %s", (attempt.key,))
        at("before commit", backend)
    at("committed", backend)


def work(dsn: str, attempt: Attempt, fenced: bool, answers: Connection) -> None:
    """The whole life of a worker's process."""

    def at(point: str, backend: int) -> None:
        if point == "connected":
            answers.send(backend)
        if point == attempt.point and attempt.fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if point == attempt.point and attempt.fate == "late":
            answers.send("paused")
            answers.recv()

    try:
        write(dsn, attempt, at, fenced=fenced)
        answers.send("committed")
    except Overtaken:
        answers.send("overtaken")


class Round:
    """One object, its attempts and its late workers."""

    def __init__(self, dsn: str, observer: psycopg.Connection, *, fenced: bool, done: Counter[str]) -> None:
        self._dsn = dsn
        self._observer = observer
        self._fenced = fenced
        self._done = done
        self._late: list[tuple[Attempt, Worker]] = []

    def play(self, number: int) -> bool:
        """Run the round. True if the lines are those of the last state."""
        dice = random.Random(number)
        key, fence = f"{number}.csv", 1_700_000_000_000
        for state in range(3):
            lines = 0 if state == 2 and dice.random() < 0.3 else dice.randint(1, 6)
            fates: list[Fate] = (
                ["killed", "late"] if state == 1 else dice.choices(["killed", "late"], k=dice.randint(0, 1))
            )
            for index, fate in enumerate((*fates, "well")):
                fence += 1
                # Each round takes the next point, so that a few rounds reach all.
                point = POINTS[(number + index + state) % len(POINTS)]
                self._run(Attempt(key, state, fence, lines, fate, point))
            if state == 1 and dice.random() < 0.5:
                self._release_all()
        self._release_all()
        found = self._observer.execute("SELECT number, state FROM lines WHERE key = %s ORDER BY 1", (key,)).fetchall()
        return found == [(number, state) for number in range(lines)]

    def _run(self, attempt: Attempt) -> None:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=work, args=(self._dsn, attempt, self._fenced, theirs), daemon=True)
        process.start()
        theirs.close()
        worker = Worker(process, ours)
        worker.backend = int(self._answer(worker, attempt))
        answer = self._answer(worker, attempt)
        self._done[f"{answer} at {attempt.point}" if answer in ("killed", "paused") else str(answer)] += 1
        if answer == "paused":
            self._late.append((attempt, worker))
        else:
            process.join()

    def _answer(self, worker: Worker, attempt: Attempt) -> int | str:
        """The next answer. While the worker waits for the lock of a late worker, let the late workers finish."""
        for _ in range(_PATIENCE * 50):
            if wait([worker.answers], timeout=0.02):
                try:
                    answer: int | str = worker.answers.recv()
                except EOFError:
                    worker.process.join()
                    assert worker.process.exitcode == -signal.SIGKILL, (attempt, worker.process.exitcode)
                    return "killed"
                return answer
            if self._late and worker.backend and self._waits(worker.backend):
                self._release_all()
        raise TimeoutError(f"{attempt} does not answer")

    def _waits(self, backend: int) -> bool:
        asked = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        return self._observer.execute(asked, (backend,)).fetchone() == (True,)

    def _release_all(self) -> None:
        late, self._late = self._late, []
        for _, worker in late:
            worker.answers.send("go on")
        for attempt, worker in late:
            self._done[f"late: {self._answer(worker, attempt)}"] += 1
            worker.process.join()


def run(dsn: str, rounds: int, *, fenced: bool) -> Result:
    """Run the rounds in a new database."""
    create(dsn)
    result = Result()
    with psycopg.connect(dsn, autocommit=True) as observer:
        for number in range(rounds):
            if not Round(dsn, observer, fenced=fenced, done=result.done).play(number):
                result.wrong.append(number)
    return result


def main() -> int:
    """Run all rounds with and without `lock_object`, and print the results."""
    with postgres() as server:
        plain = run(server.new_database(), ROUNDS, fenced=False)
        fenced = run(server.new_database(), ROUNDS, fenced=True)
    for what, count in sorted(fenced.done.items()):
        print(f"{count:5} {what}")
    print(f"{ROUNDS} rounds: {len(plain.wrong)} wrong with plain transactions, {len(fenced.wrong)} with lock_object")
    return 0 if plain.wrong and not fenced.wrong else 1
