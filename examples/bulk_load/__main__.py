"""Load small files into PostgreSQL, one by one and in calls, without faults and with them.

    python -m examples.bulk_load [--files 1000]

It prints transactions, the ledger's requests and the CPU time of this process for each file. The exit code is 0 if the
table is right in each round.
"""

import argparse
import sys

from examples.bulk_load.run import Round, load
from examples.postgres import postgres


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000, metavar="N")
    files = parser.parse_args().files
    with postgres() as server:
        rounds = {
            "one by one": load(server.new_database(), files, per_call=1),
            "in calls of 100": load(server.new_database(), files, per_call=100),
            "one by one, with faults": load(server.new_database(), files, per_call=1, seed=1),
            "in calls of 100, with faults": load(server.new_database(), files, per_call=100, seed=1),
        }
    for name, one in rounds.items():
        print(line(name, one, files))
    one, together = rounds["one by one"], rounds["in calls of 100"]
    print(f"CPU of one by one / in calls: {one.cpu_seconds / together.cpu_seconds:.1f}")
    return 0 if all(one.is_right for one in rounds.values()) else 1


def line(name: str, one: Round, files: int) -> str:
    result = "right" if one.is_right else f"{len(one.wrong)} WRONG ROWS"
    requests, cpu_ms = one.requests / files, one.cpu_seconds / files * 1_000
    numbers = f"{one.transactions:5} transactions, {requests:5.2f} requests and {cpu_ms:5.2f} ms CPU per file"
    return f"{name:30} {numbers}, table {result}"


if __name__ == "__main__":
    sys.exit(main())
