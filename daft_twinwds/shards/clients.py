"""The clients that talk to servers: made in the process that uses them, and kept there.

A client that was made before a fork waits for ever for threads that the parent has and the child
has not. Clients are therefore kept by process; and as obstore's threads belong to that library and
not to a client, the child of a process that has used it is refused.
"""

import os
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import fsspec
from obstore.store import AzureStore, GCSStore, HTTPStore, ObjectStore, S3Store

from daft_twinwds.errors import MissingDependencyError, StorageError
from daft_twinwds.shards.options import ENVIRONMENT, AzureOptions, GcsOptions, StorageOptions
from daft_twinwds.shards.s3_settings import credential_provider, s3_config
from daft_twinwds.shards.urls import HTTP, Url

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig

__all__ = ["OBJECT_SCHEMES", "file_system", "object_store", "request_pool"]

S3: Final = frozenset({"s3", "s3a", "s3n"})
GCS: Final = frozenset({"gs", "gcs"})
AZURE: Final = frozenset({"az", "abfs", "abfss"})
OBJECT_SCHEMES: Final = S3 | GCS | AZURE | HTTP
"""What obstore reads; everything else is fsspec's."""

MAX_CLIENTS: Final = 64
"""Clients that a process keeps: one per bucket, or per host and query."""

_NO_RETRIES: Final["RetryConfig"] = {"max_retries": 0}
"""Retries are ours: what obstore repeats by itself nobody can count, and a body that breaks off
needs the same budget and the same pauses."""

_using_process: int | None = None


def object_store(
    url: Url, options: StorageOptions, *, repeats: bool = False
) -> tuple[ObjectStore, str]:
    """Return this process's client for a URL, and the object's name for that client.

    Args:
        url: The object.
        options: How it is accessed.
        repeats: Whether the client itself repeats requests that fail, as only it can while it
            sends an object in parts.

    Raises:
        StorageError: The process was forked from one that has used such clients.
    """
    global _using_process
    process = os.getpid()
    if _using_process not in (None, process):
        raise StorageError(
            f"{url}: this process was forked from one that had read from servers, so that it would "
            "wait for ever for threads that a fork does not copy; expected a process of its own; "
            "pass multiprocessing_context='forkserver' or 'spawn' to DataLoader"
        )
    _using_process = process
    if url.scheme not in HTTP:
        return _store(process, url.scheme, url.authority, options, repeats=repeats), url.path
    origin, name = f"{url.scheme}://{url.authority}/", unquote(url.path)
    if "%2f" in url.path.lower() or not {"", ".", ".."}.isdisjoint(name.split("/")):
        # The client builds paths of parts, in which these cannot occur.
        origin, name = f"{origin}{url.path}", ""
    return _store(process, url.scheme, origin, options, repeats=repeats), name


def file_system(url: Url, options: StorageOptions) -> tuple[Any, str]:
    """Return the fsspec file system for a URL, and the file's path in it.

    Raises:
        MissingDependencyError: The file system's package is not installed.
        StorageError: Nothing reads URLs of this scheme.
    """
    try:
        if url.scheme == "hf":
            hub = _hub(os.getpid(), False if options.hf.anonymous else options.hf.token)
            return hub, hub._strip_protocol(str(url))  # noqa: SLF001  # as fsspec's own callers do
        system, path = fsspec.url_to_fs(url.with_secrets())
    except ImportError as error:
        command = "pip install 'daft-twinwds[hf]'" if url.scheme == "hf" else "pip install it"
        raise MissingDependencyError(
            f"{url}: reading {url.scheme}:// needs a package that is not installed ({error}); "
            f"expected it to be there; run: {command}"
        ) from error
    except ValueError as error:
        raise StorageError(
            f"{url}: scheme {url.scheme!r} is not known; expected a local path, file://, s3://, "
            "gs://, az://, abfs://, http(s)://, hf:// or another scheme that fsspec reads; check it"
        ) from error
    return system, path


@lru_cache(maxsize=MAX_CLIENTS)
def _hub(process: int, token: str | bool | None) -> Any:
    """Return the hub's file system: its own cache keeps one per thread, each with other listings."""
    del process
    return fsspec.get_filesystem_class("hf")(token=token, skip_instance_cache=True)


def request_pool(options: StorageOptions = ENVIRONMENT) -> ThreadPoolExecutor:
    """Return this process's threads for requests that run side by side.

    They are the same for all options with the same ``max_requests``.
    """
    return _pool(os.getpid(), options.max_requests)


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    del process
    return ThreadPoolExecutor(threads, thread_name_prefix="daft-twinwds-request")


@lru_cache(maxsize=MAX_CLIENTS)
def _store(
    process: int, scheme: str, place: str, options: StorageOptions, *, repeats: bool
) -> ObjectStore:
    del process
    retry = _repeated(options) if repeats else _NO_RETRIES
    client: ClientConfig = {
        "allow_http": True,  # for an endpoint that was given as http://; nothing else becomes one
        "connect_timeout": timedelta(seconds=options.connect_timeout),
        "read_timeout": timedelta(seconds=options.read_timeout),
        "timeout": timedelta(seconds=options.timeout),
    }
    if scheme in S3:
        if not options.s3.verify_ssl:
            client["allow_invalid_certificates"] = True
        return S3Store(
            place,
            config=s3_config(options.s3, bucket=place),
            credential_provider=credential_provider(options.s3),
            client_options=client,
            retry_config=retry,
        )
    if scheme in GCS:
        return GCSStore(place, config=_gcs(options.gcs), client_options=client, retry_config=retry)
    if scheme in AZURE:
        container, _, host = place.partition("@")
        return AzureStore(
            container,
            config=_azure(options.azure, host=host),
            client_options=client,
            retry_config=retry,
        )
    headers = dict(options.http.headers)
    if options.http.bearer_token:
        headers["authorization"] = f"Bearer {options.http.bearer_token}"
    elif options.http.user:
        code = b64encode(unquote(options.http.user).encode()).decode()
        headers["authorization"] = f"Basic {code}"
    if headers:
        client["default_headers"] = headers
    query = f"?{options.http.query}" if options.http.query else ""
    return HTTPStore(f"{place}{query}", client_options=client, retry_config=retry)


def _repeated(options: StorageOptions) -> "RetryConfig":
    return {
        "max_retries": options.retries,
        "backoff": {
            "base": 2.0,
            "init_backoff": timedelta(seconds=options.backoff),
            "max_backoff": timedelta(seconds=max(10.0, options.backoff)),
        },
    }


def _gcs(options: GcsOptions) -> "GCSConfig":
    config: GCSConfig = {}
    if options.endpoint_url:
        config["base_url"] = options.endpoint_url
    if options.anonymous:
        config["skip_signature"] = True
    elif options.token:
        config["bearer_token"] = options.token
    elif options.credentials and options.credentials.lstrip().startswith("{"):
        config["service_account_key"] = options.credentials
    elif options.credentials:
        config["application_credentials"] = options.credentials
    return config


def _azure(options: AzureOptions, *, host: str) -> "AzureConfig":
    config: AzureConfig = {}
    # Daft and the Azure command line have the account under this name, obstore under another.
    account = options.account or host.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT")
    if account:
        config["account_name"] = account
    if options.endpoint_url:
        config["endpoint"] = options.endpoint_url
    if options.use_fabric_endpoint or host.endswith(".fabric.microsoft.com"):
        config["use_fabric_endpoint"] = True
    # With the kind named, none of the environment's credentials comes before the one given.
    if options.anonymous:
        config["skip_signature"] = True
    elif options.access_key:
        config["account_key"] = options.access_key
        config["credential_type"] = "access_key"
    elif options.sas_token:
        config["sas_key"] = options.sas_token
        config["credential_type"] = "sas_token"
    elif options.bearer_token:
        config["token"] = options.bearer_token
        config["credential_type"] = "bearer_token"
    elif options.client_id and options.client_secret and options.tenant_id:
        config["client_id"] = options.client_id
        config["client_secret"] = options.client_secret
        config["tenant_id"] = options.tenant_id
        config["credential_type"] = "client_secret"
    return config
