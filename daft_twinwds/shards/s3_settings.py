"""`S3Options` as obstore wants them."""

import os
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from daft_twinwds.shards.aws_profile import shared_profile
from daft_twinwds.shards.options import S3Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import S3Config, S3Credential

__all__ = ["credential_provider", "s3_config"]

_OTHER_SOURCES: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables whose credentials the client finds by itself, and before those of a profile."""


def s3_config(options: S3Options, *, bucket: str) -> "S3Config":
    """Return the client's settings for a bucket, all but credentials."""
    config: S3Config = {}
    region = options.region or _region_of_profile(options)
    if region:
        config["region"] = region
    if options.endpoint_url:
        endpoint = options.endpoint_url
        if options.virtual_addressing:
            # The client takes such an endpoint for the bucket's own.
            parts = urlsplit(endpoint)
            endpoint = urlunsplit(parts._replace(netloc=f"{bucket}.{parts.netloc}"))
        config["endpoint"] = endpoint
    if options.virtual_addressing:
        config["virtual_hosted_style_request"] = True
    if options.anonymous:
        config["skip_signature"] = True
    if options.requester_pays:
        config["request_payer"] = True
    return config


def credential_provider(options: S3Options) -> "Callable[[], S3Credential] | None":
    """Return what the client asks for credentials; ``None`` leaves it to the environment.

    Keys that are given go this way too: set as the client's own, they would be mixed with a
    session token from the environment.

    Raises:
        ValueError: One half of a key is given without the other.
    """
    if options.anonymous:
        return None
    if options.key_id or options.access_key:
        if not (options.key_id and options.access_key):
            raise ValueError("S3 needs both key_id and access_key, or none of them; got one")
        return _Fixed(options.key_id, options.access_key, options.session_token)
    if options.provider is not None:
        return _Asked(options)
    if options.profile is None and any(os.environ.get(name) for name in _OTHER_SOURCES):
        return None
    settings = shared_profile(options.profile)
    if not {"aws_access_key_id", "aws_secret_access_key"} <= settings.keys():
        return None
    return _Fixed(
        settings["aws_access_key_id"],
        settings["aws_secret_access_key"],
        settings.get("aws_session_token"),
    )


class _Fixed:
    def __init__(self, key_id: str, access_key: str, session_token: str | None) -> None:
        self._credential: S3Credential = {
            "access_key_id": key_id,
            "secret_access_key": access_key,
            "token": session_token,
            "expires_at": None,
        }

    def __call__(self) -> "S3Credential":
        return self._credential


class _Asked:
    """The caller's provider."""

    refresh_threshold = timedelta(minutes=2)
    """How long before its credentials expire the client asks again."""

    def __init__(self, options: S3Options) -> None:
        assert options.provider is not None
        self._provider = options.provider

    def __call__(self) -> "S3Credential":
        given = self._provider()
        expiry = given.expiry
        if expiry is not None and expiry.tzinfo is None:
            expiry = expiry.replace(tzinfo=UTC)
        return {
            "access_key_id": given.key_id,
            "secret_access_key": given.access_key,
            "token": given.session_token,
            "expires_at": expiry,
        }


def _region_of_profile(options: S3Options) -> str | None:
    if options.profile is None and (
        options.endpoint_url
        or options.key_id
        or options.anonymous
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
    ):
        return None
    return shared_profile(options.profile).get("region")
