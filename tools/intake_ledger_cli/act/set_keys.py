"""Finds the keys of sets of files, for commands that take them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger_cli.act.selection import Target
from intake_ledger_cli.aws import s3_listing
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, UsageError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def form_of(deployed: DeployedPipeline) -> FormSettings:
    """The form of the deployed sets."""
    from intake_ledger.sets.settings import set_settings  # noqa: PLC0415 - it imports the runtime's clients

    return set_settings(deployed.set_variables or {}).form


def check_set_key(deployed: DeployedPipeline, key: str) -> None:
    """Refuse a key that names no set.

    Raises:
        UsageError: It is the key of a part, or does not match the pattern.

    """
    form = form_of(deployed)
    own = form.set_of(key)
    if own == key:
        return
    if own is not None:
        raise UsageError(f"{key} is a part of a set of {deployed.name}: use the key of the set, {own}")
    what = "folder" if form.kind is FormKind.QUIET else form.kind.value
    raise UsageError(
        f"{key} is no set of {deployed.name}: use the key of a {what} that matches {form.pattern}, or "
        "--pipeline with the name of the pipeline of the parts"
    )


def key_targets(client: "S3Client", deployed: DeployedPipeline, keys: Iterable[str]) -> Iterator[Target]:
    """Yield a target for each key of a set.

    Raises:
        UsageError: A key names no set.
        CliError: S3 does not have the manifest, the marker, or an object of the folder.

    """
    is_folder = form_of(deployed).kind is FormKind.QUIET
    for key in keys:
        check_set_key(deployed, key)
        first = next(s3_listing.list_keys(client, deployed, key), None)
        if first is None or (first != key and not is_folder):
            raise CliError(f"S3 has no object {key} in {deployed.bucket}: check the key")
        yield Target(key)


def prefix_targets(client: "S3Client", deployed: DeployedPipeline, prefix: str) -> Iterator[Target]:
    """Yield a target for each set whose manifest, marker or objects are under a prefix."""
    form, last = form_of(deployed), None
    for name in s3_listing.list_keys(client, deployed, prefix):
        key = form.set_of(name)
        # The objects of a folder follow each other in a listing.
        if key is None or key == last or (form.kind is not FormKind.QUIET and key != name):
            continue
        last = key
        yield Target(key)
