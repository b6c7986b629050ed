"""What scans left out or found odd, counted by reason, to be asked for afterwards."""

import logging
import os
from collections import Counter
from collections.abc import Mapping
from threading import Lock

__all__ = ["count", "reset_scan_report", "scan_report"]

logger = logging.getLogger("daft_twinwds")

_counts: Counter[str] = Counter()
_lock = Lock()


def count(counts: Mapping[str, int], *, where: str) -> None:
    """Add to the process's counts, and log what was added."""
    counts = {reason: number for reason, number in counts.items() if number}
    if not counts:
        return
    with _lock:
        _counts.update(counts)
    text = ", ".join(f"{reason}: {number}" for reason, number in counts.items())
    logger.warning("%s: %s", where, text)


def scan_report() -> dict[str, int]:
    """Return what this process's scans have left out or found odd so far.

    Returns:
        Reason -> number of samples, members or tars, since the process began or
        `reset_scan_report` was called. A shard that is scanned twice counts twice: Daft plans
        and runs a query anew each time that it is asked for rows.
    """
    with _lock:
        return dict(_counts)


def reset_scan_report() -> None:
    """Set all counts of `scan_report` back to nothing."""
    with _lock:
        _counts.clear()


def _renew_lock() -> None:
    # A child that was forked while another thread counted would wait for ever.
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_renew_lock)
