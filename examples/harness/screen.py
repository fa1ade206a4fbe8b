"""The terminal of a comparison."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


type Show = Callable[[int, str], None]
"""Sets the progress of a bar and a remark."""


class Screen:
    """The terminal: lines of text, and a progress bar while the comparison waits."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, width=120)  # a log: no bars, no line breaks
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{self.elapsed:5.0f} s[/]  {text}")

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    @contextmanager
    def bar(self, what: str, total: int | None) -> Iterator[Show]:
        """Show a progress bar. The yielded function sets its progress and a remark."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            *((MofNCompleteColumn(),) if total else ()),
            TextColumn("{task.fields[remark]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as progress:
            task = progress.add_task(what, total=total, remark="")
            yield lambda done, remark: progress.update(task, completed=done, remark=remark)
