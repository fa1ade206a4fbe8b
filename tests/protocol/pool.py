"""Run jobs in separate processes, one per core at a time, until a time limit.

Each job runs in a forked process. It starts with all imports done, cannot affect the next job, can be stopped at any
moment, and has a memory limit.
"""

import contextlib
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

MEMORY = 1_600 * 2**20
"""Bytes of address space that a search may use: two at a time fit into a machine of 4 GB."""
_FORK = get_context("fork")


@dataclass(frozen=True)
class Job:
    """One part of the proof."""

    name: str
    run: Callable[[], tuple[bool, str]]
    """Function that returns whether the job passed, and the text to print. An exception is an error of the search."""
    memory: int | None = None
    """Maximum address space in bytes."""
    cpu_seconds: int | None = None
    """Maximum processor time of its process. A job that never ends would keep others from their turn."""


class Ended(NamedTuple):
    """Result of a job."""

    job: Job
    passed: bool
    told: str
    broken: bool = False
    """The search itself failed."""
    seconds: float = 0
    """Processor time, including child processes."""
    megabytes: float = 0
    """Peak memory."""


@dataclass
class _Running:
    job: Job
    process: BaseProcess
    pipe: Connection


def run_jobs(jobs: Sequence[Job], *, until: float | None = None, workers: int | None = None) -> Iterator[Ended]:
    """Run the jobs in their order and yield each one when it ends.

    Args:
        jobs: started in this order.
        until: the time, by `time.monotonic()`, at which the running jobs are stopped. Jobs that were stopped or not
            started are not yielded. No limit when omitted.
        workers: how many run at the same time; one per core when omitted.

    """
    waiting = list(jobs)[::-1]
    running: list[_Running] = []
    try:
        while waiting or running:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            while waiting and len(running) < (workers or os.cpu_count() or 1):
                running.append(_started(waiting.pop()))
            ready = wait([one.pipe for one in running], left)
            ended = [one for one in running if one.pipe in ready]
            running = [one for one in running if one not in ended]
            yield from map(_ended, ended)
    finally:
        for one in running:
            _stop(one)


def _started(job: Job) -> _Running:
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_run, args=(job, sender), name=job.name)
    process.start()
    sender.close()
    return _Running(job, process, receiver)


def _run(job: Job, sender: Connection) -> None:
    """Run the job in its process and send the result."""
    # With a new process group, its child processes stop with it, and an interrupt reaches only the parent.
    os.setsid()
    if job.memory is not None:
        with contextlib.suppress(ValueError, OSError):  # not every system has this limit
            resource.setrlimit(resource.RLIMIT_AS, (job.memory, job.memory))
    if job.cpu_seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_seconds, job.cpu_seconds + 1))
    try:
        passed, told = job.run()
        broken = False
    except MemoryError:
        passed, told, broken = False, f"it needs more memory than {(job.memory or 0) >> 20:,} MB", True
    except BaseException:  # noqa: BLE001
        passed, told, broken = False, traceback.format_exc().rstrip(), True
    own, children = (resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    sender.send((passed, told, broken, seconds, max(own.ru_maxrss, children.ru_maxrss) / 1024))


def _ended(one: _Running) -> Ended:
    try:
        ended = Ended(one.job, *one.pipe.recv())
    except EOFError:
        one.process.join(5)
        spent = one.process.exitcode == -signal.SIGXCPU
        told = f"it took {one.job.cpu_seconds} s" if spent else f"its process died ({one.process.exitcode})"
        ended = Ended(one.job, passed=False, told=told, broken=True)
    _stop(one)
    return ended


def _stop(one: _Running) -> None:
    """End the process and every process that it started."""
    one.pipe.close()
    if one.process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(one.process.pid, signal.SIGKILL)
    one.process.join()
    one.process.close()
