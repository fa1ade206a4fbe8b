"""Worlds that find a seeded defect of `defects.txt` which worlds at random seldom find."""

from tests.pairs.search import Script
from tests.pairs.world import Fault, Step

OBJECTS = ("objects", "inline", "lambda")
STORIES = {
    "a repeated removal swallows a request": Script(
        (*OBJECTS, "deletes", "requests"),
        (
            *(Step("upload"), Step("turn"), Step("remove"), Step("turn")),
            *(Step("remove"), Step("reprocess"), Step("turn", 0, 1)),
        ),
    ),
    "a stop withdraws work that has begun": Script(
        (*OBJECTS, "requests"),
        (
            *(Step("upload"), Step("turn"), Step("reprocess"), Step("turn", 0, 0, Fault("die", 0))),
            *(Step("stop"), Step("turn"), Step("turn")),
        ),
    ),
    "a processor starts before its group is free": Script(
        (*OBJECTS, "groups"),
        (
            *(Step("upload"), Step("upload", 7)),
            Step("turn", 0, 1, Fault("pause", 0, (Step("turn", 1, 1),))),
        ),
    ),
    "a row that waits for its group is asked about an execution": Script(
        ("objects", "machine", "lambda", "groups"),
        (
            *(Step("upload"), Step("turn", 0, 1), Step("upload", 7)),
            *(Step("turn", 0, 1), Step("turn", 0, 1), Step("turn", 0, 1)),
        ),
    ),
    "a file with rejected rows takes a removed object off its list": Script(
        (*OBJECTS, "rejects", "tags"),
        (
            *(Step("upload", 0, 6), Step("turn", 0, 1, Fault("refuse", -4)), Step("upload", 0, 3)),
            *(Step("turn", 0, 1), Step("remove"), Step("turn", 0, 1)),
        ),
    ),
    "the version of the last claim is tagged too": Script(
        (*OBJECTS, "tags"),
        (
            *(Step("upload"), Step("turn", 0, 1, Fault("refuse", -2)), Step("upload", 0, 3)),
            *(Step("turn"), Step("turn"), Step("turn")),
        ),
    ),
    "an execution whose end was not written loses its key": Script(
        ("messages", "machine", "lambda"),
        (
            *(Step("send"), Step("turn"), Step("end"), Step("turn", 0, 1, Fault("refuse", 3))),
            *(Step("send", 0, 12), Step("turn", 0, 1), Step("turn", 0, 1)),
        ),
    ),
    "the message of an execution is forgotten before its end": Script(
        ("messages", "machine", "lambda", "forget"),
        (
            Step("forget", 0, 0, Fault("pause", 1, (Step("send"), Step("turn")))),
            *(Step("end"), Step("turn")),
        ),
    ),
}
"""By the name of the defect."""
