"""Sizes and formats of pictures, from their first bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

import pyarrow as pa

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.byte_ranges import HEAD, Bytes, begun
from daft_twinwds.pictures.image_header import PictureHeader, read_header
from daft_twinwds.shards.storage import File

__all__ = ["PictureInfos", "iter_headers", "read_infos"]

_AT_ONCE: Final = 256
"""Pictures whose first bytes are in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureInfos:
    """What headers claim, one entry per picture; null where a header cannot be read."""

    widths: pa.Int64Array
    """Columns of pixels, turned by EXIF."""
    heights: pa.Int64Array
    """Rows of pixels, turned by EXIF."""
    formats: pa.StringArray
    """Format by content, as ``"JPEG"``."""

    @classmethod
    def of(cls, headers: Sequence[PictureHeader | None]) -> Self:
        """Take what is told from headers; None is one that cannot be read."""
        return cls(
            widths=pa.array([header and header.upright[1] for header in headers], pa.int64()),
            heights=pa.array([header and header.upright[0] for header in headers], pa.int64()),
            formats=pa.array([header and header.format for header in headers], pa.string()),
        )

    def values(self, what: Literal["width", "height", "format"]) -> pa.Array:
        """Return one of the three."""
        return {"width": self.widths, "height": self.heights, "format": self.formats}[what]


def read_infos(file: File, positions: Sequence[int], sizes: Sequence[int]) -> PictureInfos:
    """Read the headers of pictures; of most only the first kilobytes are read.

    Args:
        file: The tar.
        positions: First byte of each picture.
        sizes: Bytes of each.

    Raises:
        StorageError: The tar cannot be read.
    """
    headers = iter_headers(file, positions, sizes)
    return PictureInfos.of(
        [None if isinstance(header, DecodeError) else header for header in headers]
    )


def iter_headers(
    file: File, positions: Sequence[int], sizes: Sequence[int]
) -> Iterator[PictureHeader | DecodeError]:
    """Yield the header of each picture, or why it cannot be read; see `read_infos`.

    Raises:
        StorageError: The tar cannot be read.
    """
    for start in range(0, len(positions), _AT_ONCE):
        at = slice(start, start + _AT_ONCE)
        heads = file.read_many(positions[at], [min(size, HEAD) for size in sizes[at]])
        for position, size, head in zip(positions[at], sizes[at], heads, strict=True):
            yield _header_of(begun(file, position, size, head))


def _header_of(data: Bytes) -> PictureHeader | DecodeError:
    try:
        return read_header(data)
    except DecodeError as error:
        return error
