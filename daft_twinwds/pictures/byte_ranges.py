"""Pictures that are read only as far as their headers reach."""

import io
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from typing_extensions import Buffer, override

__all__ = ["FIRST", "HEAD", "Bytes", "RangeFile", "as_file", "begun", "iter_heads"]

HEAD = 1 << 16
"""Bytes that are asked for at once where asking takes its time; few headers are longer."""
FIRST = 1 << 12
"""Bytes that are looked at first; most headers are shorter."""
_GROWTH = 8
"""How many times as much is looked at where `HEAD` was not enough."""


class Bytes(Protocol):
    """Bytes that need not be in memory; slices past the end are shortened."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> bytes: ...


def iter_heads(data: Bytes) -> Iterator[bytes]:
    """Yield ever longer beginnings of the data, the last one whole."""
    if isinstance(data, bytes):
        yield data
        return
    size = FIRST
    while size < len(data):
        yield data[:size]
        size = HEAD if size < HEAD else size * _GROWTH
    yield data[:]


def begun(file: Bytes, position: int, size: int, head: bytes) -> Bytes:
    """Return a part of a file of which the beginning, or all of it, is in memory."""
    return head if len(head) == size else _Begun(file, position, size, head)


class _Begun:
    def __init__(self, file: Bytes, position: int, size: int, head: bytes) -> None:
        self._file = file
        self._position = position
        self._size = size
        self._head = head

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: slice, /) -> bytes:
        start, stop, _ = index.indices(self._size)
        if stop <= len(self._head):
            return self._head[start:stop]
        return self._file[self._position + start : self._position + stop] if start < stop else b""


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
