"""Large answers of AWS are read as botocore reads them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ClientError

from intake_ledger.audit.listing import BucketListing, Place
from intake_ledger.aws.page_parsing import parse_scans_directly, parse_versions_once
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Row, RowKey, Status
from tests.unit.audit.support import AuditWorld
from tests.unit.support import create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEYS = ("plain", "a+b %2B &lt;.csv", "ä/ü 💧", "trailing ", "#?=")


@pytest.fixture
def bucket(dynamodb: "DynamoDBClient", request: pytest.FixtureRequest) -> str:
    """One with versions, an overwritten key, a removed one, and names that need escaping."""
    del dynamodb
    name = f"lean-{abs(hash(request.node.name)) % 10**8}"
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for key in KEYS:
        s3.put_object(Bucket=name, Key=key, Body=b"one")
    s3.put_object(Bucket=name, Key=KEYS[0], Body=b"three")
    s3.delete_object(Bucket=name, Key=KEYS[1])
    return name


def entries(page: Any, *names: str) -> list[Any]:
    used = ("Key", "VersionId", "IsLatest", "LastModified", "ETag", "Size")
    return [
        (name, [{attribute: entry[attribute] for attribute in used if attribute in entry} for entry in page[name]])
        for name in names
        if name in page
    ]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_listing_is_parsed_as_botocore_parses_it(bucket: str, size: int) -> None:
    """Page by page, with the keys as they are and the markers that lead to the next page."""
    usual, lean = boto3.client("s3"), boto3.client("s3")
    parse_versions_once(lean)

    def pages(client: Any) -> list[Any]:
        paginator = client.get_paginator("list_object_versions")
        return list(paginator.paginate(Bucket=bucket, PaginationConfig={"PageSize": size}))

    ours, theirs = pages(lean), pages(usual)
    for our, their in zip(ours, theirs, strict=True):
        assert entries(our, "Versions", "DeleteMarkers") == entries(their, "Versions", "DeleteMarkers")
        for name in ("IsTruncated", "NextKeyMarker", "NextVersionIdMarker"):
            assert our.get(name) == their.get(name)
    listed = {entry["Key"] for page in ours for entry in page.get("Versions", ())}
    assert listed == set(KEYS)


PAGE = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>uploads</Name><Prefix/><KeyMarker/><VersionIdMarker/><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType>
  <IsTruncated>true</IsTruncated><NextKeyMarker>a%01%0A%2B+b</NextKeyMarker><NextVersionIdMarker>null</NextVersionIdMarker>
  <Version><Key>a%01%0A%2B+b</Key><VersionId>null</VersionId><IsLatest>false</IsLatest>
    <LastModified>2026-11-21T20:17:13.000Z</LastModified><ETag>&quot;d41d8&quot;</ETag><Size>5497558138880</Size>
    <Owner><ID>1</ID><DisplayName>x</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Version>
  <DeleteMarker><Key>a%01%0A%2B+b</Key><VersionId>2</VersionId><IsLatest>true</IsLatest>
    <LastModified>2026-11-21T20:17:14Z</LastModified><Owner><ID>1</ID></Owner></DeleteMarker>
  <CommonPrefixes><Prefix>in/</Prefix></CommonPrefixes>
</ListVersionsResult>"""


def answered(body: bytes) -> Iterator[Any]:
    """A lean client and a usual one, both of which get this answer to everything."""

    def answer(**_: Any) -> Any:
        response: Any = AWSResponse("https://s3", 200, HTTPHeaders(), None)
        response._content = body
        return response

    for reads in (parse_versions_once, lambda _: None):
        client = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}))
        client.meta.events.register_first("before-send.s3", answer)
        reads(client)
        yield client


def test_a_page_is_read_once(dynamodb: "DynamoDBClient") -> None:
    """botocore's own handlers, which would read all of it to see whether it is an error, find nothing left."""
    del dynamodb
    left: list[bytes] = []
    for client in answered(PAGE):
        client.meta.events.register_first(
            "before-parse.s3.*", lambda response_dict, **_: left.append(response_dict["body"])
        )
        client.list_object_versions(Bucket="uploads")
    assert left == [b"", PAGE]


SPARSE = b"<ListVersionsResult><IsTruncated>false</IsTruncated><Version><Key>a</Key></Version></ListVersionsResult>"


@pytest.mark.parametrize("body", [SPARSE, b"", b"<html><IsTruncated>false</IsTruncated></html>"])
def test_what_is_no_usual_page_is_read_as_botocore_does(dynamodb: "DynamoDBClient", body: bytes) -> None:
    """A page without a required element, or an answer that is not a page."""
    del dynamodb
    ours, theirs = (client.list_object_versions(Bucket="uploads") for client in answered(body))
    assert {name: ours[name] for name in ours if name != "ResponseMetadata"} == {
        name: theirs[name] for name in theirs if name != "ResponseMetadata"
    }


@pytest.mark.parametrize("body", [b"<Error><Code>InternalError</Code></Error>", PAGE[:-40], PAGE[:60]])
def test_an_error_inside_200_is_one(dynamodb: "DynamoDBClient", body: bytes) -> None:
    """S3 may fail when it has begun to answer; that is repeated, and never taken for the end of the bucket."""
    del dynamodb
    for client in answered(body):
        with pytest.raises(ClientError, match=r"InternalError|500"):
            client.list_object_versions(Bucket="uploads")


@pytest.mark.parametrize("operation", ["list_object_versions", "list_objects_v2"])
def test_an_answer_that_is_no_page_is_not_the_end_of_the_bucket(
    dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """A proxy's page, or nothing at all: everything behind it would go unnoticed."""
    del dynamodb
    settings = AuditWorld().settings
    monkeypatch.setattr(BucketListing, "versioned", lambda _: operation == "list_object_versions")
    for client in answered(b"<html/>"):
        with pytest.raises(RuntimeError, match="no page"):
            list(BucketListing(client, settings).pages(Place("")))


def test_a_listing_as_s3_writes_it(dynamodb: "DynamoDBClient") -> None:
    """Characters that XML cannot have are encoded, and there are unknown elements. moto has neither."""
    del dynamodb

    ours, theirs = (client.list_object_versions(Bucket="uploads") for client in answered(PAGE))
    assert entries(ours, "Versions", "DeleteMarkers") == entries(theirs, "Versions", "DeleteMarkers")
    assert ours["NextKeyMarker"] == theirs["NextKeyMarker"] == ours["Versions"][0]["Key"]
    assert (ours["NextVersionIdMarker"], ours["IsTruncated"]) == ("null", True)


def test_an_empty_listing(bucket: str) -> None:
    """No page has anything."""
    lean = boto3.client("s3")
    parse_versions_once(lean)
    page = lean.list_object_versions(Bucket=bucket, Prefix="none")
    assert page["IsTruncated"] is False
    assert "Versions" not in page


def test_a_refused_listing(bucket: str) -> None:
    """The error is botocore's."""
    lean = boto3.client("s3")
    parse_versions_once(lean)
    with pytest.raises(ClientError, match="NoSuchBucket"):
        lean.list_object_versions(Bucket=f"{bucket}-none")


def test_a_scan_is_parsed_as_botocore_parses_it(dynamodb: "DynamoDBClient") -> None:
    """Texts, numbers and the place where the next page begins."""
    create_table(dynamodb, "lean")
    lean = boto3.client("dynamodb")
    parse_scans_directly(lean)
    table = LedgerTable(dynamodb, "lean")
    for number, key in enumerate(KEYS):
        row = Row(Status.FAILED, number, reason='"quoted" ä\\', retry_at=2**60)
        table.insert(RowKey(f"uploads/{key}", "p@latest"), row)
    ours, theirs = lean.scan(TableName="lean", Limit=4), dynamodb.scan(TableName="lean", Limit=4)
    assert ours["Items"] == theirs["Items"]
    assert len(ours["Items"]) == 4
    assert ours["LastEvaluatedKey"] == theirs["LastEvaluatedKey"]
    with pytest.raises(dynamodb.exceptions.ResourceNotFoundException):
        lean.scan(TableName="none")
