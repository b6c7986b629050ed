"""Bytes without a name -> the suffix that says what they are."""

from collections.abc import Mapping
from typing import Final

from daft_twinwds.pictures.image_format import format_of

__all__ = ["BYTES", "HEAD", "suffix_of_bytes"]

BYTES: Final = "bin"
"""Suffix of bytes that tell none."""

HEAD: Final = 4096
"""First bytes that are enough to tell."""

_OF_PICTURE: Final[Mapping[str, str]] = {
    "JPEG": "jpg",
    "PNG": "png",
    "WEBP": "webp",
    "GIF": "gif",
    "BMP": "bmp",
    "TIFF": "tif",
    "AVIF": "avif",
    "JPEG2000": "jp2",
}
_SIGNATURES: Final[Mapping[bytes, str]] = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"ID3": "mp3",
    b"\xff\xfb": "mp3",
    b"\x93NUMPY": "npy",
}
_RIFF: Final[Mapping[bytes, str]] = {b"WAVE": "wav", b"AVI ": "avi"}
_EBML: Final = b"\x1a\x45\xdf\xa3"
_PORTABLE: Final = {b"1": "pbm", b"2": "pgm", b"3": "ppm", b"4": "pbm", b"5": "pgm", b"6": "ppm"}


def suffix_of_bytes(head: bytes) -> str | None:
    """Return the suffix of a picture, a sound, a film or an array, or None.

    Args:
        head: The first `HEAD` bytes, or all.
    """
    picture = format_of(head)
    if picture == "PPM":
        return _PORTABLE[head[1:2]]
    if picture is not None:
        return _OF_PICTURE[picture]
    for signature, suffix in _SIGNATURES.items():
        if head.startswith(signature):
            return suffix
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[:4] == _EBML:
        return "webm" if b"webm" in head[:64] else "mkv"
    if head[4:8] == b"ftyp":
        return _of_iso_media(head[8:12])
    return None


def _of_iso_media(brand: bytes) -> str:
    if brand == b"qt  ":
        return "mov"
    if brand in (b"heic", b"heix", b"mif1"):
        return "heic"
    return "m4a" if brand == b"M4A " else "mp4"
