"""The objects that a reprocess selects."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from intake_ledger_cli import reprocess, set_keys
from intake_ledger_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.reprocess import ReprocessResult, Target

NAMED = 3
"""The largest number of keys that `str` names."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The options of reprocess that select objects."""

    keys: tuple[str, ...] = ()
    prefix: str | None = None
    rejected: bool = False
    reason: str | None = None
    version_id: str | None = None

    def check(self) -> None:
        """Check the options.

        Raises:
            UsageError: They select nothing, or contradict each other.

        """
        if sum((bool(self.keys), self.prefix is not None, self.rejected)) != 1:
            raise UsageError("reprocess needs exactly one of: keys, --prefix, --rejected")
        if self.reason is not None and not self.rejected:
            raise UsageError(f"--reason {self.reason} needs --rejected: only rejected objects have a reason")
        if self.version_id is not None and len(self.keys) != 1:
            raise UsageError(f"--version-id {self.version_id} needs exactly one key, and {len(self.keys)} were given")

    def __str__(self) -> str:
        """The command as a person types it. Of many keys, only some are named."""
        if self.keys:
            more = f" and {len(self.keys) - NAMED:,} more" if len(self.keys) > NAMED else ""
            version = f" --version-id {self.version_id}" if self.version_id else ""
            return f"reprocess {' '.join(self.keys[:NAMED])}{more}{version}"
        if self.prefix is not None:
            return f"reprocess --prefix {self.prefix or repr('')}"
        return "reprocess --rejected" + (f" --reason {self.reason}" if self.reason else "")

    def targets(self, aws: "Aws", deployed: "DeployedPipeline", result: "ReprocessResult") -> "Iterator[Target]":
        """Yield the objects or sets. Keys are checked before the first one.

        Raises:
            CliError: A key cannot be requested.

        """
        if deployed.set_variables is not None and not self.rejected:
            return self._sets(aws, deployed)
        if self.keys:
            return iter(list(reprocess.key_targets(aws.s3, deployed, self.keys, self.version_id, result)))
        if self.prefix is not None:
            return reprocess.prefix_targets(aws.s3, deployed, self.prefix, result)
        return reprocess.rejected_targets(aws.dynamodb, deployed, self.reason)

    def _sets(self, aws: "Aws", deployed: "DeployedPipeline") -> "Iterator[Target]":
        if self.version_id is not None:
            raise UsageError(f"--version-id {self.version_id} cannot be used: only the present set is processed")
        if self.keys:
            return iter(list(set_keys.key_targets(aws.s3, deployed, self.keys)))
        return set_keys.prefix_targets(aws.s3, deployed, self.prefix or "")
