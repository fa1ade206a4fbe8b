"""The usual consumer, with reports of its attempts."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote_plus

from examples.pictures.functions import usual_consumer
from examples.pictures.functions.attempts import reported


def handler(event: dict[str, Any], context: object) -> None:
    body = json.loads(event["Records"][0]["body"])  # its batches have one message
    with reported(unquote_plus(body["Records"][0]["s3"]["object"]["key"])):
        usual_consumer.handler(event, context)
