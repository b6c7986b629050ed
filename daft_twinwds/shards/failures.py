"""What went wrong with a request, in words that give no secret away.

The clients' own errors hold URLs with their signatures, the server's answer and debug output, so
nothing of their text is passed on but what is known to be harmless: status, error code and kind.
"""

import re
from dataclasses import dataclass
from typing import Final

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.storage import MissingObjectError
from daft_twinwds.shards.urls import HTTP, Url

__all__ = ["Failure", "failure_of", "to_error"]

_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Z][A-Za-z ]+))?")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_KIND: Final = re.compile(r"kind: ([A-Z][A-Za-z]+)")
# Of the statuses below 500 these two pass: a timeout, and too many requests.
_PASSING: Final = frozenset({408, 429})
# S3 says 400 to some of what passes.
_PASSING_CODES: Final = frozenset({"RequestTimeout", "SlowDown", "InternalError"})
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
# What a file system raises for names that it does not understand, or by mistake.
_OUR_FAULT: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    NotImplementedError,
    IsADirectoryError,
    NotADirectoryError,
)
_NO_PATH: Final = "Could not parse path"
_NO_REGION: Final = "redirect without LOCATION"
_PROVIDER: Final = "credential provider"

UNSATISFIABLE: Final = 416


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request did not give what was asked for."""

    reason: str
    """What was found: ``503 Service Unavailable, SlowDown``."""
    is_final: bool
    """Whether asking again is of no use."""
    status: int | None = None
    """HTTP status, where there was an answer."""
    code: str = ""
    """The store's own error code."""


class ScrubbedError(Exception):
    """Stands for a client's error, whose own text may hold secrets."""


def failure_of(error: Exception) -> Failure:
    """Return what may be told of a client's error, and whether it may pass."""
    text = str(error)
    status, phrase = _status_of(error, text)
    code_found = _CODE.search(text)
    code = code_found[1] if code_found else ""
    if _NO_REGION in text:
        return Failure(reason="301, another region", is_final=True, status=301)
    if _PROVIDER in text:
        return Failure(reason="the credentials provider failed", is_final=True)
    if status is not None:
        passes = status >= 500 or status in _PASSING or code in _PASSING_CODES
        reason = " ".join(filter(None, [str(status), phrase])) + (f", {code}" if code else "")
        return Failure(reason=reason, is_final=not passes, status=status, code=code)
    if isinstance(error, NotSupportedError):
        return Failure(reason="not supported by this server", is_final=True)
    if isinstance(error, InvalidPathError) or _NO_PATH in text:
        reason = "the name has a part that is empty, '.' or '..', which cannot be asked for"
        return Failure(reason=reason, is_final=True)
    if isinstance(error, _OUR_FAULT):
        return Failure(reason=type(error).__name__, is_final=True)
    kind = _KIND.search(text)
    if kind is None:
        return Failure(reason=f"{type(error).__name__}: the connection failed", is_final=False)
    reasons = {
        "Connect": "no connection could be made",
        "Timeout": "no bytes came in time",
    }
    return Failure(reason=reasons.get(kind[1], "the connection broke off"), is_final=False)


def to_error(
    failure: Failure, *, where: str, url: Url, options: StorageOptions, tries: int
) -> StorageError:
    """Return the error to raise for a failure.

    Args:
        failure: What happened last.
        where: What was being done, ``s3://b/x.tar: reading bytes 0 to 512``.
        url: Whose kind of storage decides what to do about it.
        options: Those that were used.
        tries: How often it was tried.
    """
    tried = f" after {tries} tries" if tries > 1 else ""
    kind = MissingObjectError if failure.status == 404 else StorageError
    error = kind(
        f"{where} failed{tried} ({failure.reason}); expected an answer; "
        f"{_cure(failure, url, options)}"
    )
    error.__cause__ = ScrubbedError(failure.reason)
    return error


def _status_of(error: Exception, text: str) -> tuple[int | None, str]:
    found = _STATUS.search(text)
    if found is not None:
        return int(found[1]), (found[2] or "").strip()
    # Other clients hang their answer on the error.
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return status, ""
    if isinstance(error, FileNotFoundError):
        return 404, "Not Found"
    if isinstance(error, PermissionDeniedError | PermissionError):
        return 403, "Forbidden"
    if isinstance(error, UnauthenticatedError):
        return 401, "Unauthorized"
    return None, ""


def _cure(failure: Failure, url: Url, options: StorageOptions) -> str:
    if failure.code in _EXPIRED:
        return (
            "the credentials have expired; renew them, or pass a credentials_provider in "
            "io_config=IOConfig(s3=S3Config(...))"
        )
    if failure.status == 404:
        return "check the path"
    if failure.status in (401, 403):
        return _cure_of_refusal(url, options)
    if failure.status is not None and 300 <= failure.status < 400:
        return "name the bucket's region in io_config=IOConfig(s3=S3Config(region_name=...))"
    if failure.status == UNSATISFIABLE:
        return "the file was cut or replaced since it was first looked at; read the dataset again"
    if failure.is_final:
        return "check the path and io_config"
    return "check the network, the proxy and the server, and try again later"


def _cure_of_refusal(url: Url, options: StorageOptions) -> str:
    if url.scheme in HTTP:
        if options.http.query:
            return "the signature in the URL's query may have expired; sign the URL again"
        return "pass a token in io_config=IOConfig(http=HTTPConfig(bearer_token=...))"
    if url.scheme.startswith("s3"):
        paying = "" if options.s3.requester_pays else ", or requester_pays=True if its readers pay"
        return (
            "check the credentials, that they may read (and list) this bucket, and the name, as "
            "missing objects may be refused too; in io_config=IOConfig(s3=S3Config(...)) pass "
            f"key_id and access_key, anonymous=True for a public bucket{paying}"
        )
    return "check the credentials in io_config or the environment, and that they may read this"
