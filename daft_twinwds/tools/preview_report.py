"""What a preview shows, and how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PreviewProgress", "PreviewReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewProgress:
    """How far a preview is; handed to the ``progress`` callback."""

    done: int
    """Samples, in ``[0, total]``."""
    total: int
    """Samples that will be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewReport:
    """What a preview shows."""

    output: str
    """The page."""
    num_shown: int
    """Samples on it."""
    num_samples: int | None
    """Samples that match; None if they were not counted."""
    num_pictures: int
    """Pictures on it."""
    num_unreadable: int
    """Pictures in whose place it tells why they cannot be shown."""
    num_bytes: int
    """Of the page."""
    left_out: Mapping[str, int]
    """What scanning left out or found odd -> how often."""
