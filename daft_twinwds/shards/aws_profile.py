"""AWS's shared credentials file: keys and regions that people configured by ``aws configure``.

The S3 client knows the environment's variables and the instance's own credentials, but not these.
"""

import os
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Final

from daft_twinwds.errors import StorageError

__all__ = ["shared_profile"]

_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region")


def shared_profile(name: str | None) -> dict[str, str]:
    """Return the keys and the region of one profile.

    Args:
        name: Profile; ``None`` for ``AWS_PROFILE``, else ``default``, which need not be there.

    Returns:
        Those that are set of ``aws_access_key_id``, ``aws_secret_access_key``,
        ``aws_session_token`` and ``region``.

    Raises:
        StorageError: A file is not readable, or a profile that was asked for is not there or
            has no keys of its own.

    Source:
        AWS SDKs and Tools Reference Guide, "Shared config and credentials files".
    """
    asked = name or os.environ.get("AWS_PROFILE")
    profile = asked or "default"
    credentials = _path("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    config = _path("AWS_CONFIG_FILE", "~/.aws/config")
    in_config = profile if profile == "default" else f"profile {profile}"
    settings = {**_section(config, in_config), **_section(credentials, profile)}
    if asked and not settings:
        raise StorageError(
            f"{credentials}: no profile {profile!r} was found there or in {config}; expected one "
            "of that name; check AWS_PROFILE or profile_name"
        )
    if name and not {"aws_access_key_id", "aws_secret_access_key"} <= settings.keys():
        raise StorageError(
            f"{credentials}: profile {profile!r} holds no keys; expected aws_access_key_id and "
            "aws_secret_access_key, as single sign-on and roles are not followed; export the "
            "credentials to the environment (aws configure export-credentials), or pass a "
            "credentials_provider"
        )
    return {key: settings[key] for key in _KEYS if settings.get(key)}


def _path(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or default).expanduser()


def _section(path: Path, name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None, default_section="")
    try:
        parser.read(path, encoding="utf-8")
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        # The error's text quotes the line, which may hold a key.
        raise StorageError(
            f"{path}: not a readable AWS configuration ({type(error).__name__}); expected "
            "sections of 'name = value' lines; mend the file"
        ) from None
    return dict(parser[name]) if parser.has_section(name) else {}
