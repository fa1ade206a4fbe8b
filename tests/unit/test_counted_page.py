"""Compare the figures in docs/cost.md with the computed figures."""

import re

import pytest
from benchmarks import cost, outputs

from intake_ledger_testing import prices

PAGE, LONG_PAGE = (path.read_text() for path in (cost.PAGE, cost.LONG_PAGE))


@pytest.fixture(scope="module")
def computed() -> dict[str, str]:
    return cost.page()


def test_the_tables_are_the_computed_ones(computed: dict[str, str]) -> None:
    """Each table is between its comments. `python -m benchmarks.cost --write` writes them again."""
    shown = dict(re.findall(r"<!-- begin: ([\w ]+) -->\n(.*?)\n<!-- end -->", PAGE, flags=re.DOTALL))
    assert shown == computed


def test_the_ways_to_do_long_work_have_the_computed_prices() -> None:
    [shown] = re.findall(r"<!-- begin: ways -->\n(.*?)\n<!-- end -->", LONG_PAGE, flags=re.DOTALL)
    assert {"ways": shown} == cost.long_page()


def test_the_sentence_of_the_readme_is_the_computed_one() -> None:
    [shown] = re.findall(r"<!-- begin: cost -->\n(.*?)\n<!-- end -->", cost.README.read_text(), flags=re.DOTALL)
    assert shown == cost.headline()


def test_the_prices_have_their_date_and_pages() -> None:
    assert prices.AS_OF in PAGE
    assert [page for page in prices.PAGES.values() if page not in PAGE] == []


def test_the_ledger_costs_no_more_than_powertools_idempotency() -> None:
    """For a new object, in what AWS charges for requests; within a cent for a million. Powertools logs nothing."""
    rows = cost.compared()
    ours, its = rows["the ledger, batches of 10 claimed together"], rows["Powertools idempotency"]
    assert ours["all"] - ours["log lines"] - ours["metrics"] <= its["all"] + 0.005
    assert its["log lines"] == its["metrics"] == 0
    assert rows["naive consumer"]["all"] < its["all"]


def test_a_new_object_has_one_line_of_less_than_a_kilobyte() -> None:
    """Each further line costs as much as half a write. Metrics are written once for a batch."""
    rows = cost.lines()
    assert rows["new key"]["log lines"] == rows["duplicate"]["log lines"] == rows["failed attempt"]["log lines"] == 1
    assert rows["new key"]["bytes of log lines"] < 1_000
    assert rows["new key, batch of 100"]["log lines"] == 1
    assert rows["new key, batch of 100"]["bytes of metrics"] <= 20


def test_the_first_output_is_one_request_and_a_later_one_two() -> None:
    assert outputs.first() == {"PutObject": 1}
    assert outputs.later() == outputs.removal() == outputs.retry() == {"HeadObject": 1, "PutObject": 1}


def test_an_upload_sends_each_part_once() -> None:
    upload = {"CreateMultipartUpload": 1, "UploadPart": outputs.PARTS, "CompleteMultipartUpload": 1}
    assert outputs.first(outputs.PARTS) == upload
    assert outputs.later(outputs.PARTS) == upload | {"HeadObject": 1}
