"""Checks of waits by delayed copies, and of Lambda's detection of recursive loops."""

from intake_ledger_cli.acceptance.checking import Check, CheckFailed
from intake_ledger_cli.acceptance.world import World

HOPS = 20
ROUNDS = 24
"""Rounds of a loop that Lambda stops after about 16."""
NO_COUNT = "MiniStack does not count the passes of a message through a function"


def _hop(world: World, pipeline: str) -> str:
    """Wait as 20 copies of a minute, or of a second on a local AWS."""
    deployed, key, seconds = world.pipeline(pipeline), "waits/a.json", 1 if world.local else 60
    version = world.put(pipeline, key, {"hops": HOPS, "seconds": seconds})
    delayed: list[int] = []

    def ended() -> bool:
        delayed.append(world.delayed(deployed.queue_url))
        return version in world.object_calls(pipeline, key)

    world.until(ended, f"a wait of {HOPS} hops has ended", seconds=600 + HOPS * seconds * 2)
    if not any(delayed):
        raise CheckFailed("no delayed message was seen: the waits were no copies")
    calls = world.object_calls(pipeline, key)
    if calls != {version: 1, f"{version}#calls": HOPS + 1}:
        raise CheckFailed(f"the calls were {calls}")
    return f"{HOPS} delayed copies of {seconds} s, then one effect"


def hops(world: World) -> str:
    """Wait alone in a function."""
    return _hop(world, "Waiting")


def hops_beside_a_loop(world: World) -> str:
    """Wait in a function that a loop of its user passes through."""
    place = f"{world.pipeline('Looping').bucket}/loop"
    world.put("Looping", "loop/first", {"loop": ROUNDS})
    detail = _hop(world, "Looping")
    rounds = sum(bool(world.calls(f"{place}/{left}")) for left in range(1, ROUNDS + 1))
    if not world.local and rounds == ROUNDS:
        raise CheckFailed(f"Lambda has not stopped a loop of {ROUNDS} rounds")
    return f"{detail}. The loop ended after {rounds} rounds"


CHECKS = (
    Check(
        name="hops",
        shows="Lambda does not take a wait of 20 delayed copies for a loop.",
        run=hops,
        assumptions=("LAM-06", "SQS-12", "SQS-13"),
        changes=HOPS,
        not_local=NO_COUNT,
        in_background=True,
    ),
    Check(
        name="hops-with-loop",
        shows="Lambda stops a loop of the processor's own, and not the copies that wait in the same function.",
        run=hops_beside_a_loop,
        assumptions=("LAM-06",),
        changes=HOPS + ROUNDS,
        not_local=NO_COUNT,
        in_background=True,
    ),
)
