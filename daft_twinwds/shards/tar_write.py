"""Plain tars whose bytes depend on names and contents alone.

What ``tarfile`` writes in ustar format for files without an owner and a time, at a fraction of its
price per member. A pax header comes only before members that ustar cannot hold: long names that
have no slash in the right place, and 8 GiB or more.
"""

import os
import re
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Protocol, Self
from zlib import adler32

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.tar_header import BLOCK, is_sidecar

__all__ = ["LONGEST_NAME", "TarWriter", "Writable", "member_header", "name_fault", "tar_size"]

LONGEST_NAME: Final = 4095
"""Bytes of a member's name; no longer path can be opened on Linux."""

_RECORD: Final = 20 * BLOCK
"""Tars end at a multiple of this, as GNU tar's and Python's do."""
_END_MARKER: Final = 2 * BLOCK
_CHUNK: Final = 1 << 20
_NAME_SIZE, _PREFIX_SIZE = 100, 155
_LARGEST_SIZE: Final = 8**11 - 1

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}")
_ZEROS: Final = bytes(BLOCK)
# Mode, owner and group before the size, the time after it; all of them say nothing.
_OWNER: Final = b"0000644\x000000000\x000000000\x00"
_PAX_OWNER: Final = b"0000000\x000000000\x000000000\x00"
_TIME: Final = b"\x0000000000000\x00"
_MAGIC: Final = bytes(100) + b"ustar\x0000" + bytes(80)
_PLAIN_REST: Final = b"0" + _MAGIC + bytes(_PREFIX_SIZE + 12)
_PLAIN_SUM: Final = sum(_PLAIN_REST) + 8 * ord(" ")


def name_fault(name: str) -> str | None:
    """Return why a member cannot have this name, or None if it can.

    Names that pass are given back unchanged by `read_members` and unpack to a file below the
    folder that the tar is unpacked in.
    """
    # Nearly all names are as plain as this, and looked at twice.
    if _PLAIN_NAME.fullmatch(name):
        return None
    if "\0" in name:
        return "NUL in its name"
    if "\\" in name:
        return "backslash in its name"
    if name.startswith("/"):
        return "absolute name"
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        return "empty part, '.' or '..' in its name"
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        return "name is not UTF-8"
    if len(raw) > LONGEST_NAME:
        return f"name longer than {LONGEST_NAME} bytes"
    return "macOS sidecar" if is_sidecar(raw) else None


def member_header(name: str, size: int) -> bytes:
    """Return what stands before a member's payload: one block, or three and more with pax.

    Args:
        name: One that `name_fault` finds nothing wrong with.
        size: Bytes of the payload.

    Source:
        POSIX.1-2017 pax, "ustar Interchange Format" and "pax Extended Header".
    """
    raw = name.encode()
    if len(raw) <= _NAME_SIZE and size <= _LARGEST_SIZE:
        start = b"%b%b%011o%b" % (raw.ljust(_NAME_SIZE, b"\0"), _OWNER, size, _TIME)
        # The low half of adler32 is the sum modulo 65521, which so few bytes do not add up to.
        return b"%b%06o\0 %b" % (start, (adler32(start, 0) & 0xFFFF) + _PLAIN_SUM, _PLAIN_REST)
    prefix, base = _split(raw)
    records = b""
    if base is None:
        prefix, base = b"", raw[:_NAME_SIZE].decode(errors="ignore").encode()
        records += _pax_record(b"path", raw)
    if size > _LARGEST_SIZE:
        records += _pax_record(b"size", b"%d" % size)
        size = 0
    main = _block(base, size, kind=b"0", prefix=prefix, owner=_OWNER)
    if not records:
        return main
    pax = _block(b"././@PaxHeader", len(records), kind=b"x", prefix=b"", owner=_PAX_OWNER)
    return pax + records + _padding(len(records)) + main


def tar_size(members: Iterable[tuple[str, int]]) -> int:
    """Return the bytes of a tar of these names and payload sizes, as `TarWriter` writes it."""
    size = _END_MARKER
    for name, payload in members:
        size += len(member_header(name, payload)) + payload + -payload % BLOCK
    return size + -size % _RECORD


class Writable(Protocol):
    """What bytes are written to, one after another."""

    def write(self, data: bytes, /) -> int:
        """Take all of the bytes; return how many they are."""


class TarWriter:
    """Writes one tar, member by member, to a file that is open at position 0.

    ::

        with new_file(path) as file, TarWriter(file) as tar:
            tar.add("id_0.json", b"{}")
            tar.add_file("id_1.json", "/captions/1.json", size=2)

    Memory does not depend on the sizes of members. Names may not be repeated by the caller, which
    is not checked. The end is written when the block ends without an error.
    """

    def __init__(self, file: Writable) -> None:
        self._file = file
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            end = self._position + _END_MARKER
            self._file.write(bytes(_END_MARKER + -end % _RECORD))

    def add(self, name: str, data: bytes) -> None:
        """Add a member.

        Raises:
            ValueError: `name_fault` finds the name unfit.
            OSError: The file cannot be written to.
        """
        self._begin(name, len(data))
        self._file.write(data)
        self._end(len(data))

    def add_file(self, name: str, path: str, *, size: int) -> None:
        """Add a copy of a file.

        Args:
            name: The member's.
            path: The file.
            size: Its bytes, which stand in the tar before the first of them.

        Raises:
            StorageError: The file cannot be read, or is not of that size.
            ValueError: `name_fault` finds the name unfit.
            OSError: The tar cannot be written to.
        """
        self._begin(name, size)
        descriptor = _open(path)
        try:
            left = size
            while left > 0:
                # One byte more than wanted tells whether the file has grown.
                chunk = _read(descriptor, min(left + 1, _CHUNK), path)
                left -= len(chunk)
                if not chunk or left < 0:
                    raise StorageError(
                        f"{path}: {'more' if left < 0 else 'fewer'} bytes than the {size} that it "
                        "had when it was listed; expected files that nobody writes to; pack again"
                    )
                self._file.write(chunk)
        finally:
            os.close(descriptor)
        self._end(size)

    def add_pieces(self, name: str, pieces: Iterable[bytes], *, size: int) -> None:
        """Add a member whose bytes come one piece after another.

        Args:
            name: The member's.
            pieces: Its bytes.
            size: How many they are, which stands in the tar before the first of them.

        Raises:
            StorageError: They are fewer or more than that.
            ValueError: `name_fault` finds the name unfit.
            OSError: The tar cannot be written to.
        """
        self._begin(name, size)
        written = 0
        for piece in pieces:
            written += len(piece)
            if written > size:
                break
            self._file.write(piece)
        if written != size:
            raise StorageError(
                f"member {name!r}: {'more' if written > size else 'fewer'} bytes than the {size} "
                "that it was to have; expected data that nobody writes to; write again"
            )
        self._end(size)

    @property
    def size(self) -> int:
        """Bytes of the whole tar if it ended now, or as it has ended."""
        end = self._position + _END_MARKER
        return end + -end % _RECORD

    def size_with(self, name: str, size: int) -> int:
        """Return the bytes of the whole tar if it ended after one more member.

        Args:
            name: The member's, one that `name_fault` finds nothing wrong with.
            size: Bytes of its payload.
        """
        end = self._position + len(member_header(name, size)) + size + -size % BLOCK + _END_MARKER
        return end + -end % _RECORD

    def _begin(self, name: str, size: int) -> None:
        fault = name_fault(name)
        if fault is not None:
            raise ValueError(
                f"member name {name!r}: {fault}; expected a relative path of UTF-8 text"
            )
        header = member_header(name, size)
        self._file.write(header)
        self._position += len(header)

    def _end(self, size: int) -> None:
        self._file.write(_padding(size))
        self._position += size + -size % BLOCK


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(descriptor: int, size: int, path: str) -> bytes:
    try:
        return os.read(descriptor, size)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be read ({error.strerror}); expected a readable file; check that it is "
        "still there, its permissions and its mount"
    )


def _block(name: bytes, size: int, *, kind: bytes, prefix: bytes, owner: bytes) -> bytes:
    start = name.ljust(_NAME_SIZE, b"\0") + owner + b"%011o" % size + _TIME
    rest = kind + _MAGIC + prefix.ljust(_PREFIX_SIZE, b"\0") + bytes(12)
    return start + b"%06o\0 " % (sum(start) + sum(rest) + 8 * ord(" ")) + rest


def _split(name: bytes) -> tuple[bytes, bytes | None]:
    """Return ustar's prefix and name; the name is None where no slash stands in the right place."""
    if len(name) <= _NAME_SIZE:
        return b"", name
    # The first slash that leaves a short enough name: what Python's tarfile chooses, too.
    slash = name.find(b"/", len(name) - _NAME_SIZE - 1)
    if not 0 < slash <= _PREFIX_SIZE:
        return b"", None
    return name[:slash], name[slash + 1 :]


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    """Return ``b"<length> <keyword>=<value>"``, whose length counts its own digits."""
    rest = b" %b=%b\n" % (keyword, value)
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def _padding(size: int) -> bytes:
    return _ZEROS[: -size % BLOCK]
