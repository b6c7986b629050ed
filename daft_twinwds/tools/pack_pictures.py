"""How large a picture is, read from as little of its file as tells; and whether it decodes."""

import struct
from collections.abc import Iterator
from typing import Final

from daft_twinwds.errors import DecodeError
from daft_twinwds.shards.storage import LocalFile, read_range
from daft_twinwds.train.image_format import format_of
from daft_twinwds.train.image_header import PictureHeader, read_header
from daft_twinwds.train.images import DecodeImage

__all__ = ["check_picture", "picture_size"]

_HEAD: Final = 1 << 16
_GROWTH: Final = 4
_ANYWHERE: Final = ("TIFF", "AVIF")
"""Formats whose header may stand anywhere: that of a part can look sound and be wrong."""
_LARGEST_CHUNK: Final = 1 << 20
_PNG_SIGNATURE: Final = 8
_WEBP_HEAD: Final = 30
"""Bytes of a WebP up to the end of its VP8X chunk."""
_WEBP_HAS_EXIF: Final = 0x08


def picture_size(path: str) -> tuple[int, int]:
    """Return (height, width) as shown, turned by EXIF.

    The result is that of `read_header` on the whole file, mostly at the price of its first 64 KiB.
    PNG and WebP may turn a picture at the end of the file: their chunks are leapt over. TIFF and
    AVIF are read whole.

    Raises:
        DecodeError: It is no picture, or its header is damaged.
        StorageError: It cannot be read.
    """
    with LocalFile(path) as file:
        return _header(file).upright


def check_picture(path: str, size: int) -> None:
    """Decode a picture fully, as strictly as `DecodeImage` does.

    Raises:
        DecodeError: It does not decode.
        StorageError: It cannot be read.
    """
    DecodeImage()(read_range(path, 0, size))


def _header(file: LocalFile) -> PictureHeader:
    length = min(len(file), _HEAD)
    head = file.read(0, length)
    kind = format_of(head)
    if length < len(file):
        if kind == "PNG":
            return read_header(head[:_PNG_SIGNATURE] + b"".join(_png_chunks(file)))
        if kind == "WEBP":
            return read_header(_webp_head(file, head))
        if kind in _ANYWHERE:
            length = len(file)
            head = file.read(0, length)
    while True:
        try:
            return read_header(head)
        except DecodeError:
            # Profiles and previews may stand before the size; of what is no picture, more bytes
            # would not make one.
            if kind is None or length == len(file):
                raise
        length = min(len(file), length * _GROWTH)
        head = file.read(0, length)


def _png_chunks(file: LocalFile) -> Iterator[bytes]:
    """Yield the chunks of a PNG that tell its size and which way up it is."""
    position = _PNG_SIGNATURE
    while position + 12 <= len(file):
        size, kind = struct.unpack(">I4s", file.read(position, 8))
        end = position + 12 + size
        if kind in (b"IHDR", b"eXIf") and size <= _LARGEST_CHUNK and end <= len(file):
            yield file.read(position, 12 + size)
        if kind == b"eXIf":
            return
        position = end


def _webp_head(file: LocalFile, head: bytes) -> bytes:
    """Return the head of a WebP, its EXIF chunk moved to where the pixels were."""
    if head[12:16] != b"VP8X" or not head[20] & _WEBP_HAS_EXIF:
        return head
    position = _WEBP_HEAD
    while position + 8 <= len(file):
        kind, size = struct.unpack("<4sI", file.read(position, 8))
        if kind == b"EXIF":
            size = min(size, _LARGEST_CHUNK, len(file) - position - 8)
            return head[:_WEBP_HEAD] + file.read(position, 8 + size)
        position += 8 + size + size % 2
    return head
