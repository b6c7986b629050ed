"""One 512-byte tar block: its fields, its checksum, and what a file is that has none.

Nothing in here knows of a path or an offset: a `HeaderError` says what is wrong with the bytes, and
the walk adds where they stand.

Source:
    POSIX.1-2017 pax, "ustar Interchange Format" and "pax Extended Header"; the GNU tar manual,
    "Basic Tar Format"; Python's ``tarfile`` wherever those leave a choice.
"""

import re
import struct
from functools import lru_cache
from typing import NamedTuple
from zlib import adler32

BLOCK = 512
"""Bytes in a tar block; headers and padded payloads are whole blocks."""
MAGIC_POSITION = 257
"""Where ``ustar`` stands in a header."""

PATH, TARGET, SIZE, SPARSE = b"path", b"linkpath", b"size", b"GNU.sparse"
"""What extension headers say of a member, by pax keyword."""

_FIELDS = struct.Struct("100s 24x 12s 12x 8s c 100s 8s 80x 155s 12x")
_CHECKSUM = slice(148, 156)
_OCTAL = re.compile(rb" *([0-7]*) *")
_BASE_256 = 0x80
_RECORD = re.compile(rb"(\d{1,20}) ([^=]+)=")
_NEWLINE = ord("\n")
_MAX_DIGITS = 20  # enough for any 64-bit number, and int() stays cheap


class HeaderError(ValueError):
    """A header, or the records of an extension header, cannot be meant as they are."""


class Header(NamedTuple):
    """The fields of a header block that say what and how much follows."""

    kind: bytes
    """Type flag, one byte."""
    name: bytes
    """With its ustar prefix, as stored."""
    target: bytes
    """What a link points to, as stored; empty for everything else."""
    size: int
    """Bytes, 0 or more."""


def parse_header(block: bytes) -> Header:
    """Return the fields of a header block whose checksum was found right.

    Raises:
        HeaderError: The size is not a number, or is negative.
    """
    name, size, _, kind, target, magic, prefix = _FIELDS.unpack(block)
    name = _text(name)
    # GNU tar and the archives before POSIX keep times and other things where POSIX has the prefix.
    if prefix[0] and magic.startswith(b"ustar\0"):
        name = _text(prefix) + b"/" + name
    return Header(kind, name, _text(target), _number(size))


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Return the number in a header field: octal digits, or GNU's base 256 for large ones."""
    if field[0] == _BASE_256:
        return int.from_bytes(field[1:], "big")
    if field[0] > _BASE_256:
        raise HeaderError(f"its size field {field!r} is negative or larger than any file")
    digits = _OCTAL.fullmatch(_text(field))
    if digits is None:
        raise HeaderError(f"its size field {field!r} is not an octal number")
    return int(digits[1] or b"0", 8)


@lru_cache(maxsize=1 << 14)
def expected_sum(checksum: bytes) -> int:
    """Return what the 512 bytes of a header with this checksum field add up to, or -1.

    The checksum counts its own field as eight spaces. Few checksums exist, so the cache saves
    parsing the field for most headers.
    """
    try:
        stored = int(_text(checksum), 8)
    except ValueError:
        return -1
    return stored - 8 * ord(" ") + sum(checksum)


def has_valid_checksum(block: bytes) -> bool:
    """Return whether the block is a header as it was written.

    Sums of signed bytes count too: some old tars (Sun, NeXT) were written with them.
    """
    expected = expected_sum(block[_CHECKSUM])
    # The low half of adler32 is the sum modulo 65521: more than 512 bytes of ASCII or 256 of any
    # kind can add up to.
    if block.isascii():
        return adler32(block, 0) & 0xFFFF == expected
    half = BLOCK // 2
    total = (adler32(block[:half], 0) & 0xFFFF) + (adler32(block[half:], 0) & 0xFFFF)
    if total == expected:
        return True
    signed = total - 256 * sum(byte > 0x7F for byte in block)
    return signed == expected >= 0


def is_sidecar(name: bytes) -> bool:
    """Return whether macOS put the file beside the real ones: ``._x``, ``.DS_Store``, __MACOSX."""
    *folders, base = name.split(b"/")
    return base.startswith(b"._") or base == b".DS_Store" or b"__MACOSX" in folders


def extension_fields(kind: bytes, payload: bytes) -> dict[bytes, bytes]:
    """Return what an extension header says that matters for byte ranges.

    Args:
        kind: ``L`` and ``K`` are GNU tar's long name and long link target, the rest are pax.
        payload: Its whole payload, without padding.

    Returns:
        Any of `PATH`, `TARGET`, `SIZE`, and `SPARSE` with the file's real name if that is told.

    Raises:
        HeaderError: A pax record is malformed.
    """
    if kind in (b"L", b"K"):
        return {PATH if kind == b"L" else TARGET: _text(payload)}
    records = pax_records(payload)
    fields = {keyword: records[keyword] for keyword in (PATH, TARGET, SIZE) if keyword in records}
    if any(keyword.startswith(b"GNU.sparse.") for keyword in records):
        fields[SPARSE] = records.get(b"GNU.sparse.name", b"")
    return fields


def pax_records(payload: bytes) -> dict[bytes, bytes]:
    r"""Return the records of a pax extended header, ``b"<length> <keyword>=<value>\n"`` each.

    Raises:
        HeaderError: A record is malformed.
    """
    records: dict[bytes, bytes] = {}
    start = 0
    while start < len(payload):
        record = _RECORD.match(payload, start)
        end = start + int(record[1]) if record else start
        if record is None or not record.end() < end <= len(payload) or payload[end - 1] != _NEWLINE:
            found = payload[start : start + 40]
            raise HeaderError(f"its pax record {found!r} is malformed")
        records[record[2]] = payload[record.end() : end - 1]
        start = end
    return records


def pax_size(value: bytes) -> int:
    """Return the number in a pax ``size`` record.

    Raises:
        HeaderError: It is not a plain decimal number.
    """
    if not value.isdigit() or len(value) > _MAX_DIGITS:
        raise HeaderError(f"its pax size {value[:40]!r} is not a decimal number")
    return int(value)


_PACK_AGAIN = "byte ranges need an uncompressed tar; unpack and pack it again"
_FETCH_AGAIN = "a tar was expected; fetch the file again and look at what the server says"
_NOT_A_SHARD = "a tar was expected; point to the shards' folder, or pack the files into tars"
_FOREIGN = (
    (b"\x1f\x8b", "a gzip file", _PACK_AGAIN + ", or gunzip it"),
    (b"BZh", "a bzip2 file", _PACK_AGAIN + ", or bunzip2 it"),
    (b"\xfd7zXZ\0", "an xz file", _PACK_AGAIN + ", or unxz it"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", _PACK_AGAIN + ", or unzstd it"),
    (b"\x04\x22\x4d\x18", "an lz4 file", _PACK_AGAIN + ", or unlz4 it"),
    (b"PK\3\4", "a zip file", _PACK_AGAIN),
    (b"PK\5\6", "an empty zip file", _PACK_AGAIN),
    (b"<!doctype html", "an HTML page", _FETCH_AGAIN),
    (b"<html", "an HTML page", _FETCH_AGAIN),
    (b"<?xml", "an XML document", _FETCH_AGAIN),
    (b"version https://git-lfs", "a Git LFS pointer", "a tar was expected; run git lfs pull"),
    (b"\xff\xd8\xff", "a JPEG picture", _NOT_A_SHARD),
    (b"\x89PNG", "a PNG picture", _NOT_A_SHARD),
)


def describe_foreign(start: bytes) -> str:
    """Return what a file that is no tar seems to be and the cure, from its first bytes."""
    for magic, what, cure in _FOREIGN:
        if start.startswith(magic) or (
            magic.startswith(b"<") and start.lstrip().lower().startswith(magic)
        ):
            return f"{what}; {cure}"
    return (
        f"not a tar: it starts with {start[:16]!r}, where a header with a right checksum was "
        "expected; check the path, or copy the file again"
    )
