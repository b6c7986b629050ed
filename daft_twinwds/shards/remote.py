"""A remote object as a file: its size, ranges of it, many ranges at once."""

from collections.abc import Sequence
from typing import Final, Self

from typing_extensions import override

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.clients import request_pool
from daft_twinwds.shards.closing import Closing
from daft_twinwds.shards.fetch import Piece, fetch
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.read_plans import FIRST_READ, PART, join_ranges, next_read, split_range
from daft_twinwds.shards.sources import Source, source_of
from daft_twinwds.shards.tar_header import BLOCK
from daft_twinwds.shards.urls import Url

__all__ = ["RemoteFile"]

MAX_GAP: Final = 1 << 17
"""Unwanted bytes between two ranges that are read along to save a request."""

MAX_KEPT: Final = 1 << 24
"""Bytes from a file's beginning that are kept, so that texts behind the headers come for free."""


class RemoteFile(Closing):
    """A remote object as bytes: ``len(file)``, ``file[start:stop]``, ``file.read_many(...)``.

    Nothing is sent before something is asked for; a range whose size is known costs one request
    and no look at the object's size. Slices past the end are shortened, as those of ``bytes``
    are; ranges asked for by size are not, a short one is an error. Not thread-safe: one reader at
    a time.
    """

    def __init__(
        self,
        url: str,
        options: StorageOptions,
        *,
        version: tuple[int, str | None] | None = None,
    ) -> None:
        self._options = options.with_secrets_of(url)
        self._url = Url.parse(url)
        self._source: Source = source_of(self._url, self._options)
        self.path = str(self._url)
        """The URL without what is secret in it, for messages."""
        self._version = version
        self._head = bytearray()
        self._window = b""
        self._window_start = 0
        # How far apart headers are: those met so far, and where the last slice ended.
        self._headers = 0
        self._last_stop = 0

    def __len__(self) -> int:
        """Size in bytes, from the answer to the first request for some of them.

        Raises:
            StorageError: The object cannot be read.
        """
        return self._size()

    @override
    def close(self) -> None:
        """Forget what was read; connections are the process's and stay."""
        self._head, self._window = bytearray(), b""

    def data(self) -> Self:
        """Return the file itself: it is read where it is sliced."""
        return self

    def __getitem__(self, index: slice, /) -> bytes:
        """Return bytes by position, reading ahead as far as `next_read` finds it worthwhile.

        Raises:
            StorageError: The object cannot be read.
            ValueError: The slice has a step.
        """
        size = self._size()
        start, stop, step = index.indices(size)
        if step != 1:
            raise ValueError(f"a file's slice must have no step, got a step of {step}")
        if stop <= start:
            return b""
        # What follows at once, as extensions do, belongs to the header before.
        if start - self._last_stop >= BLOCK:
            self._headers += 1
        self._last_stop = stop
        known = self._known(start, stop)
        if known is None:
            read = next_read(
                range(start, stop),
                read_to=self._read_to(),
                headers=self._headers,
                size=size,
                request_cost=self._options.request_cost,
            )
            self._keep(self._fetch(read))
            known = self._known(start, stop)
        assert known is not None
        return known

    def read(self, position: int, size: int) -> bytes:
        """Return exactly ``size`` bytes from ``position``.

        Raises:
            StorageError: The range ends behind the end of the object, or cannot be read.
        """
        (data,) = self.read_many([position], [size])
        return data

    def read_many(self, positions: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Return many ranges in the order asked for.

        Neighbours are read in one request, large ranges in several, and the requests run side by
        side.

        Raises:
            StorageError: As `read`.
        """
        ranges: list[bytes] = [b""] * len(positions)
        missing: list[int] = []
        for number, (position, size) in enumerate(zip(positions, sizes, strict=True)):
            self._require_inside(position, size)
            known = self._known(position, position + size)
            if known is None:
                missing.append(number)
            else:
                ranges[number] = known
        spans = join_ranges(
            [positions[number] for number in missing],
            [sizes[number] for number in missing],
            max_gap=MAX_GAP,
            max_size=PART,
        )
        parts = [part for span in spans for part in split_range(span.start, span.stop)]
        pieces = iter(self._fetch_all(parts))
        for span in spans:
            data = b"".join(next(pieces) for _ in split_range(span.start, span.stop))
            for member in span.members:
                number = missing[member]
                offset = positions[number] - span.start
                ranges[number] = data[offset : offset + sizes[number]]
                if len(ranges[number]) != sizes[number]:
                    raise self._short(positions[number], sizes[number], len(ranges[number]))
        return ranges

    def _size(self) -> int:
        if self._version is None:
            self._keep(self._fetch(range(FIRST_READ)))
        assert self._version is not None
        return self._version[0]

    def _fetch(self, part: range) -> Piece:
        return fetch(self._source, part.start, part.stop, url=self._url, options=self._options)

    def _fetch_all(self, parts: Sequence[range]) -> list[bytes]:
        """Return the bytes of all parts, fewer only where the object ends."""
        if len(parts) > 1:
            pieces = request_pool(self._options).map(self._fetch, parts)
        else:
            pieces = map(self._fetch, parts)
        data = []
        for part, piece in zip(parts, pieces, strict=True):
            self._check(piece)
            # A server may have sent everything there is.
            data.append(piece.data[part.start - piece.start : part.stop - piece.start])
        return data

    def _check(self, piece: Piece) -> None:
        version = (piece.size, piece.tag)
        if self._version not in (None, version):
            raise StorageError(
                f"{self.path}: was replaced while it was read; expected files that stay as they "
                "are; read the dataset again"
            )
        self._version = version

    def _known(self, start: int, stop: int) -> bytes | None:
        """Return bytes that are at hand, ``None`` if not all of them are."""
        offset = start - self._window_start
        if offset >= 0 and stop - self._window_start <= len(self._window):
            return self._window[offset : offset + stop - start]
        if stop <= len(self._head):
            return bytes(self._head[start:stop])
        return None

    def _read_to(self) -> int:
        return self._window_start + len(self._window)

    def _keep(self, piece: Piece) -> None:
        self._check(piece)
        self._window, self._window_start = piece.data, piece.start
        if piece.start == len(self._head) and piece.stop <= MAX_KEPT:
            self._head += piece.data

    def _require_inside(self, position: int, size: int) -> None:
        if self._version is not None and position + size > self._version[0]:
            raise self._short(position, size, max(0, self._version[0] - position))

    def _short(self, position: int, size: int, there: int) -> StorageError:
        return StorageError(
            f"{self.path}: {there} bytes at byte {position}, expected {size}; the file was cut or "
            "replaced since it was first looked at; read the dataset again"
        )
