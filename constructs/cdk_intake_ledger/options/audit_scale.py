"""The scale of the audit: one function, shards of the bucket, or an S3 Inventory report."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from aws_cdk import Size, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.limits import (
    MAX_CONCURRENCY,
    MAX_MEMORY,
    MAX_SHARDS,
    MIN_MEMORY,
    MIN_SCAN_LIMIT,
    MIN_SHARDS,
)
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.audit_rules import (
    AUDIT_CONCURRENCY,
    INVENTORY_ID,
    JOIN_MEMORY,
    JOIN_MEMORY_NEEDS_DUCKDB,
    SCAN_LIMIT_MINIMUM,
    SCAN_LIMIT_NEEDS_ATHENA,
    SHARD_COUNT,
)
from cdk_intake_ledger.resources.key_access import BUCKET_READ_KEY_ACTIONS, grant_key

LOOK_RATE = 50
"""Messages per second that one function can send. A HEAD takes about 30 ms, and a function sends 8 at the same time."""
SCAN_LIMIT = 2**40
"""The default in bytes. A billion objects with a row each have about 90 GB."""


@dataclass(frozen=True, kw_only=True)
class InventoryReports:
    """The place of S3 Inventory's reports."""

    bucket: s3.IBucket
    prefix: str
    id: str

    def folder(self, source: s3.IBucket) -> str:
        """The prefix of the reports about `source` (S3 user guide, "Locating your inventory list")."""
        parts = (self.prefix.rstrip("/"), source.bucket_name, self.id)
        return "".join(f"{part}/" for part in parts if part)

    def allow(self, role: iam.Role, source: s3.IBucket) -> None:
        """Allow a role to list and read the reports, and nothing else in their bucket."""
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
        if self.bucket.encryption_key is not None:
            grant_key(self.bucket.encryption_key, role, *BUCKET_READ_KEY_ACTIONS)


class Engine(Enum):
    """The engine that joins the audit's listing with the ledger's rows. Both run the same query over the same files."""

    DUCKDB = "DUCKDB"
    """DuckDB in one Lambda function, for up to about 100 million objects."""
    ATHENA = "ATHENA"
    """Amazon Athena, for more objects. `docs/scale.md` has the cost of a query."""


@check_arguments
@dataclass(frozen=True, kw_only=True)
class AuditScale:
    """The way in which the audit reads the bucket. Make it with `one`, `shards` or `inventory`.

    Use `one` for up to about ten million objects, and `shards` for more. Use `inventory` if listing takes too long or
    costs too much, and findings may be two days late. `docs/scale.md` has the times and costs.
    """

    parts: float | None = None
    """The maximum number of parts of the bucket. One function reads all of it when omitted."""
    concurrency: float = 1
    """The number of parts that are read at the same time; 1 when omitted."""
    reports: InventoryReports | None = None
    """The inventory whose files are the parts. The bucket is listed when omitted."""
    join_memory: float = MAX_MEMORY
    """Memory of the function that joins, in MB; 10,240 when omitted."""
    architecture: lambda_.Architecture = field(default_factory=lambda: lambda_.Architecture.ARM_64)
    """The architecture of the audit's functions; arm64 when omitted."""
    engine: Engine = Engine.DUCKDB
    """The engine that joins the parts; DuckDB when omitted."""
    scan_limit: Size | None = None
    """The maximum size of the data that a query of Athena reads; 1 TiB when omitted."""

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
        """List the bucket in shards of its keys with a Step Functions Distributed Map. One query joins the shards with
        the ledger's rows.

        Args:
            count: the maximum number of shards, 2 to 2,000; 200 when omitted. Each costs a fraction of a cent, and more
                shards are more even. Each run determines their limits from the keys.
            concurrency: the number of functions that list at the same time, 1 to 1,000; 20 when omitted. They use the
                account's quota of concurrent executions, as the consumer does.
            join_memory: memory of the function that joins, in MB, 1,769 to 10,240; 10,240 when omitted, which suits up
                to about 100 million objects. The quota of a new account may be lower. Only DuckDB uses it.
            architecture: architecture of the audit's functions; arm64, which costs less, when omitted.
            engine: the engine that joins the listing with the rows; `Engine.DUCKDB` when omitted. Use `Engine.ATHENA`
                for more than about 100 million objects.
            scan_limit: the maximum size of the data that a query of Athena reads, at least 10 MiB; 1 TiB, which costs
                $5, when omitted. A larger query is cancelled, and the report says so.

        Returns:
            the scale.

        """
        return cls(
            parts=count,
            concurrency=concurrency,
            join_memory=join_memory,
            architecture=architecture or lambda_.Architecture.ARM_64,
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
        """Read the data files of the newest S3 Inventory report with a Distributed Map. The audit judges no change that
        is newer than the report. It asks S3 for the current state of each difference.

        Args:
            bucket: the destination bucket of the reports.
            id: the id of the inventory configuration. It must include all versions, the fields Size, LastModifiedDate
                and ETag, and all keys that the pipeline processes. The audit does not see other keys.
            prefix: the inventory's destination prefix; none when omitted.
            concurrency: the number of files that are read at the same time, 1 to 1,000; 20 when omitted.
            join_memory: as in `shards`; 10,240 MB when omitted.
            architecture: as in `shards`; arm64 when omitted.
            engine: as in `shards`; `Engine.DUCKDB` when omitted.
            scan_limit: as in `shards`; 1 TiB when omitted.

        Returns:
            the scale.

        """
        reports = InventoryReports(bucket=bucket, prefix=prefix, id=id)
        return cls(
            parts=MAX_SHARDS,
            concurrency=concurrency,
            reports=reports,
            join_memory=join_memory,
            architecture=architecture or lambda_.Architecture.ARM_64,
            engine=engine,
            scan_limit=scan_limit,
        )

    @property
    def scanned_bytes(self) -> int:
        """The maximum size of the data that a query of Athena reads, in bytes."""
        return SCAN_LIMIT if self.scan_limit is None else int(self.scan_limit.to_bytes())

    def looks(self, rate: float) -> int:
        """The number of functions that look at candidates at the same time. The pipeline calls this.

        Args:
            rate: messages per second.

        Returns:
            the number of functions.

        """
        if Token.is_unresolved(rate) or Token.is_unresolved(self.concurrency):
            return int(self.concurrency)
        return int(min(self.concurrency, math.ceil(rate / LOOK_RATE)))

    @property
    def in_parts(self) -> bool:
        """True if a state machine runs the audit."""
        return self.parts is not None

    def allow_planning(self, role: iam.Role, source: s3.IBucket) -> dict[str, Any]:
        """The planner's input, after permission to read the inventory. The pipeline calls this.

        Args:
            role: the role of the audit's function.
            source: the bucket that is audited.

        Returns:
            the input as JSON values.

        """
        # Each of the concurrent functions reads one segment of the ledger's table.
        plan: dict[str, Any] = {"parts": self.parts, "segments": self.concurrency}
        if self.reports is not None:
            self.reports.allow(role, source)
            plan["inventory"] = {"bucket": self.reports.bucket.bucket_name, "prefix": self.reports.folder(source)}
        return plan

    def problems(self) -> Iterator[Problem]:
        """Reasons why the scale cannot work, each with the fix."""
        if self.parts is None:
            return
        if not Token.is_unresolved(self.parts) and not MIN_SHARDS <= self.parts <= MAX_SHARDS:
            yield SHARD_COUNT.problem(count=self.parts)
        if not Token.is_unresolved(self.concurrency) and not 1 <= self.concurrency <= MAX_CONCURRENCY:
            yield AUDIT_CONCURRENCY.problem(concurrency=self.concurrency)
        if not Token.is_unresolved(self.join_memory) and not MIN_MEMORY <= self.join_memory <= MAX_MEMORY:
            yield JOIN_MEMORY.problem(memory=self.join_memory)
        if self.scan_limit is not None and self.engine is not Engine.ATHENA:
            yield SCAN_LIMIT_NEEDS_ATHENA.problem()
        if self.join_memory != MAX_MEMORY and self.engine is Engine.ATHENA:
            yield JOIN_MEMORY_NEEDS_DUCKDB.problem()
        if not Token.is_unresolved(self.scanned_bytes) and self.scanned_bytes < MIN_SCAN_LIMIT:
            yield SCAN_LIMIT_MINIMUM.problem(limit=self.scanned_bytes)
        if self.reports is not None and not self.reports.id:
            yield INVENTORY_ID.problem()
