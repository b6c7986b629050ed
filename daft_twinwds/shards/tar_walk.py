"""The pass over a tar's headers: which regular files and links it holds, and how it ends."""

import struct
from collections import Counter
from typing import Protocol
from zlib import adler32

from daft_twinwds.errors import StorageError, TarFormatError
from daft_twinwds.shards.tar_header import (
    BLOCK,
    MAGIC_POSITION,
    PATH,
    SIZE,
    SPARSE,
    TARGET,
    Header,
    HeaderError,
    describe_foreign,
    expected_sum,
    extension_fields,
    has_valid_checksum,
    is_sidecar,
    parse_header,
    pax_size,
)
from daft_twinwds.shards.tar_links import Link
from daft_twinwds.shards.tar_plain import read_plain_run

MAX_EXTENSION_HEADER = 1 << 20
"""Bytes that a long name, or the pax records of one member, may take."""
BAD_NAMES = "names that are not UTF-8"
MAX_BAD_NAMES = 1000
"""Members with unreadable names of which an error is kept; the others are only counted."""

_RECORD_SIZE = 20 * BLOCK  # GNU tar rounds an archive up to this, so an empty one is no longer
_CHUNK = 1 << 20
_ZEROS = bytes(BLOCK)
_PLAIN_FIELDS = struct.Struct("100s 24x 11s c 12x 8s c 188x c 166x")
_CLOSING = (b"\0", b" ")
_DOT, _SLASH = b"./"
_SHOWN, _SHOWN_IF_BAD = 200, 60

_EXTENSIONS = (b"x", b"L", b"K", b"g", b"X")

_COPY_AGAIN = "copy or pack it again"
_PACK_AGAIN = "pack it again"
_NOT_EMPTY = "a tar was expected; copy or download it again"
_PACK_PLAIN = (
    "only whole, plain files can be read by byte range; pack the tar again with a plain `tar -cf`"
)
_REFUSED = {
    b"S": "a sparse file",
    b"D": "a GNU dump of a folder",
    b"M": "the rest of a file in another volume",
}


class Bytes(Protocol):
    """What is walked: ``bytes``, an ``mmap.mmap``, or a cache of remote blocks.

    A slice is a ``bytes`` with everything that was asked for, short only at the end.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> bytes: ...


class Walk:
    """One pass over the headers of one tar; afterwards its attributes hold what was found."""

    def __init__(self, data: Bytes, *, path: str, strict: bool) -> None:
        self.names: list[str] = []
        self.positions: list[int] = []
        self.sizes: list[int] = []
        self.links: list[Link] = []
        self.notes: Counter[str] = Counter()
        self.bad_names: list[TarFormatError] = []
        """Of members left out for their names, the first `MAX_BAD_NAMES`."""
        self.ended = False
        """Whether the end of the tar was reached."""
        self.end: int | None = None
        """Byte offset of the end marker, or of where it should be, once that was reached."""
        self._data = data
        self._length = len(data)
        self._path = path
        self._strict = strict
        # What extension headers say of the next member, and where the first of them stands.
        self._pending: dict[bytes, bytes] = {}
        self._pending_offset: int | None = None

    def run(self, limit: int) -> None:
        """Walk to the end of the tar or to the ``limit``-th regular file.

        Raises:
            TarFormatError: At the first fault; what was found before it stays.
            StorageError: ``data`` came back shorter than its length.
        """
        data, length = self._data, self._length
        names, positions, sizes = self.names, self.positions, self.sizes
        unpack = _PLAIN_FIELDS.unpack
        offset, announced = 0, False
        if isinstance(data, bytes):
            run = read_plain_run(data)
            names += run.names[:limit]
            positions += run.positions[:limit]
            sizes += run.sizes[:limit]
            offset = run.end
        while len(names) < limit:
            block = data[offset : offset + BLOCK]
            if len(block) < BLOCK:
                self._end_without_marker(offset, block)
                return
            field, octal, closing, checksum, kind, prefix = unpack(block)
            # Nearly all headers of a shard are as plain as this, and the speed is theirs; at any
            # doubt _read() looks closely. 512 ASCII bytes cannot add up to 65521, so the low half
            # of adler32 is their sum, at a tenth of the price of sum().
            if (
                kind == b"0"
                and (field[0] > _DOT or (field[:2] == b"./" and field[2] > _SLASH))
                and prefix == b"\0"
                and closing in _CLOSING
                and not octal.strip(b"01234567")
                and not announced
                and block.isascii()
                and adler32(block, 0) & 0xFFFF == expected_sum(checksum)
            ):
                name = field.partition(b"\0")[0].decode()
                size = int(octal, 8)
                position = offset + BLOCK
                if field[0] == _DOT:
                    name = name[2:]
                if "/." not in name and "__MACOSX" not in name and position + size <= length:
                    names.append(name)
                    positions.append(position)
                    sizes.append(size)
                    offset = position + size + -size % BLOCK
                    continue
            offset = self._read(offset, block)
            if self.ended:
                return
            announced = self._pending_offset is not None

    def error_at(
        self, offset: int, found: str, cure: str, *, count: int | None = None
    ) -> TarFormatError:
        """Return the error for a fault at ``offset``, with how far the tar is sound.

        Args:
            offset: Byte offset of the fault's header.
            found: What was found there, and what was expected.
            cure: What to do.
            count: Regular files before the fault; all that were found by default.
        """
        count = len(self.names) if count is None else count
        sound = "no file before it is whole"
        if count:
            end = self.positions[count - 1] + self.sizes[count - 1]
            files = "1 file" if count == 1 else f"{count} files"
            sound = f"sound up to byte {end}, after {files}"
        error = TarFormatError(f"{self._path}: byte {offset}: {found}; {sound}; {cure}")
        error.offset = offset
        return error

    def _bad_header(self, offset: int, block: bytes, how: str) -> TarFormatError:
        # The name may be nonsense as well, but most often it tells what to look for.
        name = _shown(block[:_SHOWN_IF_BAD].partition(b"\0")[0])
        return self.error_at(offset, f"the header here, of {name}, {how}", _COPY_AGAIN)

    def _read(self, offset: int, block: bytes) -> int:
        """Take in the block at ``offset``, of any kind, and return where the next header stands."""
        if not has_valid_checksum(block):
            if block == _ZEROS:
                return self._end_with_marker(offset)
            if offset == 0 and not block.startswith(b"ustar", MAGIC_POSITION):
                raise TarFormatError(f"{self._path}: {describe_foreign(block)}")
            raise self._bad_header(offset, block, "has a wrong checksum")
        try:
            header = parse_header(block)
            if header.kind in _EXTENSIONS:
                return self._read_extension(offset, header)
            header = self._extended(offset, header)
        except HeaderError as error:
            raise self._bad_header(offset, block, f"is bad: {error}") from error
        return self._read_member(offset, header)

    def _read_member(self, offset: int, header: Header) -> int:
        kind = header.kind
        # Before POSIX gave folders a type of their own, a trailing slash told them.
        if kind == b"\0":
            kind = b"5" if header.name.endswith(b"/") else b"0"
        match kind:
            case b"0" | b"7":
                return self._read_regular(offset, header)
            case b"1" | b"2":
                self._read_link(offset, header)
            case b"3" | b"4" | b"6":
                self.notes["special files skipped"] += 1
            case b"V":
                self.notes["volume labels skipped"] += 1
                return self._after_payload(offset, header)
            case b"5":
                pass
            case _:
                what = _REFUSED.get(kind, f"of the unknown type {kind!r}")
                raise self.error_at(offset, f"{_shown(header.name)} is {what}", _PACK_PLAIN)
        # Nothing follows a folder or a link, whatever its size says: some tars give a link the
        # size of its file.
        return offset + BLOCK

    def _read_regular(self, offset: int, header: Header) -> int:
        after = self._after_payload(offset, header)
        name = self._name(offset, header.name)
        if name is not None:
            self.names.append(name)
            self.positions.append(offset + BLOCK)
            self.sizes.append(header.size)
        return after

    def _read_link(self, offset: int, header: Header) -> None:
        name = self._name(offset, header.name)
        target = None if name is None else self._decoded(offset, header.target)
        if name is not None and target is not None:
            symbolic = header.kind == b"2"
            place = len(self.names)
            self.links.append(
                Link(name=name, target=target, symbolic=symbolic, place=place, offset=offset)
            )

    def _after_payload(self, offset: int, header: Header) -> int:
        """Return where the next header stands, once it is sure that the payload is all there."""
        end = offset + BLOCK + header.size
        if end > self._length:
            raise self.error_at(
                offset,
                f"{_shown(header.name)} should go on to byte {end}, "
                f"but the tar is cut at byte {self._length}",
                _COPY_AGAIN,
            )
        return end + -header.size % BLOCK

    def _name(self, offset: int, raw: bytes) -> str | None:
        """Return a member's name without a leading ``./``, or None if it is to be left out."""
        if is_sidecar(raw):
            self.notes["macOS sidecars skipped"] += 1
            return None
        name = self._decoded(offset, raw)
        if name is None:
            return None
        while name.startswith("./"):
            name = name[2:].lstrip("/")
        if not name or "\0" in name:
            raise self.error_at(offset, f"{_shown(raw)} is no name for a file", _PACK_AGAIN)
        return name

    def _decoded(self, offset: int, raw: bytes) -> str | None:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            found = f"the name {_shown(raw)} is not UTF-8"
            fault = self.error_at(offset, found, "rename the file and " + _PACK_AGAIN)
            if self._strict:
                raise fault from error
            self.notes[BAD_NAMES] += 1
            if len(self.bad_names) < MAX_BAD_NAMES:
                self.bad_names.append(fault)
            return None

    # Extension headers: they stand before a member and overrule its own header.

    def _read_extension(self, offset: int, header: Header) -> int:
        if header.size > MAX_EXTENSION_HEADER:
            raise HeaderError(
                f"it announces {header.size} bytes of names or pax records, "
                f"at most {MAX_EXTENSION_HEADER} were expected"
            )
        after = self._after_payload(offset, header)
        start = offset + BLOCK
        payload = self._data[start : start + header.size]
        if len(payload) < header.size:
            raise self._shrunk()
        said = extension_fields(header.kind, payload)
        if header.kind == b"g":
            if said:
                raise HeaderError(f"it sets the {min(said).decode()} of all members at once")
            return after
        twice = said.keys() & self._pending.keys()
        if twice:
            raise HeaderError(f"it gives one member a second {min(twice).decode()}")
        self._pending.update(said)
        if self._pending_offset is None:
            self._pending_offset = offset
        return after

    def _extended(self, offset: int, header: Header) -> Header:
        """Return the member's header with what the extension headers before it said."""
        pending = self._pending
        if self._pending_offset is None:
            return header
        if SPARSE in pending:
            name = pending[SPARSE] or pending.get(PATH, header.name)
            raise self.error_at(offset, f"{_shown(name)} is a sparse file", _PACK_PLAIN)
        extended = Header(
            kind=header.kind,
            name=pending.get(PATH, header.name),
            target=pending.get(TARGET, header.target),
            size=pax_size(pending[SIZE]) if SIZE in pending else header.size,
        )
        self._pending = {}
        self._pending_offset = None
        return extended

    # The ends that a tar may have.

    def _end_without_marker(self, offset: int, rest: bytes) -> None:
        if offset + len(rest) < self._length:
            raise self._shrunk()
        if offset == 0:
            if rest and not rest.strip(b"\0"):
                raise self._zeroed()
            what = describe_foreign(rest) if rest else f"an empty file (0 bytes); {_NOT_EMPTY}"
            raise TarFormatError(f"{self._path}: {what}")
        self._refuse_lone_extension()
        # A header starts with a name, so zeros are what is left of the end marker.
        if rest.strip(b"\0"):
            found = f"the tar is cut at byte {self._length}, inside the header here"
            raise self.error_at(offset, found, _COPY_AGAIN)
        self.notes["no end marker"] = 1
        self.ended, self.end = True, offset

    def _end_with_marker(self, offset: int) -> int:
        self._refuse_lone_extension()
        if offset == 0 and (self._length % BLOCK or not 2 * BLOCK <= self._length <= _RECORD_SIZE):
            raise self._zeroed()
        if self._data[offset + BLOCK : offset + 2 * BLOCK] != _ZEROS:
            self.notes["single end block"] = 1
        if self._holds_more(offset + BLOCK):
            if offset == 0:
                raise self._zeroed()
            self.notes["bytes after the end marker"] = 1
        self.ended, self.end = True, offset
        return offset

    def _shrunk(self) -> StorageError:
        return StorageError(
            f"{self._path}: fewer than the {self._length} bytes that were there at first; "
            "the tar was cut or replaced while it was read; read it again"
        )

    def _zeroed(self) -> TarFormatError:
        return TarFormatError(
            f"{self._path}: {self._length} bytes that start with zeros, as a failed download may; an "
            f"empty tar is all zeros and {2 * BLOCK} to {_RECORD_SIZE} bytes long; copy or download "
            "it again"
        )

    def _refuse_lone_extension(self) -> None:
        if self._pending_offset is not None:
            found = "the extension header here has no whole member after it"
            raise self.error_at(self._pending_offset, found, _COPY_AGAIN)

    def _holds_more(self, start: int) -> bool:
        """Return whether anything but zeros follows the end marker; another header is a fault."""
        stray = False
        for first in range(start, self._length, _CHUNK):
            chunk = self._data[first : first + _CHUNK]
            if chunk == bytes(len(chunk)):
                continue
            stray = True
            found = chunk.find(b"ustar")
            while found >= 0:
                header = found - MAGIC_POSITION
                if header % BLOCK == 0 and has_valid_checksum(chunk[header : header + BLOCK]):
                    raise self.error_at(
                        first + header,
                        f"another header after the end marker at byte {start - BLOCK}, as `cat` of "
                        "several tars leaves it",
                        "join them with `tar --concatenate`, or keep them apart",
                    )
                found = chunk.find(b"ustar", found + 1)
        return stray


def _shown(raw: bytes) -> str:
    """Return a name for a message: short whatever its length, and exact if it is not UTF-8."""
    shown = raw if len(raw) <= _SHOWN else raw[:_SHOWN] + b"..."
    try:
        return repr(shown.decode())
    except UnicodeDecodeError:
        return repr(shown)
