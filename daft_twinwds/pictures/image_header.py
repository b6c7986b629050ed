"""What a picture's header claims: checked before anything is allocated for its pixels."""

import struct
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from PIL.ImageFile import ImageFile
from PIL.TiffImagePlugin import TiffImageFile

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures import jpeg, png
from daft_twinwds.pictures.byte_ranges import Bytes, iter_heads
from daft_twinwds.pictures.exif import UPRIGHT, checked_orientation, orientation_of, swaps_sides
from daft_twinwds.pictures.image_format import FORMATS, format_of, looks_like
from daft_twinwds.pictures.pillow_image import open_lazily

__all__ = ["PictureHeader", "check_claims", "read_header"]

_START = 64
"""Bytes that hold the size of a PNG and of a WebP."""
_ORIENTATION_TAG = 0x0112
_LZW_RATIO = 4096 * 8 // 12
"""GIF's best: a dictionary entry of 4096 pixels in 12 bits."""
_PLAIN_CODECS = {"BMP": {"raw"}, "TIFF": {"raw"}, "PPM": {"raw", "ppm", "ppm_plain"}}
"""Format -> Pillow's decoders of it that undo no compression."""
_LEAST_BITS = {"RGB": 15, "RGBA": 16, "CMYK": 32, "I;16": 12, "I": 8}
"""Pillow's mode -> fewest bits that an uncompressed pixel of it takes in any format."""


class PictureHeader(NamedTuple):
    """Size and place of the pixels, before they are decoded."""

    format: str
    """One of `FORMATS`."""
    height: int
    """Rows as stored."""
    width: int
    """Columns as stored."""
    orientation: int = UPRIGHT
    """EXIF orientation, 1 to 8."""
    least_bytes: int = 0
    """Fewest bytes that a file of this kind and size can have; 0 if there is no bound."""
    turbo: bool = False
    """Whether libjpeg-turbo decodes it; else Pillow does."""

    @property
    def stored(self) -> tuple[int, int]:
        """(height, width) as stored."""
        return self.height, self.width

    @property
    def upright(self) -> tuple[int, int]:
        """(height, width) as shown, turned by EXIF."""
        return self.stored[::-1] if swaps_sides(self.orientation) else self.stored


def read_header(data: Bytes) -> PictureHeader:
    """Return what a picture's header claims; no pixel is decoded.

    Args:
        data: The whole file. Where it is not in memory only the first kilobytes are read of
            most: PNG and WebP may state their orientation, and TIFF its size, anywhere.

    Raises:
        DecodeError: The bytes are no picture, or the header is cut or damaged.
    """
    heads = iter_heads(data)
    head = next(heads)
    name = format_of(head)
    if name is None:
        raise DecodeError(
            f"this is {looks_like(head)}; expected a picture ({', '.join(FORMATS)}); fetch or pack "
            "the file again"
        )
    try:
        header = _READERS.get(name, _read_by_plugin)(data, name, chain([head], heads))
    except (struct.error, IndexError, ValueError) as error:
        raise DecodeError(
            f"{name} of {len(data)} bytes has a damaged header: {error}; expected a whole file; "
            "copy it again or leave it out"
        ) from error
    if 0 in header.stored:
        raise DecodeError(
            f"{name} claims {header.width} x {header.height} pixels (width x height); expected at "
            "least 1 x 1; leave it out"
        )
    return header


def check_claims(header: PictureHeader, *, size: int, max_pixels: int) -> None:
    """Refuse a picture whose claimed size would be allocated in vain.

    Args:
        header: What the file claims.
        size: Its bytes.
        max_pixels: Largest height x width.

    Raises:
        DecodeError: Too many pixels, or more than the bytes can hold.
    """
    claim = f"{header.format} claims {header.width} x {header.height} pixels (width x height)"
    if header.height * header.width > max_pixels:
        raise DecodeError(
            f"{claim}, {header.height * header.width} in all; expected at most "
            f"max_pixels={max_pixels}; raise it if the picture is honest, or leave it out"
        )
    if size < header.least_bytes:
        raise DecodeError(
            f"{claim} in {size} bytes; such a picture needs {header.least_bytes} at the very "
            "least; the file is cut or forged, leave it out"
        )


def _read_jpeg(data: Bytes, name: str, heads: Iterator[bytes]) -> PictureHeader:
    head, lead = b"", jpeg.JpegLead(exif=None, is_huffman=False, is_whole=False)
    for head in heads:
        lead = jpeg.read_lead(head)
        if lead.is_whole:
            break
    orientation = UPRIGHT if lead.exif is None else orientation_of(lead.exif)
    size = jpeg.jpeg_size(head)
    turbo = size is not None
    # libjpeg-turbo refuses rare chroma layouts that plain libjpeg, in Pillow, reads.
    height, width = size or open_lazily(data, name).size[::-1]
    return PictureHeader(
        format=name,
        height=height,
        width=width,
        orientation=orientation,
        least_bytes=lead.least_bytes(height * width),
        turbo=turbo,
    )


def _read_png(data: Bytes, name: str, _: Iterator[bytes]) -> PictureHeader:
    start = data[:_START]
    height, width = png.png_size(start)
    exif = png.png_exif(data)
    return PictureHeader(
        format=name,
        height=height,
        width=width,
        orientation=UPRIGHT if exif is None else orientation_of(exif),
        least_bytes=png.least_png_bytes(start, height * width),
    )


def _read_webp(data: Bytes, name: str, _: Iterator[bytes]) -> PictureHeader:
    """Read a WebP by hand: Pillow's plugin allocates the canvas on opening.

    Source:
        RFC 9649 (WebP), 2.5 to 2.7; RFC 6386 (VP8), 9.1.
    """
    start = data[:_START]
    kind = start[12:16]
    orientation = UPRIGHT
    if kind == b"VP8X":
        flags, width, height = start[20], _int24(start, 24) + 1, _int24(start, 27) + 1
        if flags & 0x08:
            orientation = _webp_orientation(data)
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", start, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        sides = struct.unpack_from("<HH", start, 26)
        width, height = (side & 0x3FFF for side in sides)
    else:
        raise ValueError(f"first chunk is {kind!r}, expected VP8, VP8L or VP8X")
    return PictureHeader(format=name, height=height, width=width, orientation=orientation)


def _int24(data: bytes, position: int) -> int:
    if position + 3 > len(data):
        raise ValueError("cut inside the canvas size")
    return int.from_bytes(data[position : position + 3], "little")


def _webp_orientation(data: Bytes) -> int:
    position = 12
    while position + 8 <= len(data):
        kind, size = struct.unpack("<4sI", data[position : position + 8])
        if kind == b"EXIF":
            return orientation_of(data[position + 8 : position + 8 + size])
        position += 8 + size + size % 2
    return UPRIGHT


def _read_gif(_: Bytes, name: str, heads: Iterator[bytes]) -> PictureHeader:
    cut: Exception = IndexError("no bytes")
    for head in heads:
        try:
            return _gif_header(head, name)
        except (struct.error, IndexError) as error:
            cut = error
    raise cut


def _gif_header(data: bytes, name: str) -> PictureHeader:
    """Read a GIF by hand: Pillow's plugin may allocate a background on opening.

    A first frame that reaches beyond the screen enlarges it, as in Pillow.

    Source:
        GIF89a specification, 18 to 20 (screen, colour table, image) and 15 (sub-blocks).
    """
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while data[position] != 0x2C:
        if data[position] == 0x3B:
            raise ValueError("no frame before its end")
        if data[position] != 0x21:
            position += 1
            continue
        position += 2
        while data[position]:
            position += 1 + data[position]
        position += 1
    left, top, columns, rows = struct.unpack_from("<4H", data, position + 1)
    return PictureHeader(
        format=name,
        height=max(height, top + rows),
        width=max(width, left + columns),
        least_bytes=rows * columns // _LZW_RATIO,
    )


def _read_by_plugin(data: Bytes, name: str, _: Iterator[bytes]) -> PictureHeader:
    picture = open_lazily(data, name)
    orientation = UPRIGHT
    if isinstance(picture, TiffImageFile):
        orientation = checked_orientation(picture.tag_v2.get(_ORIENTATION_TAG, UPRIGHT))
    elif "exif" in picture.info:
        orientation = orientation_of(picture.info["exif"])
    return PictureHeader(
        format=name,
        height=picture.height,
        width=picture.width,
        orientation=orientation,
        least_bytes=_least_plain_bytes(picture),
    )


def _least_plain_bytes(picture: ImageFile) -> int:
    """Return the fewest bytes of pixels that are stored without compression; 0 if they are."""
    if picture.format not in _PLAIN_CODECS:
        return 0
    if not all(part.codec_name in _PLAIN_CODECS[picture.format] for part in picture.tile):
        return 0
    return picture.height * picture.width * _LEAST_BITS.get(picture.mode, 1) // 8


_READERS: dict[str, Callable[[Bytes, str, Iterator[bytes]], PictureHeader]] = {
    "JPEG": _read_jpeg,
    "PNG": _read_png,
    "WEBP": _read_webp,
    "GIF": _read_gif,
}
