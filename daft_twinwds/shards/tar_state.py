"""Which version of a tar is there: what must be unchanged for anything noted about it to hold."""

import time
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.storage import MissingObjectError
from daft_twinwds.shards.urls import is_url, local_path

__all__ = ["DIGEST_BYTES", "TarState", "settled_state_of", "state_of"]

DIGEST_BYTES: Final = 16
"""Length of a `TarState.digest`."""

_TICK: Final = 0.05
"""Seconds within which a file may change twice and keep its time, with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TarState:
    """One version of a tar."""

    size: int
    """Bytes."""
    mtime_ns: int | None = None
    """Time of the last change, of local files."""
    tag: str | None = None
    """The server's tag of the content, of remote files whose server gives one."""

    @property
    def is_telling(self) -> bool:
        """Whether another version would surely differ."""
        return self.mtime_ns is not None or self.tag is not None

    @property
    def digest(self) -> bytes | None:
        """What stands for the state where millions are kept; ``None`` if it is not telling.

        Equal for equal states, and surely not for others. Some stores quote a tag in one kind of
        answer and not in another, so quotes are no part of it.
        """
        if not self.is_telling:
            return None
        tag = None if self.tag is None else self.tag.strip('"')
        text = repr((self.size, self.mtime_ns, tag)).encode()
        return blake2b(text, digest_size=DIGEST_BYTES).digest()


def state_of(path: str, options: StorageOptions = ENVIRONMENT) -> TarState | None:
    """Return which version of a file is there, ``None`` where none is.

    A local file is looked at and not opened; of a remote one a single byte is asked for.

    Raises:
        StorageError: It may not be looked at, which is not the same as its being absent.
    """
    if is_url(path):
        return _remote_state(path, options)
    local = local_path(path)
    try:
        status = Path(local).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be looked at ({error.strerror}); expected a readable file; check its "
            "permissions and its mount"
        ) from error
    return TarState(size=status.st_size, mtime_ns=status.st_mtime_ns)


def settled_state_of(path: str, options: StorageOptions = ENVIRONMENT) -> TarState | None:
    """Return the state of a file once a change from now on would surely show in it.

    A file that is written to twice within one tick of the clock keeps its time.

    Raises:
        StorageError: As `state_of`.
    """
    state = state_of(path, options)
    if state is not None and state.mtime_ns is not None:
        age = time.time() - state.mtime_ns / 1e9
        if 0 <= age < _TICK:
            time.sleep(_TICK - age)
            return state_of(path, options)
    return state


def _remote_state(path: str, options: StorageOptions) -> TarState | None:
    # Importing the clients takes some hundred milliseconds, which local data need not pay.
    from daft_twinwds.shards.fetch import fetch
    from daft_twinwds.shards.sources import source_of
    from daft_twinwds.shards.urls import Url

    url, options = Url.parse(path), options.with_secrets_of(path)
    try:
        piece = fetch(source_of(url, options), 0, 1, url=url, options=options)
    except MissingObjectError:
        return None
    return TarState(size=piece.size, tag=piece.tag)
