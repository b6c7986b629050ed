"""What equal pictures have in common though their bytes differ."""

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.train.images import DecodeImage

__all__ = ["THUMBNAIL_SIZE", "are_close", "difference_hash", "thumbnail"]

_SIDE: Final = 8
# Overlapping cells of a picture that JPEG has not shrunk to less than eight times the grid: where
# their borders fall then hardly matters.
_TINY: Final = DecodeImage(
    size=(_SIDE, _SIDE + 1), mode="L", fit="stretch", interpolation="bilinear", reducing_gap=8.0
)
_STEP: Final = 8
"""Levels of 255 that neighbours have to differ by: compression alone changes less in even areas."""
_LEAST_STEPS: Final = 4
"""Pictures with fewer are too even to be told apart by them."""

_CELLS: Final = 16
_THUMBNAIL: Final = DecodeImage(
    size=(_CELLS, _CELLS), mode="RGB", fit="stretch", interpolation="bilinear", reducing_gap=4.0
)
THUMBNAIL_SIZE: Final = _CELLS * _CELLS * 3
"""Bytes of a `thumbnail`."""
# Of 660 copies of 60 painted scenes (JPEG down to quality 30, other sizes, PNG, WebP, GIF) the
# farthest differed by 1.1 levels on average and 14 at most, of 114,960 pairs of other scenes the
# nearest by 3.1 and 30.
_MOST_ON_AVERAGE: Final = 2.5
_MOST_ANYWHERE: Final = 20
_AT_ONCE: Final = 4096
"""Thumbnails that are compared with one: some megabytes."""


def difference_hash(data: bytes) -> str:
    """Return what tells where a picture gets clearly brighter or darker from left to right.

    The picture is turned upright, made grey and shrunk to 8 rows of 9 pixels. Each two neighbours
    give two bits: one is set if the right one is clearly brighter, one if it is clearly darker.
    Most copies of another size, format or compression have the same hash, not all: a difference
    near the threshold may fall on either side. Other pictures may have it too: it knows no
    colours and no details (see `are_close`). A picture without such differences has a hash of
    its bytes.

    Args:
        data: The whole file.

    Returns:
        32 hexadecimal digits, or ``bytes:`` and 64.

    Raises:
        DecodeError: It cannot be decoded.

    Source:
        N. Krawetz, "Kind of Like That" (2013): dHash, here with a threshold and both signs.
    """
    grey = _TINY(data)[:, :, 0].astype(np.int16)
    steps = grey[:, 1:] - grey[:, :-1]
    signs = np.stack([steps > _STEP, steps < -_STEP])
    if np.count_nonzero(signs) < _LEAST_STEPS:
        return f"bytes:{hashlib.sha256(data).hexdigest()}"
    return np.packbits(signs).tobytes().hex()


def thumbnail(data: bytes) -> bytes:
    """Return a picture, upright and over white, stretched to 16 x 16 pixels.

    Args:
        data: The whole file.

    Returns:
        Red, green and blue of each pixel, row by row.

    Raises:
        DecodeError: It cannot be decoded.
    """
    return _THUMBNAIL(data).tobytes()


def are_close(thumbnails: NDArray[np.uint8], one: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which thumbnails differ from one by no more than those of copies do.

    That is 2.5 levels of 255 on average, and 20 in any channel of any pixel. Pictures that differ
    in less than a pixel of these shows, in a line of small text, say, are close.

    Args:
        thumbnails: ``(number, THUMBNAIL_SIZE)``.
        one: ``(THUMBNAIL_SIZE,)``.

    Returns:
        ``(number,)``.
    """
    close = np.empty(len(thumbnails), np.bool_)
    for start in range(0, len(thumbnails), _AT_ONCE):
        some = thumbnails[start : start + _AT_ONCE]
        apart = np.maximum(some, one) - np.minimum(some, one)
        total = apart.sum(axis=1, dtype=np.int64)
        close[start : start + _AT_ONCE] = (total <= _MOST_ON_AVERAGE * THUMBNAIL_SIZE) & (
            apart.max(axis=1, initial=0) <= _MOST_ANYWHERE
        )
    return close
