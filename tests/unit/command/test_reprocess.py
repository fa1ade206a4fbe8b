"""Requests to process objects again, with moto's SQS, S3 and DynamoDB."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger_cli.act.again import send_requests
from intake_ledger_cli.act.selection import ReprocessResult, Target, key_targets, prefix_targets
from intake_ledger_cli.act.sender import TRIES
from intake_ledger_cli.errors import CliError
from tests.unit.command.support import SENDER_ID, Site, client, make_sender, make_site
from tests.unit.support import DAY, START

LATER = START + DAY

pytestmark = pytest.mark.usefixtures("dynamodb")


def keys(site: Site, *names: str, version: str | None = None, result: ReprocessResult | None = None) -> list[Target]:
    return list(key_targets(client("s3"), site.deployed, names, version, result or ReprocessResult()))


def prefix(site: Site, name: str, result: ReprocessResult) -> list[Target]:
    aws: Any = SimpleNamespace(s3=client("s3"), dynamodb=client("dynamodb"))
    return list(prefix_targets(aws, site.deployed, name, result))


def send(site: Site, targets: Iterable[Target], sqs: Any = None) -> ReprocessResult:
    result = ReprocessResult()
    send_requests(make_sender(site.deployed, sqs), targets, result)
    return result


def test_a_key_is_asked_for_as_the_consumer_understands_it() -> None:
    """In LATEST the request has no version, so that the current state is processed."""
    site = make_site()
    site.put("in/a b.csv")
    assert send(site, keys(site, "in/a b.csv")).sent == 1
    [change] = site.changes()
    assert (change.bucket, change.key, change.reprocess_id) == (site.deployed.bucket, "in/a b.csv", SENDER_ID)
    assert change.state is None


def test_a_key_that_s3_never_had_is_a_typing_error() -> None:
    """Nothing is sent. A removed key is also refused if the pipeline does not process removals."""
    site = make_site()
    site.put("in/a", "in/abc")
    client("s3").delete_object(Bucket=site.deployed.bucket, Key="in/a")
    for key in ("in/ab", "in/a"):
        with pytest.raises(CliError, match=f"no object {key} in"):
            keys(site, key)


def test_a_removed_key_is_asked_for_where_the_processor_hears_of_removals() -> None:
    """A key that S3 does not have is reported, because it may be misspelled."""
    site, result = make_site(deletes=True), ReprocessResult()
    site.put("in/a")
    client("s3").delete_object(Bucket=site.deployed.bucket, Key="in/a")
    assert keys(site, "in/a", "in/b", result=result) == [Target("in/a"), Target("in/b")]
    assert result.absent == ["in/b"]


def test_a_key_beside_the_filters_is_refused() -> None:
    """The pipeline never processes such a key."""
    site = make_site(filters=(KeyFilter("in/", ".csv"), KeyFilter("b/")))
    site.put("in/a.txt")
    with pytest.raises(CliError, match=r"in/a.txt matches none of the pipeline's filters: in/\*.csv, b/\*"):
        keys(site, "in/a.txt")


def test_a_version_of_a_pipeline_that_knows_the_latest_alone_is_refused() -> None:
    """The consumer would process the current version and ignore the given one."""
    site = make_site()
    [version] = site.put("in/a")
    with pytest.raises(CliError, match="LATEST"):
        keys(site, "in/a", version=version)


def test_in_every_version_each_is_asked_for_or_the_one_that_is_named() -> None:
    """In EVERY_VERSION the consumer refuses a request without a version."""
    site = make_site(Ordering.EVERY_VERSION)
    versions = site.put("in/a", "in/a", "in/ab")[:2]
    send(site, keys(site, "in/a"))
    changes = site.changes()
    assert sorted(change.identity or "" for change in changes) == sorted(f"v#{version}" for version in versions)
    [target] = keys(site, "in/a", version=versions[0])
    assert target.state is not None
    assert target.state.version_id == versions[0]
    with pytest.raises(CliError, match="no version gone of in/a"):
        keys(site, "in/a", version="gone")


@pytest.mark.parametrize("deletes", [True, False])
def test_in_every_version_a_delete_marker_counts_where_removals_do(deletes: bool) -> None:
    """A delete marker is a separate change."""
    site = make_site(Ordering.EVERY_VERSION, deletes=deletes)
    site.put("in/a")
    client("s3").delete_object(Bucket=site.deployed.bucket, Key="in/a")
    kinds = [target.state.kind for target in prefix(site, "", ReprocessResult()) if target.state]
    assert kinds == ([StateKind.MARKER] if deletes else []) + [StateKind.OBJECT]


@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_prefix_is_what_s3_has_now_as_far_as_the_filters_reach(ordering: Ordering) -> None:
    """Keys that the filters exclude are counted."""
    site, result = make_site(ordering, filters=(KeyFilter(suffix=".csv"),)), ReprocessResult()
    site.put("in/a.csv", "in/b.txt", "in/c.csv", "out/d.csv")
    client("s3").delete_object(Bucket=site.deployed.bucket, Key="in/c.csv")
    found = [target.key for target in prefix(site, "in/", result)]
    # The older version remains below the delete marker.
    assert found == (["in/a.csv"] if ordering is Ordering.LATEST else ["in/a.csv", "in/c.csv"])
    assert result.skipped == 1


@pytest.mark.failure_mode("F280")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_directory_markers_under_a_prefix_are_counted_and_one_that_is_named_is_requested(ordering: Ordering) -> None:
    """A prefix does not mean them, and each would be a dead letter."""
    site, result = make_site(ordering), ReprocessResult()
    site.deployed = replace(site.deployed, directory_markers=False)
    site.put("in/a.csv", "in/b/c.csv")
    for key in ("in/", "in/b/"):
        client("s3").put_object(Bucket=site.deployed.bucket, Key=key, Body=b"")
    assert [target.key for target in prefix(site, "in/", result)] == ["in/a.csv", "in/b/c.csv"]
    assert (result.skipped, result.directory_markers) == (0, 2)
    assert [target.key for target in keys(site, "in/b/")] == ["in/b/"]


def test_the_same_id_sends_the_same_messages() -> None:
    """F78: the ledger accepts an ID once per object, so that an interrupted call can be repeated as a whole."""
    site = make_site()
    targets = [Target(f"in/{number}") for number in range(23)]
    send(site, targets)
    first = sorted(message["body"] for message in site.messages())
    send(site, iter(targets))
    assert sorted(message["body"] for message in site.messages()) == first
    assert len(first) == 23


class Moody:
    """A client that refuses a message some times."""

    def __init__(self, key: str, times: int) -> None:
        self._key = f'"{key}"'
        self._times: Iterator[int] = iter(range(times))

    def send_message_batch(self, **request: Any) -> Any:
        bad = [
            one for one in request["Entries"] if self._key in one["MessageBody"] and next(self._times, None) is not None
        ]
        request["Entries"] = [one for one in request["Entries"] if one not in bad]
        answer: Any = client("sqs").send_message_batch(**request) if request["Entries"] else {}
        return {**answer, "Failed": [{"Id": one["Id"], "Code": "Busy"} for one in bad]}


@pytest.mark.parametrize(("times", "lost"), [(TRIES - 1, 0), (TRIES, 1)])
def test_a_message_that_sqs_does_not_take_is_tried_again_and_told(times: int, lost: int) -> None:
    """The other messages are sent once."""
    site = make_site()
    result = send(site, [Target("in/a"), Target("in/b"), Target("in/c")], Moody("in/b", times))
    assert [(one.key, one.why) for one in result.failed] == [("in/b", "Busy")][:lost]
    assert result.sent == 3 - lost
    assert len(site.messages()) == 3 - lost
