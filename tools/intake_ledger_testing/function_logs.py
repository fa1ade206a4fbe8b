"""Reads the CloudWatch logs of a function of a local AWS."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def read_lines(functions: Any, logs: Any, function: str) -> list[str]:
    """Return all lines of a function's log group, oldest first.

    Args:
        functions: boto3's client of Lambda.
        logs: boto3's client of CloudWatch Logs.
        function: the function's name.

    """
    configuration = functions.get_function_configuration(FunctionName=function)
    group = configuration.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{function}"
    # Read stream by stream: MiniStack's FilterLogEvents stops after 10,000 events without a token.
    events: list[tuple[int, str]] = []
    for stream in _streams(logs, group):
        events.extend(_events(logs, group, stream))
    events.sort(key=lambda event: event[0])
    return [line for _, message in events for line in message.splitlines()]


def json_objects(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the lines that are JSON objects."""
    for line in lines:
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def sum_metrics(lines: Sequence[str]) -> Counter[str]:
    """Return the sums of all metrics in embedded metric format, by metric name."""
    sums: Counter[str] = Counter()
    for record in json_objects(lines):
        for directive in record.get("_aws", {}).get("CloudWatchMetrics", ()):
            for metric in directive.get("Metrics", ()):
                value = record.get(metric["Name"], 0)
                sums[metric["Name"]] += sum(value) if isinstance(value, list) else value
    return sums


def _streams(logs: Any, group: str) -> list[str]:
    try:
        pages = list(logs.get_paginator("describe_log_streams").paginate(logGroupName=group))
    except logs.exceptions.ResourceNotFoundException:
        return []  # the function has not run yet
    return [stream["logStreamName"] for page in pages for stream in page["logStreams"]]


def _events(logs: Any, group: str, stream: str) -> Iterator[tuple[int, str]]:
    arguments = {"logGroupName": group, "logStreamName": stream}
    while True:
        page = logs.get_log_events(startFromHead=True, **arguments)
        yield from ((event["timestamp"], event["message"]) for event in page["events"])
        if page["nextForwardToken"] == arguments.get("nextToken") or not page["events"]:
            return
        arguments["nextToken"] = page["nextForwardToken"]
