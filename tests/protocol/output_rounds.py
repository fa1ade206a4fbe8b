"""Write one output with three writers at a time: `python -m tests.protocol.output_rounds`, or `make outputs`.

In each round, three attempts with growing fences write the same output. They advance by one request at a time, in
random order. Most attempts with a lower fence are late: they pause until the others have ended. Two contents come back
again and again. Writers put, upload in parts, or remove. Answers are lost, and the requests are sent again. Attempts
with a lower fence may die anywhere, and no ledger learns of their writes and repairs them. A round is right if readers
see the result of the highest fence at its end.
"""

import random
import sys
import time
from collections import Counter
from dataclasses import dataclass

from cdk_intake_ledger.testing import LocalAws
from intake_ledger_testing.memory_outputs import MemoryOutputs
from tests.protocol.output_orders import FENCE, VALUES, search_all, search_two_objects
from tests.protocol.output_writers import BUCKET, Action, Job, Way, Writer, visible, writer

ROUNDS = 500
WRITERS = 3


@dataclass(frozen=True)
class Round:
    """Result of one round."""

    wrong: bool
    """True if readers do not see the result of the highest fence."""
    lost_answers: int
    deaths: int
    errors: Counter[str]
    """The errors with which attempts ended, by type."""


def jobs_of(dice: random.Random) -> list[Job]:
    """The jobs of a round by their fences. In half of the rounds, an earlier attempt wrote the output."""
    earlier = dice.random() < 1 / 2
    return [
        Job(
            FENCE + number,
            dice.choice([Action.PUT, Action.PUT, Action.UPLOAD, Action.REMOVE]) if number else Action.PUT,
            dice.choice(VALUES),
            # The first attempt finds no row, and sometimes a row has expired.
            look_first=number > 1 - earlier and dice.random() < 7 / 8,
        )
        for number in range(0 if earlier else 1, WRITERS + 1)
    ]


def play(seed: int, way: Way, s3: object | None = None) -> Round:
    """One round in S3, in memory when omitted. The same seed gives the same jobs for each way."""
    s3 = s3 or MemoryOutputs()
    dice = random.Random(seed)
    key = f"{way.name.lower()}/{seed}/{dice.choice(['a.txt', 'a.gz'])}"
    *earlier, first, second, last = jobs_of(dice)
    for job in earlier:
        _finish(writer(way, key, job), s3)
    writers = [writer(way, key, job) for job in (first, second, last)]
    # A late worker pauses after its n-th request until the others have ended.
    pauses = {id(one): dice.randint(0, 3) for one in writers[:-1] if dice.random() < 2 / 3}
    running, lost, deaths = list(writers), 0, 0
    while running:
        awake = [one for one in running if pauses.get(id(one), 1)]
        if not awake:
            pauses.clear()
            continue
        one = dice.choice(awake)
        if one is not writers[-1] and dice.random() < 1 / 40:
            deaths += 1
            running.remove(one)
            continue
        answer_is_lost = dice.random() < 1 / 20
        lost += answer_is_lost
        one.step(s3, answer_is_lost=answer_is_lost)
        if id(one) in pauses:
            pauses[id(one)] -= 1
        if one.ended:
            running.remove(one)
    assert writers[-1].error is None
    errors = Counter(type(one.error).__name__ for one in writers if one.error)
    return Round(visible(s3, key) != last.expected, lost, deaths, errors)


def _finish(one: Writer, s3: object) -> None:
    while not one.ended:
        one.step(s3)


def main(rounds: int = ROUNDS) -> bool:
    """Play all rounds on MiniStack, and search all orders in memory. True if only the outputs were always right."""
    started = time.monotonic()
    with LocalAws() as aws:
        s3 = aws.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        played = {way: [play(seed, way, s3) for seed in range(rounds)] for way in Way}
    print(f"{rounds} rounds of {WRITERS} writers on MiniStack, {time.monotonic() - started:.0f} s")
    print(f"{'':40}{'wrong':>8}{'overtaken':>11}{'lost answers':>14}{'deaths':>8}")
    for way, ended in played.items():
        wrong, lost = sum(one.wrong for one in ended), sum(one.lost_answers for one in ended)
        overtaken, deaths = sum(one.errors["Overtaken"] for one in ended), sum(one.deaths for one in ended)
        print(f"{way:40}{wrong:8}{overtaken:11}{lost:14}{deaths:8}")
    started = time.monotonic()
    orders = [
        search_all(Way.OUTPUT, writers=2, losses=1),
        search_all(Way.OUTPUT, writers=3),
        search_two_objects(writers=2, losses=2),
        search_two_objects(writers=3, losses=1),
    ]
    states = sum(found.states for found in orders)
    print(
        f"all orders of 2 and 3 writers, for one object and two: {states:,} states, {time.monotonic() - started:.0f} s"
    )
    wrong_orders = [found.wrong for found in orders if found.wrong]
    print(*wrong_orders, sep="\n")
    right = [way for way, ended in played.items() if not any(one.wrong for one in ended)]
    return right == [Way.OUTPUT] and not wrong_orders


if __name__ == "__main__":
    sys.exit(not main(*(int(one) for one in sys.argv[1:])))
