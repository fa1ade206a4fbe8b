"""Run processors that write after their lease ended: `python -m tests.protocol.late_workers`, or `make late-workers`.

An image processor writes greyscale copies with an unconditional `put_object`. In each round 12 keys are uploaded twice
and some are deleted. Every message is delivered twice and in any order. A quarter of all attempts is killed or times
out. Three attempts write after their successor's commit. A second processor writes the same copies through
`change.output`.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO

from PIL import Image

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import ObjectChange

ROUNDS = 200
COPIES = "copies"
KEYS = tuple(f"in/{number}.png" for number in range(12))
DELETED = 2
OVERTAKEN = 3
_ENDS = (Fault.KILLED_BEFORE_EFFECT, Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT)
_PLANNED = 500
"""More calls than a round makes."""
_EARLY = 12
"""Every key is processed at least once, so an attempt with a lower number always happens."""


@dataclass
class OutputBucket:
    """Where the processor writes: the last writer wins."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def put_object(self, *, Key: str, Body: bytes) -> None:  # noqa: N803 - boto3's names
        self.objects[Key] = Body

    def delete_object(self, *, Key: str) -> None:  # noqa: N803 - as above
        self.objects.pop(Key, None)

    def process(self, change: ObjectChange) -> None:
        """Keep a greyscale copy of the object in the intake bucket."""
        if change.kind != "created":
            self.delete_object(Key=change.key)
            return
        with change.open() as stream:
            self.put_object(Key=change.key, Body=greyscale(stream.read()))


def process_to_output(change: ObjectChange) -> None:
    """Keep a greyscale copy in an output, which no late worker overwrites."""
    copy = change.output(COPIES, change.key)
    if change.kind == "created":
        copy.put(greyscale(change.read(10_000)), content_type="image/png")
    else:
        copy.remove()


@dataclass(frozen=True)
class Round:
    """Result of one round."""

    wrong: tuple[str, ...]
    """Keys whose copy does not match the object in the intake bucket."""
    outcomes: Counter[str]
    late_writes: int
    calls: int


def greyscale(content: bytes) -> bytes:
    """The image without its colours."""
    output = BytesIO()
    Image.open(BytesIO(content)).convert("L").save(output, "PNG")
    return output.getvalue()


def pixels(content: bytes | None) -> bytes | None:
    """The pixels of a copy. An output has the fence in its bytes."""
    return None if content is None else Image.open(BytesIO(content)).tobytes()


def play(seed: int, overtaken: Fault = Fault.OVERTAKEN, *, fenced: bool = False) -> Round:
    """One round; the same seed does the same again. `overtaken` is how the three late workers end.

    With `fenced`, the processor writes through `change.output`.
    """
    dice = random.Random(seed)
    output, expected = OutputBucket(), dict[str, bytes]()
    pipeline = LocalPipeline(process_to_output if fenced else output.process, deletes=True)
    for key in dice.sample(KEYS * 2, 2 * len(KEYS)):
        content = _image(dice)
        pipeline.put(key, content)
        expected[key] = greyscale(content)
    for key in dice.sample(KEYS, DELETED):
        pipeline.delete(key)
        del expected[key]
    pipeline.duplicate()
    faults = [dice.choice(_ENDS) if dice.random() < 1 / 4 else None for _ in range(_PLANNED)]
    for place in dice.sample(range(_EARLY), OVERTAKEN):
        faults[place] = overtaken
    pipeline.next(*faults)
    pipeline.run(seed=seed)
    assert not pipeline.dead_letters
    copies = {key: pipeline.output(COPIES, key) if fenced else output.objects.get(key) for key in KEYS}
    wrong = tuple(key for key in KEYS if pixels(copies[key]) != pixels(expected.get(key)))
    return Round(wrong, pipeline.outcomes, pipeline.late_writes, len(pipeline.calls))


def _image(dice: random.Random) -> bytes:
    output = BytesIO()
    Image.new("RGB", (2, 2), (dice.randrange(256), dice.randrange(256), dice.randrange(256))).save(output, "PNG")
    return output.getvalue()


_LINES: dict[str, Callable[[Round], int]] = {
    "rounds that end wrong": lambda one: bool(one.wrong),
    "keys that end wrong": lambda one: len(one.wrong),
    "late writes reported": lambda one: one.late_writes,
    "calls of the processor": lambda one: one.calls,
}


def main(rounds: int = ROUNDS) -> bool:
    """Play all rounds and print them; whether all ended right whose late workers lived, or wrote to outputs."""
    seeds = range(rounds)
    played = {
        "plain, they learn of it": [play(seed) for seed in seeds],
        "plain, they die before": [play(seed, Fault.OVERTAKEN_AND_KILLED) for seed in seeds],
        "output, they learn of it": [play(seed, fenced=True) for seed in seeds],
        "output, they die before": [play(seed, Fault.OVERTAKEN_AND_KILLED, fenced=True) for seed in seeds],
    }
    print(f"{rounds} rounds, {OVERTAKEN} late workers in each".ljust(38), *(f"{name:>25}" for name in played))
    for name, value in _LINES.items():
        print(name.ljust(38), *(f"{sum(value(one) for one in some):25,}" for some in played.values()))
    return not any(one.wrong for name, some in played.items() if name != "plain, they die before" for one in some)


if __name__ == "__main__":
    sys.exit(not main(*(int(one) for one in sys.argv[1:])))
