"""PNG chunks: size, EXIF block, and a file reduced to what its pixels need."""

import struct
import zlib
from collections.abc import Iterator

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.byte_ranges import Bytes

__all__ = ["PNG_DEPTH", "essential_png", "least_png_bytes", "png_exif", "png_size"]

PNG_DEPTH = 24
"""Offset of the byte that holds the bits per sample."""

_SIGNATURE_SIZE = 8
_PIXEL_CHUNKS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Colour type -> samples per pixel."""
_DEFLATE_RATIO = 1032
"""Deflate's best: 258 bytes in two bits."""


def png_size(data: bytes) -> tuple[int, int]:
    """Return (height, width); ``struct.error`` or ``ValueError`` if the header does not say."""
    kind, width, height = struct.unpack_from(">4sII", data, 12)
    if kind != b"IHDR":
        raise ValueError(f"first chunk is {kind!r}, expected b'IHDR'")
    return height, width


def least_png_bytes(data: bytes, pixels: int) -> int:
    """Return the fewest bytes into which deflate can press so many pixels of this kind."""
    depth, colour = struct.unpack_from("BB", data, PNG_DEPTH)
    return int(pixels * _SAMPLES.get(colour, 1) * depth // 8 // _DEFLATE_RATIO)


def png_exif(data: Bytes) -> bytes | None:
    """Return the EXIF block, or None. It may stand on either side of the pixels."""
    for kind, start, end in _chunks(data):
        if kind == b"eXIf":
            return data[start:end]
    return None


def essential_png(data: bytes, *, strict: bool) -> bytes:
    """Return the PNG without the chunks that its still picture does not need.

    Pillow refuses whole pictures for long texts or colour profiles, shows other frames of animated
    files, and checks neither the pixels' checksums nor the end: so it gets only what it needs, and
    the rest is checked here.

    Args:
        data: The whole file.
        strict: Raise for wrong checksums and a missing end.

    Raises:
        DecodeError: The file is cut or damaged.
    """
    view = memoryview(data)
    pieces = [view[:_SIGNATURE_SIZE]]
    for kind, start, end in _chunks(data):
        if kind not in _PIXEL_CHUNKS:
            continue
        # The checksum covers the chunk's name, too.
        stored = int.from_bytes(view[end : end + 4], "big")
        if strict and zlib.crc32(view[start - 4 : end]) != stored:
            raise DecodeError(
                f"PNG: chunk {kind.decode()} at byte {start - 8} does not match its checksum; "
                "expected undamaged data; copy the file again or leave it out"
            )
        pieces.append(view[start - 8 : end + 4])
        if kind == b"IEND":
            return b"".join(pieces)
    if strict:
        raise DecodeError(
            f"PNG: its {len(data)} bytes end without the closing chunk; the file is cut; copy it "
            "again or leave it out"
        )
    return b"".join(pieces)


def _chunks(data: Bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start, end of the payload) of the chunks that are there in full."""
    position = _SIGNATURE_SIZE
    while position + 12 <= len(data):
        size, kind = struct.unpack(">I4s", data[position : position + 8])
        start, end = position + 8, position + 8 + size
        if end + 4 > len(data):
            return
        yield kind, start, end
        position = end + 4
