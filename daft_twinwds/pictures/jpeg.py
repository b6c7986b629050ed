"""JPEG through libjpeg-turbo: size, EXIF block and pixels, into memory that is given."""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import simplejpeg

from daft_twinwds.errors import DecodeError

__all__ = [
    "FULL_SCALE",
    "JpegLead",
    "Mode",
    "decode_jpeg",
    "jpeg_size",
    "read_lead",
    "scale_for",
]

Mode = Literal["L", "RGB", "RGBA"]

FULL_SCALE = 8
"""Scales are in eighths of the stored size, as in libjpeg."""

_SOI, _SOS, _EOI, _APP1 = 0xD8, 0xDA, 0xD9, 0xE1
_BARE_MARKERS = {0x01, *range(0xD0, _SOI + 1)}
"""Markers without a length and a payload."""
_HUFFMAN_FRAMES = {0xC0, 0xC1, 0xC2}
_NOTED = {_SOS, _EOI, _APP1, 0xFF, *_BARE_MARKERS, *_HUFFMAN_FRAMES}
"""Markers of more than a segment that is skipped."""
_LONGEST_SOS = 2 + 6 + 2 * 4
"""Bytes of the segment that begins a scan of four components, its marker included."""
_COLOURS: dict[Mode, str] = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGBA"}


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return (height, width) as stored, or None if libjpeg-turbo does not read such a JPEG."""
    try:
        # Strictness is for pixels: here it would refuse files for a blemish in a comment.
        height, width, _, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except (ValueError, KeyError):  # KeyError: a chroma layout that simplejpeg has no name for
        return None
    return int(height), int(width)


class JpegLead(NamedTuple):
    """What stands before the pixels of a JPEG."""

    exif: bytes | None
    """The first EXIF block, if there is one."""
    is_huffman: bool
    """Whether the pixels are Huffman-coded."""
    is_whole: bool
    """Whether the data hold all of it, and the head of the first scan."""

    def least_bytes(self, pixels: int) -> int:
        """Return the fewest bytes in which a JPEG of this kind can hold so many pixels.

        Huffman coding spends at least one bit on each block of 8 x 8 pixels; arithmetic coding has
        no such bound.
        """
        return pixels // (8 * 8 * 8) if self.is_huffman else 0


def read_lead(data: bytes) -> JpegLead:
    """Look at the segments before the first scan of a JPEG, of which the end may be cut off."""
    exif, is_huffman = None, False
    position, last = 2, len(data) - 4
    while position <= last and data[position] == 0xFF:
        marker = data[position + 1]
        size = data[position + 2] << 8 | data[position + 3]
        if size < 2:  # it counts its own two bytes; libjpeg reads on after a smaller one, too
            size = 2
        if marker in _NOTED:
            if marker in (_SOS, _EOI):
                break
            if marker == 0xFF:  # a fill byte
                size = -1
            elif marker in _BARE_MARKERS:
                size = 0
            elif marker in _HUFFMAN_FRAMES:
                is_huffman = True
            elif exif is None and data.startswith(b"Exif\0\0", position + 4):
                exif = data[position + 4 : position + 2 + size]
        position += 2 + size
    return JpegLead(exif, is_huffman, position + _LONGEST_SOS <= len(data))


def scale_for(share: float) -> int:
    """Return the smallest scale, in eighths, that keeps at least this share of each side.

    Only 1, 2, 3, 4 and 8 are ever chosen: 5, 6 and 7 eighths take as long as the whole picture.
    """
    return next((scale for scale in (1, 2, 3, 4) if scale / FULL_SCALE >= share), FULL_SCALE)


def decode_jpeg(
    data: bytes,
    stored: tuple[int, int],
    *,
    mode: Mode,
    strict: bool,
    scale: int = FULL_SCALE,
    out: npt.NDArray[np.uint8] | None = None,
) -> npt.NDArray[np.uint8]:
    """Return the pixels of a JPEG, as stored: EXIF is not looked at.

    Full-size RGB equals Pillow's bit for bit. "L" is the luma that the file holds. Files of four
    inks (CMYK, YCCK) are read as Adobe writes them, inverted, whether they bear Adobe's marker or
    not: so do Pillow and the browsers.

    Args:
        data: The whole file.
        stored: (height, width) from the header.
        mode: Channels wanted; the alpha of "RGBA" is 255.
        strict: Raise for damage that libjpeg can paint over.
        scale: Eighths of the stored size, see `scale_for`.
        out: Memory for the pixels, uint8 (height, width, channels), C-contiguous; None allocates.

    Returns:
        ``(height, width, channels)`` uint8, in the memory of ``out`` if that is given.

    Raises:
        DecodeError: The data are cut, damaged, or of a kind that libjpeg-turbo cannot read.
    """
    height, width = (-(-side * scale // FULL_SCALE) for side in stored)
    smallest = {} if scale == FULL_SCALE else {"min_height": height, "min_width": width}
    try:
        pixels: npt.NDArray[np.uint8] = simplejpeg.decode_jpeg(
            data, _COLOURS[mode], buffer=out, strict=strict, **smallest
        )
    except ValueError as error:
        cure = "; strict=False paints over such damage" if strict else ""
        raise DecodeError(
            f"JPEG of {stored[1]} x {stored[0]} pixels (width x height): {error}; expected whole, "
            f"undamaged data; copy the file again or leave it out{cure}"
        ) from error
    return pixels
