"""The example's texts: the topics of Python's own help, each in several drafts."""

from __future__ import annotations

from pydoc_data.topics import topics

DRAFTS = 4
SHORT_TOPICS = 30
"""The number of topics in the short form."""


def names(*, short: bool) -> list[str]:
    """Return the keys of the texts."""
    chosen = sorted(topics)[:SHORT_TOPICS] if short else sorted(topics)
    return [f"texts/{name}.txt" for name in chosen]


def draft(key: str, number: int) -> bytes:
    """Return a draft of a text, from 1. A later draft is longer. Each draft has a different word.

    Args:
        key: the object's key.
        number: the number of the draft; drafts after `DRAFTS` have the whole text.

    """
    paragraphs = topics[key.removeprefix("texts/").removesuffix(".txt")].split("\n\n")
    part = paragraphs[: max(1, len(paragraphs) * min(number, DRAFTS) // DRAFTS)]
    return "\n\n".join([word_of(number), *part]).encode()


def word_of(number: int) -> str:
    """Return the word that only drafts with this number contain."""
    return f"draftnumber{number}"
