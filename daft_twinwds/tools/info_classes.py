"""Classes that pictures and texts are counted by."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.train.buckets import PACKED_CLASSES, PRESETS, aspect_classes

__all__ = [
    "ASPECTS",
    "MEGAPIXELS",
    "PRESET_CLASSES",
    "aspect_labels",
    "length_ranges",
    "megapixel_labels",
    "preset_labels",
]

_BORDERS: Final = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
MEGAPIXELS: Final = (
    "< 0.25 MP",
    *(f"{low:g}-{high:g} MP" for low, high in pairwise(_BORDERS)),
    ">= 64 MP",
)
"""Classes of millions of pixels, each without its upper border."""
PRESET_CLASSES: Final = ("smaller", *PRESETS)
"""Size presets that a picture may cover, from small to large."""
ASPECTS: Final = tuple(name.replace("_", ":") for name in PACKED_CLASSES)
"""Aspect ratios, from wide to tall."""

_LONG: Final = 4096
"""Characters from which on a histogram counts texts together."""
_MOST_RANGES: Final = 8


def megapixel_labels(widths: NDArray[np.int64], heights: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return which of `MEGAPIXELS` each picture is in, (pictures,)."""
    pixels = widths.astype(np.float64) * heights / 1e6
    return np.array(MEGAPIXELS)[np.searchsorted(_BORDERS, pixels, side="right")]


def aspect_labels(widths: NDArray[np.int64], heights: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return which of `ASPECTS` each picture is nearest to, (pictures,)."""
    classes = aspect_classes(widths, heights, classes=PACKED_CLASSES)
    return np.char.replace(classes, "_", ":")


def preset_labels(widths: NDArray[np.int64], heights: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return the last of `PRESETS` whose target each picture covers in its class, (pictures,)."""
    classes = aspect_classes(widths, heights)
    labels = np.full(len(widths), PRESET_CLASSES[0], f"<U{max(map(len, PRESET_CLASSES))}")
    for preset, sizes in PRESETS.items():
        for aspect, (width, height) in sizes.items():
            labels[(classes == aspect) & (widths >= width) & (heights >= height)] = preset
    return labels


def length_ranges(lengths: Mapping[int, int], *, cut: int = _LONG) -> dict[str, int]:
    """Return a histogram over at most eight ranges of one round width, and one that is open.

    Args:
        lengths: Length -> how often it occurs.
        cut: Shortest length that falls into the open range.

    Returns:
        Range, as ``"40-59"`` -> how often; the ranges follow one upon another.
    """
    inside = [length for length in lengths if length < cut]
    made: Counter[str] = Counter()
    if inside:
        width = _round_width(max(inside) - min(inside) + 1)
        first = min(inside) // width
        last = max(inside) // width
        for number in range(first, last + 1):
            made[_range(number, width)] = 0
        for length in inside:
            made[_range(length // width, width)] += lengths[length]
    beyond = sum(number for length, number in lengths.items() if length >= cut)
    if beyond:
        made[f">= {cut}"] = beyond
    return dict(made)


def _range(number: int, width: int) -> str:
    low = number * width
    return str(low) if width == 1 else f"{low}-{low + width - 1}"


def _round_width(span: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, ... by which a span fills at most eight ranges."""
    power = 1
    while True:
        for step in (1, 2, 5):
            # A span that does not begin at a border reaches into one range more.
            if span <= step * power * (_MOST_RANGES - 1):
                return step * power
        power *= 10
