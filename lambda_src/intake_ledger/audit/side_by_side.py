"""Reads several iterators in parallel."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain, islice


def side_by_side[Item](sources: Sequence[Iterator[Item]], *, workers: int) -> Iterator[Item]:
    """Yield the items of all sources, each in its order. At most `workers` threads read one item ahead."""
    if workers == 1:
        yield from chain.from_iterable(sources)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: dict[Future[list[Item]], Iterator[Item]] = {pool.submit(_next, source): source for source in sources}
        try:
            while waiting:
                for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                    source, items = waiting.pop(done), done.result()
                    if items:
                        waiting[pool.submit(_next, source)] = source
                    yield from items
        finally:
            pool.shutdown(cancel_futures=True)


def _next[Item](source: Iterator[Item]) -> list[Item]:
    """A list of the next item, or an empty list at the end."""
    return list(islice(source, 1))
