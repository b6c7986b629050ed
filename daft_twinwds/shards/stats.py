"""What this process has read so far: requests, bytes, retries and seconds."""

import os
from dataclasses import dataclass
from threading import Lock

__all__ = ["StorageStats", "record", "storage_stats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """Counts of reads; the difference of two is what came in between."""

    requests: int = 0
    """Reads of local files and requests to servers, retries included."""
    bytes: int = 0
    """Bytes that came, including those read along and not asked for."""
    retries: int = 0
    """Requests that were sent again, or for the rest of an answer that broke off."""
    seconds: float = 0.0
    """Time spent waiting for them, added up over threads."""

    def __sub__(self, other: "StorageStats") -> "StorageStats":
        return StorageStats(
            requests=self.requests - other.requests,
            bytes=self.bytes - other.bytes,
            retries=self.retries - other.retries,
            seconds=self.seconds - other.seconds,
        )


# Plain numbers: files are opened by the million, and counting is to cost less than opening.
_requests = _bytes = _retries = 0
_seconds = 0.0
_lock = Lock()


def record(
    *, requests: int = 0, num_bytes: int = 0, retries: int = 0, seconds: float = 0.0
) -> None:
    """Add to the process's counts, which are those of `StorageStats`."""
    global _requests, _bytes, _retries, _seconds
    with _lock:
        _requests += requests
        _bytes += num_bytes
        _retries += retries
        _seconds += seconds


def storage_stats() -> StorageStats:
    """Return the process's counts so far; a forked child goes on from its parent's."""
    # Nothing is made while the lock is held: the collector could run then, and close files.
    with _lock:
        requests, num_bytes, retries, seconds = _requests, _bytes, _retries, _seconds
    return StorageStats(requests=requests, bytes=num_bytes, retries=retries, seconds=seconds)


def _renew_lock() -> None:
    # A child that was forked while another thread counted would wait for ever.
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
