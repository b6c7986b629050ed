"""Daft's IOConfig -> the options of our own storage."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from daft.io import AzureConfig, GCSConfig, IOConfig, S3Config

from daft_twinwds.query._daft import bearer_token, default_io_config
from daft_twinwds.shards.options import (
    AzureOptions,
    GcsOptions,
    HfOptions,
    HttpOptions,
    S3Options,
    StorageOptions,
)

__all__ = ["AnyConfig", "storage_options"]

AnyConfig: TypeAlias = IOConfig | StorageOptions
"""Daft's configuration, or ours, which has also a rate below which an answer is given up."""


def storage_options(
    io_config: AnyConfig | Mapping[str, AnyConfig] | None,
) -> StorageOptions | dict[str, StorageOptions]:
    """Return how storage is accessed.

    Timeouts and retries are Daft's where they differ from Daft's own defaults.

    Args:
        io_config: What the caller gave, for all columns or by column; ``None`` stands for the
            configuration that ``daft.set_planning_config(default_io_config=...)`` has set.

    Raises:
        TypeError: It is neither.
        ValueError: A timeout or number of retries cannot be.
    """
    if io_config is None:
        io_config = default_io_config()
    if isinstance(io_config, Mapping):
        return {column: _options_of(config) for column, config in io_config.items()}
    return _options_of(io_config)


def _options_of(config: object) -> StorageOptions:
    if isinstance(config, StorageOptions):
        return config
    if not isinstance(config, IOConfig):
        raise TypeError(
            "io_config must be a daft.io.IOConfig or a mapping of column to such, got "
            f"{type(config).__name__}"
        )
    options = StorageOptions(
        s3=_s3(config.s3),
        gcs=_gcs(config.gcs),
        azure=_azure(config.azure),
        http=HttpOptions(bearer_token=bearer_token(config.http)),
        hf=HfOptions(token=config.hf.token, anonymous=bool(config.hf.anonymous)),
    )
    for given, default in ((config.s3, S3Config()), (config.gcs, GCSConfig())):
        options = _with_times(options, given, default)
    return options


def _s3(config: S3Config) -> S3Options:
    return S3Options(
        key_id=config.key_id,
        access_key=config.access_key,
        session_token=config.session_token,
        provider=config.credentials_provider,
        profile=config.profile_name,
        region=config.region_name,
        endpoint_url=config.endpoint_url,
        anonymous=bool(config.anonymous),
        virtual_addressing=bool(config.force_virtual_addressing),
        requester_pays=bool(config.requester_pays),
        verify_ssl=bool(config.verify_ssl),
    )


def _gcs(config: GCSConfig) -> GcsOptions:
    return GcsOptions(
        credentials=config.credentials, token=config.token, anonymous=bool(config.anonymous)
    )


def _azure(config: AzureConfig) -> AzureOptions:
    return AzureOptions(
        account=config.storage_account,
        access_key=config.access_key,
        sas_token=config.sas_token,
        bearer_token=config.bearer_token,
        tenant_id=config.tenant_id,
        client_id=config.client_id,
        client_secret=config.client_secret,
        endpoint_url=config.endpoint_url,
        use_fabric_endpoint=bool(config.use_fabric_endpoint),
        anonymous=bool(config.anonymous),
    )


def _with_times(options: StorageOptions, given: Any, default: Any) -> StorageOptions:
    def differs(name: str) -> bool:
        return bool(getattr(given, name) != getattr(default, name))

    if differs("connect_timeout_ms"):
        options = replace(options, connect_timeout=given.connect_timeout_ms / 1000)
    if differs("read_timeout_ms"):
        options = replace(options, read_timeout=given.read_timeout_ms / 1000)
    if differs("num_tries"):
        options = replace(options, retries=max(0, given.num_tries - 1))
    if differs("retry_initial_backoff_ms"):
        options = replace(options, backoff=given.retry_initial_backoff_ms / 1000)
    return options
