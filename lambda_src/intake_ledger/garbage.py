"""Pause Python's garbage collector while many objects are made that stay.

A number of new objects starts a collection, which looks at them and finds no garbage. Modules and the descriptions of
AWS services are such objects: without a pause, collections are a tenth of the CPU time of a cold start
(`python -m benchmarks.cold`).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection(*, freeze: bool = False) -> Iterator[None]:
    """Pause the collector in this block. Reference counts still free most objects.

    Args:
        freeze: exclude all objects that exist at the end from later collections, if the collector was on. Only for
            modules: cyclic garbage that exists then stays until the process ends.

    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if freeze:
                gc.freeze()
            gc.enable()
