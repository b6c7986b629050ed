"""What equal pictures have in common though their bytes differ."""

import hashlib
from typing import Final

import numpy as np

from daft_twinwds.train.images import DecodeImage

__all__ = ["difference_hash"]

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


def difference_hash(data: bytes) -> str:
    """Return what tells where a picture gets clearly brighter or darker from left to right.

    The picture is turned upright, made grey and shrunk to 8 rows of 9 pixels. Each two neighbours
    give two bits: one is set if the right one is clearly brighter, one if it is clearly darker.
    Most copies of another size, format or compression have the same hash, not all: a difference
    near the threshold may fall on either side. A picture without such differences has a hash of
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
