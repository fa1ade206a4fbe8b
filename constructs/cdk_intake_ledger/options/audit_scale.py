"""How the audit goes through a bucket: in one function, in parts at the same time, or by what S3 has listed already."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from aws_cdk import Size, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.validation.audit_rules import (
    AUDIT_CONCURRENCY,
    INVENTORY_ID,
    JOIN_MEMORY,
    JOIN_MEMORY_NEEDS_DUCKDB,
    SCAN_LIMIT_MINIMUM,
    SCAN_LIMIT_NEEDS_ATHENA,
    SHARD_COUNT,
)
from cdk_intake_ledger.validation.nag_suppressions import REPORTED, Wildcards
from cdk_intake_ledger.validation.registry import Problem

MAX_SHARDS = 2_000
"""As many as one planner finds in the time that it has, about a look and a half at the bucket for each."""
MAX_CONCURRENCY = 1_000
"""Lambda's default quota of concurrent executions in a region, which the consumers share."""

LOOK_RATE = 50
"""Messages in a second that one function sends without effort: a HEAD takes some 30 ms, and eight go at a time."""
MIN_MEMORY, MAX_MEMORY = 1_769, 10_240
"""MB: one virtual CPU, and six (Lambda developer guide, "Configure Lambda function memory")."""
MIN_SCAN_LIMIT, SCAN_LIMIT = 10 * 2**20, 2**40
"""Bytes: the least that Athena takes, and the default. A billion objects with as many rows are some 90 GB
(https://docs.aws.amazon.com/athena/latest/APIReference/API_WorkGroupConfiguration.html)."""


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Where S3 Inventory's reports are."""

    bucket: s3.IBucket
    prefix: str
    id: str

    def folder(self, source: s3.IBucket) -> str:
        """What the keys of the reports about `source` begin with (S3 user guide, "Locating your inventory list")."""
        parts = (self.prefix.rstrip("/"), source.bucket_name, self.id)
        return "".join(f"{part}/" for part in parts if part)

    def allow(self, role: iam.Role, source: s3.IBucket, wildcards: Wildcards) -> None:
        """Let a role find and read them, and nothing else of their bucket."""
        folder = self.folder(source)
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[self.bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": f"{folder}*"}},
            )
        )
        files = self.bucket.arn_for_objects(f"{folder}*")
        role.add_to_policy(
            iam.PolicyStatement(sid="FilesOfTheInventoryByS3sNames", actions=["s3:GetObject"], resources=[files])
        )
        wildcards.suppress(role, files, REPORTED)
        if self.bucket.encryption_key is not None:
            self.bucket.encryption_key.grant(role, "kms:Decrypt")


class Engine(Enum):
    """What joins the audit's listing with the ledger's rows. Both run the same query over the same files."""

    DUCKDB = "DUCKDB"
    """DuckDB in one Lambda function, for some 100 million objects."""
    ATHENA = "ATHENA"
    """Amazon Athena, for more. `docs/scale.md` says what a query costs."""


class AuditScale:
    """How the audit goes through the bucket; made by one of three methods.

    `one` is right for up to some ten million objects, `shards` beyond that, and `inventory` where listing would cost
    too much or take too long and a finding may be two days late. `docs/scale.md` has what each takes and costs.
    """

    def __init__(
        self,
        *,
        parts: float | None = None,
        concurrency: float = 1,
        reports: Reports | None = None,
        join_memory: float = MAX_MEMORY,
        architecture: lambda_.Architecture | None = None,
        engine: Engine = Engine.DUCKDB,
        scan_limit: Size | None = None,
    ) -> None:
        """Not to be called: `one`, `shards` and `inventory` are there for that.

        Args:
            parts: into how many the bucket is divided at most; it is not when omitted.
            concurrency: how many parts are worked on at the same time; one when omitted.
            reports: the inventory whose files are the parts; the bucket is listed when omitted.
            join_memory: of the function that joins, in MB; 10,240 when omitted.
            architecture: of the audit's functions; arm64 when omitted.
            engine: joins the parts; DuckDB when omitted.
            scan_limit: the bytes that a query of Athena may read; 1 TiB when omitted.

        """
        self.parts = parts
        """Into how many parts the bucket is divided at most; None where it is not."""
        self.concurrency = concurrency
        """How many parts are worked on at the same time."""
        self.reports = reports
        """The inventory whose files are the parts; None where the bucket is listed."""
        self.join_memory = join_memory
        """Memory of the function that joins, in MB."""
        self.architecture = architecture or lambda_.Architecture.ARM_64
        """The architecture of the audit's functions."""
        self.engine = Engine(engine)
        """Joins the parts."""
        self.scan_limit = scan_limit
        """The bytes that a query of Athena may read; 1 TiB where it is None."""

    @classmethod
    def one(cls) -> Self:
        """One function lists the bucket and compares it with the ledger in one invocation."""
        return cls()

    @classmethod
    def shards(
        cls,
        count: int = 200,
        *,
        concurrency: int = 20,
        join_memory: int = 10_240,
        architecture: lambda_.Architecture | None = None,
        engine: Engine = Engine.DUCKDB,
        scan_limit: Size | None = None,
    ) -> Self:
        """A Step Functions Distributed Map lists the bucket in shards of its keys, and one query joins them with the
        ledger's rows.

        Args:
            count: into how many shards the keys are cut at most, 2 to 2,000; 200 when omitted. More of them are more
                even, and cost a fraction of a cent each. They are found anew in each run, from the keys themselves.
            concurrency: how many functions list at the same time, 1 to 1,000; 20 when omitted. They count against the
                account's concurrent executions, as the consumer does.
            join_memory: of the function that joins, in MB, 1,769 to 10,240; 10,240 when omitted, which is right for
                some 100 million objects. New accounts may have a lower quota.
            architecture: of the audit's functions; arm64 when omitted, which costs less.
            engine: what joins the listing with the rows; `Engine.DUCKDB` when omitted, and `Engine.ATHENA` for more
                than some 100 million objects. `join_memory` is for DuckDB alone.
            scan_limit: the bytes that one query of Athena may read, at least 10 MiB; 1 TiB when omitted, which costs
                $5. A query that would read more is cancelled, and the report says so.

        """
        return cls(
            parts=count,
            concurrency=concurrency,
            join_memory=join_memory,
            architecture=architecture,
            engine=engine,
            scan_limit=scan_limit,
        )

    @classmethod
    def inventory(
        cls,
        bucket: s3.IBucket,
        *,
        id: str,
        prefix: str = "",
        concurrency: int = 20,
        join_memory: int = 10_240,
        architecture: lambda_.Architecture | None = None,
        engine: Engine = Engine.DUCKDB,
        scan_limit: Size | None = None,
    ) -> Self:
        """A Distributed Map reads the data files of the newest S3 Inventory report. Nothing that changed since S3 made
        it is judged, and what differs is looked at in S3 before it counts.

        Args:
            bucket: where the reports are delivered to.
            id: the inventory's own; it has to be about all versions, with the fields Size, LastModifiedDate and ETag,
                and about all keys that the pipeline takes: without a prefix, or with one that is theirs. What it leaves
                out is not audited.
            prefix: the inventory's destination prefix; none when omitted.
            concurrency: how many files are read at the same time, 1 to 1,000; 20 when omitted.
            join_memory: as in `shards`; 10,240 MB when omitted.
            architecture: as in `shards`; arm64 when omitted.
            engine: as in `shards`; `Engine.DUCKDB` when omitted.
            scan_limit: as in `shards`; 1 TiB when omitted.

        """
        reports = Reports(bucket=bucket, prefix=prefix, id=id)
        return cls(
            parts=MAX_SHARDS,
            concurrency=concurrency,
            reports=reports,
            join_memory=join_memory,
            architecture=architecture,
            engine=engine,
            scan_limit=scan_limit,
        )

    @property
    def scanned_bytes(self) -> int:
        """The bytes that a query of Athena may read."""
        return SCAN_LIMIT if self.scan_limit is None else int(self.scan_limit.to_bytes())

    def looks(self, rate: float) -> int:
        """The number of functions that look at candidates at the same time, for this number of messages in a second.
        Part of the pipeline's own making.

        Args:
            rate: messages in a second.

        """
        if Token.is_unresolved(rate) or Token.is_unresolved(self.concurrency):
            return int(self.concurrency)
        return int(min(self.concurrency, math.ceil(rate / LOOK_RATE)))

    @property
    def in_parts(self) -> bool:
        """Whether a state machine runs the audit."""
        return self.parts is not None

    def allow_planning(self, role: iam.Role, source: s3.IBucket, wildcards: Wildcards) -> dict[str, Any]:
        """What the planner is told; the audit's role may go by it afterwards. Part of the pipeline's own making.

        Args:
            role: the audit's own.
            source: the bucket that is audited.
            wildcards: what the role may have with an asterisk.

        """
        # Each of those that work at the same time reads one segment of the ledger's table.
        plan: dict[str, Any] = {"parts": self.parts, "segments": self.concurrency}
        if self.reports is not None:
            self.reports.allow(role, source, wildcards)
            plan["inventory"] = {"bucket": self.reports.bucket.bucket_name, "prefix": self.reports.folder(source)}
        return plan

    def problems(self) -> Iterator[Problem]:
        """What cannot work, with the fix."""
        if self.parts is None:
            return
        if not Token.is_unresolved(self.parts) and not 2 <= self.parts <= MAX_SHARDS:
            yield SHARD_COUNT.problem(count=self.parts, most=MAX_SHARDS)
        if not Token.is_unresolved(self.concurrency) and not 1 <= self.concurrency <= MAX_CONCURRENCY:
            yield AUDIT_CONCURRENCY.problem(concurrency=self.concurrency, most=MAX_CONCURRENCY)
        if not Token.is_unresolved(self.join_memory) and not MIN_MEMORY <= self.join_memory <= MAX_MEMORY:
            yield JOIN_MEMORY.problem(memory=self.join_memory, least=MIN_MEMORY, most=MAX_MEMORY)
        if self.scan_limit is not None and self.engine is not Engine.ATHENA:
            yield SCAN_LIMIT_NEEDS_ATHENA.problem()
        if self.join_memory != MAX_MEMORY and self.engine is Engine.ATHENA:
            yield JOIN_MEMORY_NEEDS_DUCKDB.problem()
        if not Token.is_unresolved(self.scanned_bytes) and self.scanned_bytes < MIN_SCAN_LIMIT:
            yield SCAN_LIMIT_MINIMUM.problem(limit=self.scanned_bytes, least=MIN_SCAN_LIMIT)
        if self.reports is not None and not self.reports.id:
            yield INVENTORY_ID.problem()
