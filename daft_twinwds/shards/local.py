"""Bytes of local files, by range.

Everything here is plain ``pread``. Memory maps would save a copy, but turn a file that shrinks, or
a network mount that fails, into SIGBUS.
"""

import os
import stat
import time
from collections.abc import Sequence

from typing_extensions import override

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.closing import Closing
from daft_twinwds.shards.stats import record

__all__ = ["BegunFile", "LocalFile"]

READ_AHEAD = 1 << 16
"""Bytes read at once while headers lie close together, as those of small members do."""

MAX_GAP = 1 << 12
"""Unwanted bytes, as headers and padding are, that are read along to save a call."""

MAX_READ = 1 << 24
"""Bytes of neighbouring ranges that are joined into one call at most."""

WHOLE = 1 << 23
"""Files of at most so many bytes, as most tars of captions are, are read in one call."""


class LocalFile(Closing):
    """A local file as bytes: ``len(file)``, ``file[start:stop]``, ``file.read_many(...)``.

    Slices past the end are shortened, as those of ``bytes`` are; ranges asked for by size are
    not, a short one is an error. Not thread-safe: one reader at a time.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._window = b""
        self._window_start = 0
        self._whole: bytes | None = None
        self._requests = self._bytes = 0
        self._seconds = 0.0
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
            state = os.fstat(self._descriptor)
        except OSError as error:
            raise _unopened(path, error) from error
        if not stat.S_ISREG(state.st_mode):
            self.close()
            raise StorageError(
                f"{path}: not a regular file; expected one that can be read at any position; "
                "check the path"
            )
        self._size = state.st_size

    def __len__(self) -> int:
        """Size in bytes when the file was opened."""
        return self._size

    @override
    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            # Once per file: a lock for every header would cost more than reading it.
            record(requests=self._requests, num_bytes=self._bytes, seconds=self._seconds)

    def data(self) -> "bytes | LocalFile":
        """Return the file to be sliced: as bytes if it is small, else by ranges of itself.

        Raises:
            StorageError: As `read`.
        """
        if self._whole is None and self._size <= WHOLE:
            self._whole = self.read(0, self._size)
        return self if self._whole is None else self._whole

    def __getitem__(self, index: slice, /) -> bytes:
        """Return bytes by position; reads ahead while the positions are close together.

        Raises:
            StorageError: The disk fails.
            ValueError: The slice has a step.
        """
        start, stop, step = index.indices(self._size)
        if step != 1:
            raise ValueError(f"a file's slice must have no step, got a step of {step}")
        if stop <= start:
            return b""
        offset = start - self._window_start
        if offset >= 0 and stop - self._window_start <= len(self._window):
            return self._window[offset : offset + stop - start]
        near = 0 <= start - self._window_start - len(self._window) + MAX_GAP < READ_AHEAD
        size = stop - start
        if near:
            size = max(size, min(READ_AHEAD, self._size - start))
        self._window, self._window_start = self._pread(start, size), start
        return self._window[: stop - start]

    def read(self, position: int, size: int) -> bytes:
        """Return exactly ``size`` bytes from ``position``.

        Raises:
            StorageError: The range ends behind the end of the file, or the disk fails.
        """
        data = self._pread(position, size)
        if len(data) != size:
            raise StorageError(
                f"{self.path}: {len(data)} bytes at byte {position}, expected {size}; the file "
                "was cut or replaced since it was first looked at; read the dataset again"
            )
        return data

    def read_many(self, positions: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Return many ranges in the order asked for; neighbours are read in one call.

        Raises:
            StorageError: As `read`.
        """
        ranges: list[bytes] = []
        block, block_start = self._whole or b"", 0
        for number, (position, size) in enumerate(zip(positions, sizes, strict=True)):
            offset = position - block_start
            if offset < 0 or offset + size > len(block):
                block_start = position
                block = self.read(position, _joined_size(positions, sizes, number))
                offset = 0
            ranges.append(block[offset : offset + size])
        return ranges

    def _pread(self, position: int, size: int) -> bytes:
        parts: list[bytes] = []
        begin = time.perf_counter()
        try:
            while size > 0:
                # One call gives at most 2 GiB on Linux, so an honest large range takes several.
                part = os.pread(self._descriptor, size, position)
                if not part:
                    break
                parts.append(part)
                position += len(part)
                size -= len(part)
                self._requests += 1
                self._bytes += len(part)
        except OSError as error:
            raise StorageError(
                f"{self.path}: reading {size} bytes at byte {position} failed "
                f"({error.strerror}); check the disk or mount"
            ) from error
        self._seconds += time.perf_counter() - begin
        return parts[0] if len(parts) == 1 else b"".join(parts)


class BegunFile(Closing):
    """A local file as bytes, whose first ones are in memory: few are ever read beyond them.

    It is opened, read and closed in three calls to the system, and once more if others are asked
    for.
    """

    def __init__(self, path: str, size: int, *, first: int) -> None:
        """Read the first bytes.

        Args:
            path: The file.
            size: Its bytes.
            first: How many are read now.

        Raises:
            StorageError: The file cannot be read.
        """
        self._path = path
        self._size = size
        self._rest: LocalFile | None = None
        begin = time.perf_counter()
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                self._head = os.read(descriptor, first)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unopened(path, error) from error
        record(requests=1, num_bytes=len(self._head), seconds=time.perf_counter() - begin)

    @override
    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        if self._rest is not None:
            self._rest.close()

    def __len__(self) -> int:
        """Size in bytes, as it was given."""
        return self._size

    def __getitem__(self, index: slice, /) -> bytes:
        """Return bytes by position; fewer if the file has become shorter.

        Raises:
            StorageError: The file cannot be read.
        """
        start, stop, _ = index.indices(self._size)
        if stop <= len(self._head):
            return self._head[start:stop]
        if self._rest is None:
            self._rest = LocalFile(self._path)
        return self._rest[start:stop]


def _unopened(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be opened ({error.strerror}); expected a readable file; check the path "
        "and its permissions"
    )


def _joined_size(positions: Sequence[int], sizes: Sequence[int], first: int) -> int:
    """Size of the run of neighbouring ranges that begins with range ``first``."""
    start = positions[first]
    stop = start + sizes[first]
    for number in range(first + 1, len(positions)):
        position = positions[number]
        end = position + sizes[number]
        if not stop <= position <= stop + MAX_GAP or end - start > MAX_READ:
            break
        stop = end
    return stop - start
