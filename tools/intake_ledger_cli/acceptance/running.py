"""Runs the checks. An interruption ends those of the background too."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from intake_ledger_cli.acceptance.checking import INTERRUPTED, Check, not_run, outcome_of
from intake_ledger_cli.acceptance.document import Outcome
from intake_ledger_cli.acceptance.world import World

_AT_ONCE = 8


def run_checks(world: World, checks: Sequence[Check], done: Callable[[Outcome], None]) -> None:
    """Run checks.

    Args:
        world: the deployed stack.
        checks: in their order. Those of the background begin before all others, and are awaited last.
        done: is called with the outcome of each check. After an interruption, the others are "not here".

    """
    left = [*checks]

    def ended(check: Check, outcome: Outcome) -> None:
        left.remove(check)
        done(outcome)

    try:
        with _background(world) as pool:
            running = [
                (one, pool.submit(outcome_of, one, world, clock=time.monotonic)) for one in checks if one.in_background
            ]
            for check in checks:
                if not check.in_background:
                    ended(check, outcome_of(check, world, clock=time.monotonic))
            for check, outcome in running:
                ended(check, outcome.result())
    finally:
        for check in left:
            done(not_run(check, INTERRUPTED))


@contextmanager
def _background(world: World) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        yield pool
    finally:
        world.stopping.set()
        pool.shutdown(cancel_futures=True)
