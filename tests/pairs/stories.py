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
    "a group commits although another state was written late": Script(
        (*OBJECTS, "together"),
        (
            *(Step("upload"), Step("turn", 0, 1, Fault("sleep", 0)), Step("overwrite"), Step("upload", 7)),
            *(Step("upload", 11), Step("time", 3), Step("turn", 1, 0, Fault("sleep", 0)), Step("wake"), Step("wake")),
        ),
    ),
    "a grouped commit without fence": Script(
        (*OBJECTS, "together"),
        (
            *(Step("upload"), Step("upload", 7), Step("upload", 11), Step("turn", 0, 0, Fault("sleep", -1))),
            *(Step("overwrite"), Step("time", 3), Step("turn", 1, 0, Fault("sleep", 0)), Step("wake"), Step("wake")),
        ),
    ),
    "the commit of a group hides a late write": Script(
        (*OBJECTS, "groups"),
        (
            *(Step("upload"), Step("turn", 0, 0, Fault("sleep", 0)), Step("overwrite"), Step("time", 3)),
            *(Step("turn", 1, 1, Fault("sleep", 0)), Step("wake"), Step("wake")),
        ),
    ),
    "the commit of a group does not ask for its lock": Script(
        (*OBJECTS, "groups"),
        (
            *(Step("upload"), Step("turn", 0, 0, Fault("sleep", -1)), Step("upload", 7), Step("time", 3)),
            *(Step("turn", 1, 1, Fault("sleep", -1)), Step("wake"), Step("wake")),
        ),
    ),
    "a late worker frees the group of its successor": Script(
        (*OBJECTS, "groups"),
        (
            *(Step("upload"), Step("turn", 0, 0, Fault("sleep", 0)), Step("upload", 7), Step("time", 3)),
            *(Step("turn", 1, 1, Fault("sleep", 0)), Step("wake", 0, 0, Fault("refuse", 1)), Step("wake")),
        ),
    ),
    "sets: rejected rows of an attempt without a commit stay": Script(
        ("sets", "inline", "lambda", "rejects"),
        (
            *(Step("part", 0, 12), Step("part", 0, 6), Step("manifest"), Step("turn", 0, 1, Fault("die after", -3))),
            *(Step("part"), Step("manifest"), Step("time", 3), Step("turn", 0, 1)),
        ),
    ),
    "an execution that a newer version has stopped spends its attempt": Script(
        ("objects", "machine", "lambda", "stop_overtaken"),
        (
            *(Step("upload"), Step("turn", 0, 1), Step("upload"), Step("turn", 0, 1)),
            *(Step("rollback"), Step("turn", 0, 1)),
        ),
    ),
    "a repeated start of an execution gives its claim up": Script(
        ("messages", "machine", "lambda", "rate"),
        (
            *(Step("send"), Step("turn", 0, 1, Fault("sleep", 0)), Step("time", 3), Step("send", 11), Step("send", 10)),
            *(Step("turn", 1), Step("turn", 1), Step("turn", 1), Step("wake")),
        ),
    ),
    "a redriven message vanishes behind another content of its identity": Script(
        ("messages", "inline", "lambda", "requests"),
        (Step("send", 0, 2), Step("turn"), Step("send"), Step("turn"), Step("redrive"), Step("turn")),
    ),
    "a late removal of a forgotten key gets a row": Script(
        (*OBJECTS, "deletes", "forget", "restore"),
        (
            *(Step("back up"), Step("restore"), Step("upload"), Step("turn", 0, 1), Step("rollback"), Step("double")),
            *(Step("turn", 0, 1), Step("time", 4), Step("forget"), Step("turn", 0, 1)),
        ),
    ),
    "a late write does not keep a tagged row": Script(
        (*OBJECTS, "tags", "expiring"),
        (
            *(Step("upload"), Step("turn", 0, 1, Fault("sleep", 0)), Step("overwrite"), Step("time", 3)),
            *(Step("turn", 1, 1, Fault("sleep", -2)), Step("wake"), Step("wake")),
        ),
    ),
    "the tag of a claimed row is cleared": Script(
        (*OBJECTS, "tags", "expiring"),
        (
            *(Step("upload"), Step("turn", 0, 0, Fault("sleep", -2)), Step("overwrite"), Step("time", 3)),
            *(Step("turn", 1, 1, Fault("sleep", 0)), Step("wake"), Step("wake")),
        ),
    ),
    "a claim does not see that a tag was cleared": Script(
        (*OBJECTS, "tags"),
        (
            *(Step("upload"), Step("turn", 0, 1, Fault("sleep", -2)), Step("overwrite")),
            *(Step("turn", 1, 1, Fault("sleep", 2)), Step("wake"), Step("wake")),
        ),
    ),
    "the tag of a version that is gone stays pending": Script(
        (*OBJECTS, "tags"),
        (
            *(Step("upload"), Step("upload"), Step("turn", 0, 1, Fault("refuse", -1)), Step("rollback")),
            *(Step("turn", 0, 1), Step("turn", 0, 1)),
        ),
    ),
    "executions: the copy of a rejection has the content of another message": Script(
        ("messages", "machine", "lambda", "fingerprint"),
        (Step("send", 0, 3), Step("turn", 0, 1), Step("send"), Step("end"), Step("turn"), Step("turn")),
    ),
    "executions: a removed object without a row leaves none": Script(
        ("objects", "machine", "lambda", "deletes"),
        (Step("overwrite"), Step("rollback"), Step("turn", 0, 5)),
    ),
    "sets: an old delivery of a wake ends the message of a claim": Script(
        ("sets", "machine", "lambda"),
        (
            *(Step("part"), Step("part", 0, 6), Step("manifest"), Step("turn", 0, 1, Fault("sleep", 1))),
            *(Step("time", 3), Step("turn", 1, 1), Step("wake"), Step("end", 0, 6)),
        ),
    ),
}
"""By the name of the defect. In most of them, two workers stand still at the same time."""
