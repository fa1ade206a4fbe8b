"""Sizes are those of UTF-8, of what is sent."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalMessages, LocalRunner
from intake_ledger import Unprocessable
from intake_ledger.events.parser import OWN_MESSAGE
from intake_ledger.messages.settings import MessageSourceType
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.utf8_json import json_text
from tests.settings import examples
from tests.unit.messages.support import dynamodb
from tests.unit.messages.test_streams import ShortQueues

TAKEN_BY_SQS = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@pytest.mark.failure_mode("F654")
@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
@example({"\ud800\ufffe": "\uffff\udfff\x00", "\U0001f600": "\u4e2d"})
@settings(max_examples=examples(300))
def test_json_is_taken_by_sqs_and_means_the_same(value: Any) -> None:
    text = json_text(value)
    assert TAKEN_BY_SQS.fullmatch(text)
    assert json.loads(text) == value
    assert len(text.encode()) <= len(json.dumps(value))


@pytest.mark.failure_mode("F654")
def test_a_long_text_in_another_script_fits_an_execution_and_a_dead_letter() -> None:
    """As ASCII it would be twice as long."""
    text = "\u4e2d" * 60_000
    local = LocalMessages(lambda _: {"commit": "x"}, key="k", identity="id", runner=LocalRunner.STATE_MACHINE)
    local.send({"k": "a", "id": 1, "text": text})
    local.send({"k": "b", "id": 2, "text": text * 2})
    local.run()
    short, long = local.row("a", 1), local.row("b", 2)
    assert short is not None
    assert short.status is Status.PROCESSED
    assert long is not None
    assert str(long.reason).startswith("the input of the execution has 36")

    def rejects(_: object) -> None:
        raise Unprocessable("no")

    intake = ShortQueues(MessageSourceType.DYNAMODB, rejects, key="dynamodb.Keys.order", identity="eventID")
    record = dynamodb("o-1", "e-1", 1)
    record["dynamodb"] |= {"NewImage": {"t": {"S": text * 2}}, "OldImage": {"t": {"S": "\ud800\ufffe" + text}}}
    intake.handle([record])
    [letter] = intake.sqs.dead_letters
    assert json.loads(letter.body)[OWN_MESSAGE]["record"] == record
