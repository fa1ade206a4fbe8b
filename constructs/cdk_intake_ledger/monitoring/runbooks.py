"""The descriptions of alarms. Each ends with the path of the alarm's runbook."""

import re

FOLDER = "docs/runbooks"
"""The folder in the repository. A path stays true where a URL of a release or a fork would not."""


def alarm_description(service: str, name: str, meaning: str) -> str:
    """Describe an alarm for the person whom it calls.

    Args:
        service: the name of the pipeline, intake or sets.
        name: the alarm's name, such as `DeadLetters`.
        meaning: the problem, as a part of a sentence.

    Returns:
        the description, with the path of the alarm's runbook at its end.

    """
    return f"{service}: {meaning} ({runbook_path(name)})"


def runbook_path(name: str) -> str:
    """Return the path of an alarm's runbook in the repository: `DeadLetters` has `docs/runbooks/dead-letters.md`.

    Args:
        name: the alarm's name.

    """
    return f"{FOLDER}/{re.sub(r'(?<!^)(?=[A-Z])', '-', name).lower()}.md"
