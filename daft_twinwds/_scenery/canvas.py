"""The canvas: colours packed into words, and noise to enlarge or repeat over it."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = [
    "GREY",
    "WORD",
    "Floats",
    "Pixels",
    "Words",
    "add_tile",
    "dimmed",
    "enlarged",
    "grain",
    "mix",
    "noise",
    "pack",
    "unpack",
]

Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]

WORD = np.dtype("<u4")
"""Little-endian: the bytes of a pixel lie as red, green, blue, unused."""
GREY = np.uint32(0x010101)
"""One in each channel; sums of words must not carry from one channel into the next."""
TILE = 512
"""Side of a noise tile, in pixels."""


def pack(colours: npt.ArrayLike) -> Words:
    """Pack colours ``(..., 3)``, cut to ``[0, 255]``, into words ``(...)``."""
    channels = np.clip(np.asarray(colours, np.float64), 0, 255).astype(WORD)
    red, green, blue = np.moveaxis(channels, -1, 0)
    return np.asarray(red | green << 8 | blue << 16, WORD)


def unpack(words: Words) -> Floats:
    """Unpack words ``(...)`` into colours ``(..., 3)``."""
    return np.stack([words >> shift & 255 for shift in (0, 8, 16)], axis=-1).astype(np.float64)


def dimmed(words: Words, bits: int) -> Words:
    """Halve every channel ``bits`` times."""
    return np.asarray(words >> bits & np.uint32((255 >> bits) * GREY), WORD)


def mix(one: npt.ArrayLike, other: npt.ArrayLike, share: npt.ArrayLike) -> Floats:
    """Blend two colours; ``share`` is that of the second, in ``[0, 1]``."""
    share = np.asarray(share)[..., np.newaxis]
    return np.asarray(np.asarray(one) * (1 - share) + np.asarray(other) * share)


@lru_cache(maxsize=4)
def noise(steepness: float, coarsest: int) -> npt.NDArray[np.float32]:
    """Return noise in ``[0, 1]``, ``(TILE, TILE)``, whose edges fit each other.

    Args:
        steepness: How fast the amplitude falls with the frequency: 0 is sand, 2 is clouds.
        coarsest: Lowest frequency, in waves per tile; below it a repeated tile shows.
    """
    rng = np.random.default_rng(0)
    spectrum = np.fft.rfft2(rng.standard_normal((TILE, TILE)))
    frequency = np.hypot(np.fft.fftfreq(TILE)[:, np.newaxis], np.fft.rfftfreq(TILE)) * TILE
    spectrum *= np.where(frequency < coarsest, 0, np.maximum(frequency, 1) ** -steepness)
    waves = np.fft.irfft2(spectrum)
    return np.asarray(np.clip(0.5 + waves / (5 * waves.std()), 0, 1), np.float32)


def enlarged(
    rng: np.random.Generator, tile: npt.NDArray[Any], rows: int, columns: int, zoom: float
) -> npt.NDArray[Any]:
    """Return ``(rows, columns)`` of a tile from a random place, enlarged by ``zoom``."""
    tile = np.roll(tile, rng.integers(0, TILE, 2), axis=(0, 1))
    box = (0, 0, min(TILE, columns / zoom), min(TILE, rows / zoom))
    return np.asarray(Image.fromarray(tile).resize((columns, rows), Image.Resampling.BILINEAR, box))


@lru_cache(maxsize=2)
def grain(steepness: float, largest: int) -> Words:
    """Return a tile of greys up to ``largest``."""
    return (noise(steepness, 10) * largest + 0.5).astype(WORD) * GREY


def add_tile(area: Words, tile: Words) -> None:
    """Add a tile, repeated, to an area of the canvas in place."""
    for top in range(0, area.shape[0], TILE):
        for left in range(0, area.shape[1], TILE):
            part = area[top : top + TILE, left : left + TILE]
            part += tile[: part.shape[0], : part.shape[1]]
