"""Rows that go together: buckets, and the aspect-ratio classes that pictures fall into."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.train.permutation import check_int

__all__ = [
    "ASPECT_CLASSES",
    "PACKED_CLASSES",
    "PRESETS",
    "Buckets",
    "aspect_class",
    "aspect_classes",
    "aspect_places",
    "class_of_path",
    "largest_preset",
    "target_size",
]

ASPECT_CLASSES: Final = ("16_9", "3_2", "4_3", "1_1", "3_4", "2_3", "9_16")
"""Classes that pictures are trained in, from wide to tall."""
PACKED_CLASSES: Final = ("21_9", *ASPECT_CLASSES)
"""Classes that pictures are packed by; PiD's packer knows one more."""

_SIDES: Final = {
    "1024": "1344x768 1344x896 1152x896 1024x1024 896x1152 896x1344 768x1344",
    "2048": "2688x1536 2688x1792 2304x1728 2048x2048 1728x2304 1792x2688 1536x2688",
    "3072": "4096x2304 3776x2496 3520x2688 3072x3072 2688x3520 2496x3776 2304x4096",
    "3840": "4096x2176 4096x2688 4096x2816 3584x3584 2816x4096 2688x4096 2176x4096",
    "4096": "4096x2304 4096x2688 4096x3072 4096x4096 3072x4096 2688x4096 2304x4096",
}


def _sizes(sides: str) -> Mapping[str, tuple[int, int]]:
    pairs = (text.split("x") for text in sides.split())
    sizes = ((int(width), int(height)) for width, height in pairs)
    return MappingProxyType(dict(zip(ASPECT_CLASSES, sizes, strict=True)))


PRESETS: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = MappingProxyType(
    {preset: _sizes(sides) for preset, sides in _SIDES.items()}
)
"""Preset, from small to large -> aspect class -> (width, height) in pixels, as PiD trains."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Buckets:
    """Rows divided into buckets; rows of different buckets never share a batch.

    Every row is in exactly one bucket. Inside a bucket rows keep their order.
    """

    labels: tuple[str, ...] | tuple[int, ...]
    """Label of each bucket, increasing."""
    sizes: NDArray[np.int64]
    """Rows of each bucket, (buckets,)."""
    rows: NDArray[np.int64] | None = None
    """Row numbers, bucket after bucket, (rows,); None where that is their natural order."""

    @classmethod
    def whole(cls, num_rows: int) -> Self:
        """Return one bucket that holds the rows ``0 .. num_rows - 1``; it needs no memory.

        Raises:
            TypeError: ``num_rows`` is no int.
            ValueError: It is negative.
        """
        num_rows = check_int("num_rows", num_rows, limit=2**62)
        return cls(labels=("",), sizes=np.array([num_rows], np.int64))

    @classmethod
    def from_labels(cls, labels: Iterable[str] | Iterable[int]) -> Self:
        """Put rows of equal label into one bucket.

        Args:
            labels: One label per row, all of them text or all of them integers.

        Raises:
            TypeError: A label is missing or of another type; the row is named.
        """
        names, codes = np.unique(_label_array(labels), return_inverse=True)
        return cls._of(names, codes)

    @classmethod
    def from_codes(cls, names: Sequence[Any], codes: NDArray[np.integer]) -> Self:
        """Put rows of equal label into one bucket, without one Python object per row.

        Args:
            names: Labels, in any order; one may be there several times, or for no row at all.
            codes: Which of them each row has, (rows,).

        Raises:
            TypeError: Some rows' label is missing or of another type; the first of them is named.
        """
        used = np.flatnonzero(np.bincount(codes, minlength=len(names)))
        values = _label_array(
            [names[place] for place in used.tolist()],
            row_of=lambda number: int(np.argmax(codes == used[number])),
        )
        labels, numbers = np.unique(values, return_inverse=True)
        # NumPy sorts the smallest types fastest, and they take the least memory.
        places = np.zeros(len(names), np.min_scalar_type(len(labels)))
        places[used] = numbers
        return cls._of(labels, places[codes])

    @classmethod
    def _of(cls, labels: NDArray[Any], numbers: NDArray[np.integer]) -> Self:
        return cls(
            labels=tuple(labels.tolist()),
            sizes=np.bincount(numbers, minlength=len(labels)).astype(np.int64, copy=False),
            rows=np.argsort(numbers, kind="stable").astype(np.int64, copy=False),
        )

    def __len__(self) -> int:
        """Number of buckets."""
        return len(self.labels)

    @cached_property
    def num_rows(self) -> int:
        """Rows of all buckets."""
        return int(self.sizes.sum())

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each bucket begins in `rows`, (buckets,)."""
        return np.cumsum(self.sizes) - self.sizes

    def rows_at(self, bucket: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row numbers at ``places`` in ``[0, sizes[bucket])`` of a bucket."""
        index: NDArray[np.int64] = self.offsets[bucket] + places
        if self.rows is not None:
            index = self.rows[index]
        return index


def aspect_class(width: int, height: int, *, classes: Sequence[str] = ASPECT_CLASSES) -> str:
    """Return the class whose ratio is nearest to a picture's, as ``"16_9"``.

    Args:
        width: Pixels, at least 1.
        height: Pixels, at least 1.
        classes: Classes to choose from; `PACKED_CLASSES` is what PiD's packer has.

    Raises:
        ValueError: A side is not positive.
    """
    return str(aspect_classes(np.array([width]), np.array([height]), classes=classes)[0])


def aspect_classes(
    widths: NDArray[np.integer],
    heights: NDArray[np.integer],
    *,
    classes: Sequence[str] = ASPECT_CLASSES,
) -> NDArray[np.str_]:
    """Return the class of each picture, which goes into `Buckets.from_labels`.

    Nearest means in the logarithm of width / height, so that wide and tall mirror each other. No
    picture stands between two classes: the borders are irrational.

    Args:
        widths: Pixels, at least 1, (pictures,).
        heights: Pixels, at least 1, (pictures,).
        classes: Classes to choose from.

    Raises:
        ValueError: A side is not positive.
    """
    nearest: NDArray[np.str_] = np.array(classes)[aspect_places(widths, heights, classes=classes)]
    return nearest


def aspect_places(
    widths: NDArray[np.integer],
    heights: NDArray[np.integer],
    *,
    classes: Sequence[str] = ASPECT_CLASSES,
) -> NDArray[np.intp]:
    """Return what `aspect_classes` does, as places in ``classes``."""
    for name, sides in (("widths", widths), ("heights", heights)):
        if len(sides) and sides.min() < 1:
            place = int(np.argmin(sides))
            raise ValueError(f"{name}[{place}]: a picture of {sides[place]} pixels; expected >= 1")
    ratios = np.log([_ratio(name) for name in classes])
    order = np.argsort(ratios)
    borders = (ratios[order][1:] + ratios[order][:-1]) / 2
    nearest: NDArray[np.intp] = order[np.searchsorted(borders, np.log(widths / heights))]
    return nearest


def class_of_path(path: str) -> str | None:
    """Return ``"16_9"`` for a path with a folder ``aspect_ratio_16_9``, else None.

    Where there are several such folders, the innermost counts.
    """
    for part in reversed(PurePosixPath(path).parts):
        found = re.fullmatch(r"aspect_ratio_(\d+_\d+)", part)
        if found:
            return found[1]
    return None


def target_size(preset: str, aspect: str) -> tuple[int, int]:
    """Return the size that pictures of a class are trained in, as (height, width) in pixels.

    Args:
        preset: One of `PRESETS`.
        aspect: One of `ASPECT_CLASSES`.

    Raises:
        ValueError: There is no such preset or class.
    """
    if preset not in PRESETS:
        raise ValueError(f"no size preset {preset!r}; there are {', '.join(PRESETS)}")
    if aspect not in PRESETS[preset]:
        raise ValueError(
            f"preset {preset!r} has no size for the aspect class {aspect!r}; there are "
            f"{', '.join(ASPECT_CLASSES)}"
        )
    width, height = PRESETS[preset][aspect]
    return height, width


def largest_preset(width: int, height: int) -> str | None:
    """Return the last of `PRESETS` whose target the picture covers in its class.

    Args:
        width: Pixels, at least 1.
        height: Pixels, at least 1.

    Returns:
        The preset, or None if the picture is smaller than all targets.

    Raises:
        ValueError: A side is not positive.
    """
    aspect = aspect_class(width, height)
    for preset in reversed(tuple(PRESETS)):
        target_height, target_width = target_size(preset, aspect)
        if width >= target_width and height >= target_height:
            return preset
    return None


def _ratio(name: str) -> float:
    width, height = name.split("_")
    return int(width) / int(height)


def _label_array(
    labels: Iterable[str] | Iterable[int], row_of: Callable[[int], int] = int
) -> NDArray[np.str_] | NDArray[np.int64]:
    if isinstance(labels, np.ndarray):
        if labels.dtype.kind in "iuU":
            return labels
        labels = labels.tolist()
    values = list(labels)
    kind = str if values and isinstance(values[0], str) else int
    for place, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(
                f"row {row_of(place)}: its bucket label is {value!r}; expected all labels to be text or all "
                "to be integers; drop rows without a label by where(col(...).not_null())"
            )
    return np.array(values, np.int64) if kind is int else np.array(values, np.str_)
