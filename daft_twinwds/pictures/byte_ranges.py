"""Pictures that are read only as far as their headers reach."""

import io
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from typing_extensions import Buffer, override

__all__ = ["HEAD", "Bytes", "RangeFile", "as_file", "iter_heads"]

HEAD = 1 << 16
"""Bytes that are asked for first; few headers are longer."""
_GROWTH = 8
"""How many times as much is asked for where that was not enough."""


class Bytes(Protocol):
    """Bytes that need not be in memory; slices past the end are shortened."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> bytes: ...


def iter_heads(data: Bytes) -> Iterator[bytes]:
    """Yield ever longer beginnings of the data, the last one whole."""
    if isinstance(data, bytes):
        yield data
        return
    size = HEAD
    while size < len(data):
        yield data[:size]
        size *= _GROWTH
    yield data[:]


def as_file(data: Bytes) -> BinaryIO:
    """Return the data as a file that reads what it is asked for, and little more."""
    if isinstance(data, bytes):
        return io.BytesIO(data)
    return io.BufferedReader(RangeFile(data), HEAD)


class RangeFile(io.RawIOBase):
    """Bytes as a file without a buffer: each read is one slice."""

    def __init__(self, data: Bytes) -> None:
        super().__init__()
        self._data = data
        self._position = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        self._position = max(0, start + offset)
        return self._position

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        piece = self._data[self._position : self._position + len(view)]
        view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)
