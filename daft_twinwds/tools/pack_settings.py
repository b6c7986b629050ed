"""The choices that decide what bytes a packing writes."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, get_args

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.tar_write import name_fault

__all__ = ["OnDouble", "PackSettings", "main_modality"]

OnDouble = Literal["error", "skip"]

_MAIN: Final = ("image", "video")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSettings:
    """Arguments of `pack` that its output depends on, checked.

    Raises:
        ValueError: One is out of its range, or two exclude each other.
    """

    modalities: tuple[str, ...] | None
    optional: frozenset[str]
    shard_size: int
    max_shard_bytes: int
    size_based_on: str | None
    shuffle: bool
    seed: int
    limit: int | None
    key_prefix: str
    max_file_bytes: int
    part_size: int
    classify_aspect_ratio: bool
    duration_bins: tuple[float, ...] | None
    check: bool
    keep_folders: bool
    on_double: OnDouble

    def __post_init__(self) -> None:
        for name in ("shard_size", "max_shard_bytes", "limit", "max_file_bytes", "part_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.on_double not in get_args(OnDouble):
            raise ValueError(
                f"on_double must be one of {get_args(OnDouble)}, got {self.on_double!r}"
            )
        # Whatever a stem is, it goes on from the prefix: only what stands before it can be wrong.
        fault = name_fault(f"{self.key_prefix}x")
        if fault is not None or self.key_prefix.startswith("."):
            raise ValueError(
                f"a key's prefix must begin a relative path and not with a dot, got "
                f"{self.key_prefix!r}" + (f": {fault}" if fault else "")
            )
        bins = self.duration_bins
        if bins is not None and not _are_bins(bins):
            raise ValueError(
                "duration_bins must be at least two increasing seconds from 0 on, such as "
                f"(0, 5, 10, 30, inf), got {bins}"
            )

    @property
    def is_measured(self) -> bool:
        """Whether a sample's folder depends on what its picture or video holds."""
        return self.classify_aspect_ratio or self.duration_bins is not None

    def flags(self) -> dict[str, Any]:
        """Return the settings as JSON has them, equal for two packings that write the same."""
        bins = self.duration_bins
        return {
            "modalities": None if self.modalities is None else sorted(self.modalities),
            "optional": sorted(self.optional),
            "shard_size": self.shard_size,
            "max_shard_bytes": self.max_shard_bytes,
            "size_based_on": self.size_based_on,
            "shuffle": self.shuffle,
            "seed": self.seed if self.shuffle else None,
            "limit": self.limit,
            "key_prefix": self.key_prefix,
            "max_file_bytes": self.max_file_bytes,
            "part_size": self.part_size,
            "classify_aspect_ratio": self.classify_aspect_ratio,
            "duration_bins": None if bins is None else [f"{seconds:g}" for seconds in bins],
            "check": self.check,
            "keep_folders": self.keep_folders,
            "on_double": self.on_double,
        }


def main_modality(settings: PackSettings, modalities: Collection[str], *, where: str) -> str | None:
    """Return the modality that sizes, aspect ratios and durations are taken of.

    Args:
        settings: Which one is asked for; None is ``image``, else ``video``, where they are there.
        modalities: Folders that are there.
        where: The input folder, for messages.

    Returns:
        A folder, or None where nothing was asked for that needs one.

    Raises:
        LayoutError: It is not there, or may be missing in a sample.
    """
    found = ", ".join(modalities)
    main = settings.size_based_on
    if main is None:
        main = next((name for name in _MAIN if name in modalities), None)
        if main is None and settings.is_measured:
            raise LayoutError(
                f"{where}: folders {found} were found; expected 'image' or 'video' to classify "
                "samples by; name the folder in size_based_on, or pass classify_aspect_ratio=False "
                "(--no-classify-aspect-ratio) and no duration_bins"
            )
    elif main not in modalities:
        raise LayoutError(
            f"{where}: folders {found} were found; expected {main!r} among them, which "
            "size_based_on names; correct it"
        )
    if main in settings.optional:
        raise LayoutError(
            f"{where}: {main!r} decides into which shard a sample goes; expected it in every "
            "sample; take it out of optional, or name another in size_based_on"
        )
    return main


def _are_bins(bins: Sequence[float]) -> bool:
    rising = all(low < high for low, high in pairwise(bins))
    return len(bins) > 1 and rising and bins[0] >= 0 and math.isfinite(bins[0])
