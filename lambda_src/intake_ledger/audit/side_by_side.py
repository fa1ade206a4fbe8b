"""Reads several iterators at the same time."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain, islice


def side_by_side[Item](sources: Sequence[Iterator[Item]], *, workers: int) -> Iterator[Item]:
    """The items of all sources, as they come: each source in its order, one item ahead, in at most so many threads."""
    if workers == 1:
        yield from chain.from_iterable(sources)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: dict[Future[list[Item]], Iterator[Item]] = {pool.submit(_next, one): one for one in sources}
        try:
            while waiting:
                for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                    source, found = waiting.pop(done), done.result()
                    if found:
                        waiting[pool.submit(_next, source)] = source
                    yield from found
        finally:
            pool.shutdown(cancel_futures=True)


def _next[Item](source: Iterator[Item]) -> list[Item]:
    """The next item, or nothing at the end."""
    return list(islice(source, 1))
