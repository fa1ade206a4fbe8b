"""Errors of the command line, with their fixes."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)
from botocore.exceptions import (
    ConnectionError as NoConnectionError,
)

_DENIED = re.compile("AccessDenied|Unauthorized|NotAuthorized|AuthorizationError")
_EXPIRED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_PERFORM = re.compile(r"to perform:? ([a-z0-9-]+:\w+)")
_LOG_IN = "log in again (aws sso login), or use another --profile"
_GRANTS = {
    "dynamodb": "the pipeline's grant_read_ledger allows it",
    "kms": "the pipeline's grants allow it for the pipeline's own key",
    "s3": "grant_read_ledger and grant_reprocess allow it; the bucket policy of another account must also allow it",
    "sqs": "the pipeline's grant_redrive and grant_reprocess allow it, and grant_redrive is enough for status",
}
_FIXES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((ProfileNotFound,), "{}: use --profile with a profile of `aws configure list-profiles`"),
    (
        (NoCredentialsError, PartialCredentialsError),
        "no AWS credentials: use --profile, set AWS_PROFILE, or log in (aws sso login)",
    ),
    ((NoRegionError,), "no AWS region: use --region, or set AWS_REGION"),
    ((SSOError, CredentialRetrievalError), f"the AWS credentials cannot be used ({{}}): {_LOG_IN}"),
    (
        (NoConnectionError, HTTPClientError),
        "{}: check the network, the region and AWS_ENDPOINT_URL",
    ),
)
_NOT_AWS = "the endpoint did not answer as AWS does: check the network and AWS_ENDPOINT_URL"
_OWN = "docs/operating.md lists the permissions that the pipeline's grants do not include"


class CliError(Exception):
    """The command cannot continue. The text has the reason and the fix."""


class UsageError(CliError):
    """The options of the command are wrong. The exit code is 2."""


def denied_action(error: Exception) -> str | None:
    """Return the IAM action that AWS denied, or the operation's name if AWS does not name the action. Return None for
    other errors.
    """
    if not isinstance(error, ClientError):
        return None
    # A HEAD response has no body, so botocore shows the HTTP status as the code.
    code = error.response["Error"].get("Code", "")
    if not _DENIED.search(code) and code != "403":
        return None
    named = _PERFORM.search(error.response["Error"].get("Message", ""))
    return named[1] if named else error.operation_name


@contextmanager
def unless_denied(denied: Callable[[str], object] = str) -> Iterator[None]:
    """Go on after a request that AWS denies. `denied` gets the action. Other errors are raised."""
    try:
        yield
    except ClientError as error:
        if (action := denied_action(error)) is None:
            raise
        denied(action)


def is_passing(error: Exception) -> bool:
    """True if AWS may accept the same request later: it is throttled, fails, or cannot be reached."""
    if not isinstance(error, ClientError):
        return isinstance(error, (NoConnectionError, HTTPClientError))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response["Error"].get("Code", "")
    is_throttled = "Throttl" in code or "Exceeded" in code or code in ("TooManyRequestsException", "SlowDown")
    return is_throttled or status >= 500 or code == "InternalServerError"


def is_of_aws(error: Exception) -> bool:
    """True if the SDK has raised it."""
    return isinstance(error, (BotoCoreError, ClientError)) or _is_malformed_answer(error)


def _is_malformed_answer(error: Exception) -> bool:
    """True for a `ResponseParserError`. Its module takes long to import, and is imported if it has raised one."""
    return type(error).__module__ == "botocore.parsers"


def describe_error(error: Exception) -> str:
    """Describe an error in one line."""
    if (action := denied_action(error)) is not None:
        hint = _GRANTS.get(action.partition(":")[0], _OWN)
        return f"not allowed: {action}; {hint}"
    if isinstance(error, ClientError):
        detail = error.response["Error"]
        text = f"{detail.get('Code', 'an error')}: {detail.get('Message', 'no message')}"
        if detail.get("Code") in _EXPIRED:
            return f"the AWS credentials have expired or are not valid here ({text}): {_LOG_IN}"
        return f"{error.operation_name} failed: {text}"
    if _is_malformed_answer(error):
        return _NOT_AWS  # its text has the whole answer
    for kinds, message in _FIXES:
        if isinstance(error, kinds):
            return message.format(error)
    return str(error)
