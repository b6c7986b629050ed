"""A checksum over the footer of a Parquet file, which has none: its pages do.

The sum lies in the footer itself, as one of the file's key-value pairs, and is taken with zeros in
its own place. A reader that knows nothing of it sees a plain Parquet file.
"""

import re
import zlib
from typing import BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["UNSEALED", "FooterRecorder", "read_footer", "require_seal"]

_KEY: Final = b"daft_twinwds.index_checksum"
_BLANK: Final = b"00000000"
# Thrift's compact form: the field after the key is binary, and eight bytes long.
_PLACE: Final = re.compile(re.escape(_KEY) + rb"\x18\x08(.{8})", re.DOTALL)
_MAGIC: Final = b"PAR1"
_END: Final = 4 + len(_MAGIC)
"""Bytes behind a footer: its size, and the magic."""
_TAIL: Final = 1 << 16
"""Bytes of a file's end that are read first."""

UNSEALED: Final = {_KEY: _BLANK}
"""Key-value pair in which the checksum will lie."""


class FooterRecorder:
    """A file to write Parquet into, whose footer is sealed at last.

    Args:
        file: Where the bytes go; it must be possible to seek in it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._tail: list[bytes] | None = None

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def write(self, data: bytes) -> int:
        """Write bytes."""
        if self._tail is not None:
            self._tail.append(bytes(data))
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed by whoever opened it."""

    def record(self) -> None:
        """Note that all rows are written, so that the footer comes next."""
        self._tail = []

    def seal(self) -> None:
        """Put the checksum into the footer, which has been written."""
        assert self._tail is not None
        tail = b"".join(self._tail)
        footer = tail[-_size_of_footer(tail) - _END : -_END]
        place = _place_of_seal(footer)
        end = self._file.tell()
        self._file.seek(end - _END - len(footer) + place.start(1))
        self._file.write(_sum_of(footer, place))
        self._file.seek(end)


class Readable(Protocol):
    """A file as Arrow has them."""

    def size(self) -> int: ...
    def seek(self, position: int, /) -> int: ...
    def read(self, nbytes: int | None = None) -> bytes: ...


def read_footer(file: Readable) -> tuple[pq.FileMetaData, bytes]:
    """Return a Parquet file's footer, as Arrow takes it and as it is.

    Raises:
        ValueError, OSError: It is no Parquet file, or cannot be read. (Arrow's errors are these.)
    """
    size = file.size()
    file.seek(max(0, size - _TAIL))
    tail = file.read(_TAIL)
    needed = _size_of_footer(tail) + _END
    if needed > size:
        raise ValueError(f"a footer of {needed} bytes in a file of {size}")
    if needed > len(tail):
        file.seek(size - needed)
        tail = file.read(needed)
    tail = tail[-needed:]
    return pq.read_metadata(pa.BufferReader(_MAGIC + tail)), tail[:-_END]


def require_seal(footer: bytes) -> None:
    """Raise ``ValueError`` unless a footer is as it was written."""
    place = _place_of_seal(footer)
    if place[1] != _sum_of(footer, place):
        raise ValueError("its footer does not match its checksum")


def _size_of_footer(tail: bytes) -> int:
    if len(tail) < _END or not tail.endswith(_MAGIC):
        raise ValueError("it does not end as Parquet files do")
    return int.from_bytes(tail[-_END : -len(_MAGIC)], "little")


def _place_of_seal(footer: bytes) -> re.Match[bytes]:
    place = _PLACE.search(footer)
    if place is None:
        raise ValueError("its footer has no checksum")
    return place


def _sum_of(footer: bytes, place: re.Match[bytes]) -> bytes:
    blank = footer[: place.start(1)] + _BLANK + footer[place.end(1) :]
    return b"%08x" % zlib.crc32(blank)
