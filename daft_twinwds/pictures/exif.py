"""The one thing that decoding needs from an EXIF block: which way up the picture is."""

import logging
import struct
from typing import Any

import numpy.typing as npt

__all__ = ["UPRIGHT", "checked_orientation", "orientation_of", "swaps_sides", "turned"]

logger = logging.getLogger("daft_twinwds")

Pixels = npt.NDArray[Any]

UPRIGHT = 1
"""The orientation that changes nothing."""

_PREFIX = b"Exif\0\0"
_ORIENTATION = 0x0112
_ENTRY = 12
"""Bytes of one directory entry: tag, type, count, value."""
_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_INTEGERS = {1: "B", 3: "H", 4: "I"}
"""EXIF type -> struct code. The standard wants SHORT, some writers store BYTE or LONG."""


def orientation_of(exif: bytes) -> int:
    r"""Return the orientation that an EXIF block states.

    A block that is broken, or states a value that does not exist, is ignored with a warning: it is
    no reason to lose a picture.

    Args:
        exif: The block, with or without the leading ``Exif\0\0`` of JPEG.

    Returns:
        1 to 8; 1 (upright) if the block does not say.

    Source:
        Exif 2.32 (CIPA DC-008), 4.6.2 structure of a directory, 4.6.4 tag 274.
    """
    try:
        value = _orientation_tag(exif.removeprefix(_PREFIX))
    except (struct.error, ValueError) as error:
        reason = "it ends before its directory does" if isinstance(error, struct.error) else error
        logger.warning("broken EXIF block of %d bytes ignored: %s", len(exif), reason)
        return UPRIGHT
    return UPRIGHT if value is None else checked_orientation(value)


def checked_orientation(value: Any) -> int:
    """Return a stated orientation, or 1 with a warning if there is no such orientation."""
    if value in range(1, 9):
        return int(value)
    logger.warning("EXIF orientation %r ignored; expected 1 to 8", value)
    return UPRIGHT


def _orientation_tag(tiff: bytes) -> int | None:
    order = _BYTE_ORDERS.get(tiff[:4])
    if order is None:
        raise ValueError(f"expected a TIFF header, found {tiff[:4]!r}")
    (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
    (entries,) = struct.unpack_from(f"{order}H", tiff, directory)
    for entry in range(directory + 2, directory + 2 + entries * _ENTRY, _ENTRY):
        tag, kind = struct.unpack_from(f"{order}HH", tiff, entry)
        if tag != _ORIENTATION:
            continue
        if kind not in _INTEGERS:
            raise ValueError(f"orientation has type {kind}, expected an integer")
        (value,) = struct.unpack_from(order + _INTEGERS[kind], tiff, entry + 8)
        return int(value)
    return None


def swaps_sides(orientation: int) -> bool:
    """Say whether turning the picture upright makes its height its width."""
    return orientation >= 5


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Return a view of stored pixels, the right way up.

    Args:
        pixels: ``(height, width, ...)`` as stored.
        orientation: 1 to 8. It names where the stored first row and first column lie when the
            picture is shown: 1 top left, 2 top right, 3 bottom right, 4 bottom left, 5 left top,
            6 right top, 7 right bottom, 8 left bottom.
    """
    if swaps_sides(orientation):
        pixels = pixels.swapaxes(0, 1)
    rows = slice(None, None, -1 if orientation in {3, 4, 7, 8} else 1)
    columns = slice(None, None, -1 if orientation in {2, 3, 6, 7} else 1)
    return pixels[rows, columns]
