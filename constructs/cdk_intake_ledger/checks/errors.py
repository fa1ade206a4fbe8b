"""The error that this library raises at synthesis."""

from collections.abc import Sequence


class IntakeConfigurationError(ValueError):
    """The options of a pipeline cannot work.

    One error has all problems. Each problem names the given value and the fix, and ends with the ID of its rule:
    `[intake-ledger:batch-size-range]`. docs/validation.md has all rules.
    """

    path: str
    """The construct's path: `Stack/Pipeline`."""

    problems: tuple[str, ...]
    """One text for each problem."""

    def __init__(self, path: str, problems: Sequence[str]) -> None:
        """Make the error. A single problem is on the line of the path, several are below it.

        Args:
            path: the construct's path.
            problems: one text for each problem, at least one.

        """
        self.path = path
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            text = f"{path}: {self.problems[0]}"
        else:
            text = "\n  - ".join((f"{path}: {len(self.problems)} problems", *self.problems))
        super().__init__(text)
