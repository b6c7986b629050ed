"""Local and remote files as Arrow reads them."""

from typing import Any

import pyarrow as pa

from daft_twinwds.pictures.byte_ranges import RangeFile
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.storage import File, open_file
from daft_twinwds.shards.tar_state import TarState
from daft_twinwds.shards.urls import is_url, local_path

__all__ = ["ArrowFile"]


class ArrowFile:
    """A file of which only the ranges are read that Arrow asks for. Not thread-safe.

    Args:
        path: An absolute local path or a URL.
        options: How it is accessed.
        state: Which version of a remote file it must be. Local files are not asked.

    Raises:
        OSError: A local file cannot be opened. What a server refuses is found by the first read.
    """

    def __init__(
        self, path: str, options: StorageOptions = ENVIRONMENT, state: TarState | None = None
    ) -> None:
        self._ranges: _Ranges | None = None
        self.source: Any
        """A ``pyarrow.NativeFile``."""
        if is_url(path):
            version = None if state is None else (state.size, state.tag)
            self._ranges = _Ranges(open_file(path, options, version=version))
            self.source = pa.PythonFile(RangeFile(self._ranges), mode="r")
        else:
            self.source = pa.OSFile(local_path(path))

    def hold(self, start: int, stop: int) -> None:
        """Read a range of a remote file at once, for reads of its parts to be served from.

        Raises:
            StorageError: It cannot be read, or is another version.
        """
        if self._ranges is not None:
            self._ranges.hold(start, stop)

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self.source.close()


class _Ranges:
    """A file's ranges exactly as asked for: what Arrow reads needs no reading ahead."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._held = b""
        self._start = 0

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: slice, /) -> bytes:
        start, stop, _ = index.indices(len(self))
        if start >= stop:
            return b""
        if self._has(start, stop):
            return self._held[start - self._start : stop - self._start]
        return self._file.read(start, stop - start)

    def hold(self, start: int, stop: int) -> None:
        stop = min(stop, len(self))
        if not self._has(start, stop):
            self._held, self._start = self._file.read(start, stop - start), start

    def _has(self, start: int, stop: int) -> bool:
        return self._start <= start and stop <= self._start + len(self._held)
