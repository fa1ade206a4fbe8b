"""A clock that stands still, and random numbers that repeat, for all code of this process.

`datetime` is written in C and reads the system's clock by itself. So its class methods are replaced in the class:
a class in its place would be another one than the code of this library compares with.
"""

import ctypes
import datetime as dt
import gc
import hashlib
import os
import random
import time
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

_NODE = 0x010203040506


class StillClock:
    """The time and the chance of one call. `install` first, once in a process."""

    def __init__(self) -> None:
        """Make one. Nothing is replaced yet."""
        self.now = 0
        """Epoch milliseconds."""
        self._seed = ""
        self._drawn = count()

    def set(self, now: int, seed: str) -> None:
        """Set the time, and begin the random numbers of this seed."""
        self.now, self._seed, self._drawn = now, seed, count()
        random.seed(seed)
        vars(uuid)["_last_timestamp"] = None

    def install(self) -> None:
        """Replace the functions of Python that give the time and random numbers.

        Raises:
            RuntimeError: This Python cannot replace those of `datetime`.

        """
        self._replace_time()
        self._replace_datetime()
        chance: Any = self._random_bytes
        for module, name in ((os, "urandom"), (random, "_urandom")):
            vars(module)[name] = chance
        if hasattr(os, "getrandom"):
            vars(os)["getrandom"] = lambda size, _flags=0: chance(size)
        # Otherwise uuid1 asks a library for the time, or starts a program.
        vars(uuid).update(_generate_time_safe=None, _node=_NODE)

    def _random_bytes(self, size: int) -> bytes:
        return hashlib.shake_256(f"{self._seed} {next(self._drawn)}".encode()).digest(size)

    def _seconds(self) -> float:
        return self.now / 1000

    def _replace_time(self) -> None:
        real = {name: getattr(time, name) for name in ("gmtime", "localtime", "ctime", "asctime", "strftime")}

        def at(name: str) -> Callable[..., Any]:
            return lambda seconds=None: real[name](self._seconds() if seconds is None else seconds)

        def shown(moment: Any = None) -> str:
            return str(real["asctime"](real["localtime"](self._seconds()) if moment is None else moment))

        def formatted(form: str, moment: Any = None) -> str:
            return str(real["strftime"](form, real["localtime"](self._seconds()) if moment is None else moment))

        vars(time).update(
            time=self._seconds,
            time_ns=lambda: self.now * 1_000_000,
            **{name: at(name) for name in ("gmtime", "localtime", "ctime")},
            asctime=shown,
            strftime=formatted,
        )

    def _replace_datetime(self) -> None:
        def now(cls: Any, tz: Any = None) -> Any:
            return cls.fromtimestamp(self._seconds(), tz)

        def utcnow(cls: Any) -> Any:
            return cls.fromtimestamp(self._seconds(), dt.UTC).replace(tzinfo=None)

        def today(cls: Any) -> Any:
            return cls.fromtimestamp(self._seconds())

        _replace_in(dt.datetime, now=now, utcnow=utcnow)
        _replace_in(dt.date, today=today)
        self.now = 86_400_000
        if dt.datetime.now(dt.UTC).year != 1970:
            raise RuntimeError("this Python does not let the clock of datetime stand still")


def _replace_in(kind: type, **methods: Callable[..., Any]) -> None:
    """Replace class methods of a class that is written in C. Its namespace is a read-only view of a dict."""
    for one in gc.get_referents(kind.__dict__):
        if isinstance(one, dict):
            one.update({name: classmethod(method) for name, method in methods.items()})
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
