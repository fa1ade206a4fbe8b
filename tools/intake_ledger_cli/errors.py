"""What went wrong, in words and with the fix. Pure."""

import re

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)

_DENIED = re.compile("AccessDenied|Unauthorized|NotAuthorized|AuthorizationError")
_EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "RequestExpired", "UnrecognizedClientException"}
)
_PERFORM = re.compile(r"to perform:? ([a-z0-9-]+:\w+)")
_LOG_IN = "log in again (aws sso login), or name another --profile"
_GRANTS = {
    "dynamodb": "the pipeline's grant_read_ledger gives it",
    "kms": "the pipeline's grants give it for the key that was given to the pipeline",
    "s3": "grant_read_ledger and grant_reprocess give it; a bucket of another account has to allow it too",
    "sqs": "the pipeline's grant_redrive and grant_reprocess give it, and grant_redrive is enough for status",
}
_FIXES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((ProfileNotFound,), "{}: name one of `aws configure list-profiles` with --profile"),
    (
        (NoCredentialsError, PartialCredentialsError),
        "no AWS credentials: name a --profile, set AWS_PROFILE, or log in (aws sso login)",
    ),
    ((NoRegionError,), "no AWS region: name it with --region, or set AWS_REGION"),
    ((SSOError, CredentialRetrievalError), f"the AWS credentials cannot be used ({{}}): {_LOG_IN}"),
    (
        (EndpointConnectionError,),
        "{}: is the network there, and is the region (or AWS_ENDPOINT_URL) right?",
    ),
)
_OWN = "docs/operating.md lists what a person needs beside the pipeline's grants"


class CliError(Exception):
    """The command cannot go on; the text says why and what to do."""


def denied_action(error: Exception) -> str | None:
    """The action that AWS refused to this person, or the operation's name where AWS does not say; None: it was
    something else.
    """
    if not isinstance(error, ClientError):
        return None
    # HEAD has no body to name a code in.
    code = error.response["Error"].get("Code", "")
    if not _DENIED.search(code) and code != "403":
        return None
    named = _PERFORM.search(error.response["Error"].get("Message", ""))
    return named[1] if named else error.operation_name


def describe_error(error: CliError | BotoCoreError | ClientError) -> str:
    """One line for people."""
    if (action := denied_action(error)) is not None:
        hint = _GRANTS.get(action.partition(":")[0], _OWN)
        return f"not allowed: {action}; {hint}"
    if isinstance(error, ClientError):
        said = error.response["Error"]
        text = f"{said.get('Code', 'an error')}: {said.get('Message', 'AWS says no more')}"
        if said.get("Code") in _EXPIRED:
            return f"the AWS credentials have expired or are not valid here ({text}): {_LOG_IN}"
        return f"{error.operation_name} failed: {text}"
    for kinds, message in _FIXES:
        if isinstance(error, kinds):
            return message.format(error)
    return str(error)
