"""How storage is accessed: credentials, endpoints, timeouts and retries, as plain values.

Options travel with shards to where these are read, so they pickle, and the programs that print
what they were given must not print secrets: no secret is part of a ``repr``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol

from daft_twinwds.shards.urls import HTTP, Url, is_url

__all__ = [
    "ENVIRONMENT",
    "THE_REST",
    "AzureOptions",
    "Credentials",
    "GcsOptions",
    "HfOptions",
    "HttpOptions",
    "S3Options",
    "StorageOptions",
    "options_of",
]


class Credentials(Protocol):
    """What a credentials provider returns, such as ``daft.io.S3Credentials``."""

    @property
    def key_id(self) -> str:
        """Access key ID."""

    @property
    def access_key(self) -> str:
        """Secret access key."""

    @property
    def session_token(self) -> str | None:
        """Token of temporary credentials."""

    @property
    def expiry(self) -> datetime | None:
        """When they end; ``None`` for never. Times without a zone are taken for UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Access to ``s3://``. What is not given comes from the environment, as AWS's tools have it."""

    key_id: str | None = field(default=None, repr=False)
    access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    provider: Callable[[], Credentials] | None = field(default=None, repr=False)
    """Asked for credentials in each process, and again before they expire."""
    profile: str | None = None
    """Section of AWS's shared credentials file."""
    region: str | None = None
    endpoint_url: str | None = None
    """Of another server that speaks S3."""
    anonymous: bool = False
    """Send unsigned requests, as public buckets want them."""
    virtual_addressing: bool = False
    """Put the bucket's name before the endpoint's host."""
    requester_pays: bool = False
    verify_ssl: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions:
    """Access to ``gs://``."""

    credentials: str | None = field(default=None, repr=False)
    """Path of a credentials file, or its JSON text."""
    token: str | None = field(default=None, repr=False)
    """OAuth token."""
    endpoint_url: str | None = None
    anonymous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Access to ``az://`` and ``abfs[s]://``."""

    account: str | None = None
    access_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    endpoint_url: str | None = None
    use_fabric_endpoint: bool = False
    anonymous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Access to ``http://`` and ``https://``."""

    bearer_token: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with each request."""
    user: str = field(default="", repr=False)
    """``name:password`` of the URL that was given."""
    query: str = field(default="", repr=False)
    """Query of the URL that was given; sent with every file below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HfOptions:
    """Access to ``hf://``."""

    token: str | None = field(default=None, repr=False)
    anonymous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Everything that opening a file may need to know, for all kinds of storage."""

    s3: S3Options = S3Options()
    gcs: GcsOptions = GcsOptions()
    azure: AzureOptions = AzureOptions()
    http: HttpOptions = HttpOptions()
    hf: HfOptions = HfOptions()
    connect_timeout: float = 10.0
    """Seconds that a connection may take to be made."""
    read_timeout: float = 30.0
    """Seconds in which some bytes must come."""
    timeout: float = 120.0
    """Seconds that one request may take; what has come by then is kept, and the rest asked for."""
    retries: int = 5
    """Failures in a row, without a byte of progress, that are answered by another try."""
    backoff: float = 0.2
    """Seconds before the first retry; doubled each time, up to 10, and shortened at random."""
    min_rate: float = 65536.0
    """Bytes per second; a slower answer is given up and asked for anew, from where it was."""
    rate_window: float = 5.0
    """Seconds over which that rate is measured."""
    request_cost: int = 1 << 19
    """Bytes that a connection moves while a request waits for its answer, 20 ms at 25 MB/s. Headers
    of a tar that lie closer together than that are read with what lies between them. S3 answers
    after some 150 ms, at 85 MB/s then: up to 12,000,000, where the network has room for it."""
    max_requests: int = 16
    """Requests that a process has under way for reads of many ranges, as pictures' headers are,
    over all that have this number."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "read_timeout", "timeout", "rate_window"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0 seconds, got {getattr(self, name)}")
        if self.max_requests < 1:
            raise ValueError(f"max_requests must be at least 1, got {self.max_requests}")
        for name in ("retries", "backoff", "min_rate", "request_cost"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")

    def with_secrets_of(self, path: str) -> "StorageOptions":
        """Return these options with the password and query that an HTTP URL came with."""
        if not is_url(path):
            return self
        url = Url.parse(path)
        if url.scheme not in HTTP or not (url.user or url.query):
            return self
        return replace(self, http=replace(self.http, user=url.user, query=url.query))

    def reference(self, path: str) -> str:
        """Return a path as other programs open it: HTTP URLs with their password and query."""
        if not (self.http.user or self.http.query) or not is_url(path):
            return path
        url = Url.parse(path)
        if url.scheme not in HTTP or url.user or url.query:
            return path
        return replace(url, user=self.http.user, query=self.http.query).with_secrets()


THE_REST: Final = "*"
"""Stands, in a mapping of column to options, for the data set's root and all other columns."""

ENVIRONMENT: Final = StorageOptions()
"""Nothing given: credentials and endpoints are the environment's."""


def options_of(
    options: StorageOptions | Mapping[str, StorageOptions], column: str
) -> StorageOptions:
    """Return how a column's files are accessed."""
    if isinstance(options, StorageOptions):
        return options
    return options.get(column, options.get(THE_REST, ENVIRONMENT))
