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

    def __add__(self, other: "StorageStats") -> "StorageStats":
        return StorageStats(
            requests=self.requests + other.requests,
            bytes=self.bytes + other.bytes,
            retries=self.retries + other.retries,
            seconds=self.seconds + other.seconds,
        )

    def __sub__(self, other: "StorageStats") -> "StorageStats":
        return StorageStats(
            requests=self.requests - other.requests,
            bytes=self.bytes - other.bytes,
            retries=self.retries - other.retries,
            seconds=self.seconds - other.seconds,
        )


_total = StorageStats()
_lock = Lock()


def record(stats: StorageStats) -> None:
    """Add to the process's counts."""
    global _total
    with _lock:
        _total += stats


def storage_stats() -> StorageStats:
    """Return the process's counts so far; a forked child goes on from its parent's."""
    return _total


def _renew_lock() -> None:
    # A child that was forked while another thread counted would wait for ever.
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
