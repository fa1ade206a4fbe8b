"""The one error that this library raises at synthesis."""

from collections.abc import Sequence


class IntakeConfigurationError(ValueError):
    """A pipeline cannot be built as it was described.

    All problems are collected and raised once, so that one synthesis shows everything there is to mend. Each says what
    is wrong, with the value that was given, and what to write instead.
    """

    path: str
    """Where in the construct tree: `Stack/Pipeline`."""

    problems: tuple[str, ...]
    """One line per problem."""

    def __init__(self, path: str, problems: Sequence[str]) -> None:
        """Put the problems into words: one on the line of the path, several below it.

        Args:
            path: of the construct.
            problems: at least one.

        """
        self.path = path
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            text = f"{path}: {self.problems[0]}"
        else:
            text = "\n  - ".join((f"{path}: {len(self.problems)} problems", *self.problems))
        super().__init__(text)
