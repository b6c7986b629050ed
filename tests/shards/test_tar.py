"""The rules of the header walk, one by one; test_tar_fuzz.py holds it against ``tarfile``."""

import bz2
import gzip
import io
import logging
import lzma
import mmap
import pickle
import re
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from daft_twinwds.errors import StorageError, TarFormatError
from daft_twinwds.shards.tar import BLOCK, MAX_EXTENSION_HEADER, Bytes, Members, read_members

PATH = "image/part_000000/000000.tar"
END = bytes(2 * BLOCK)
POSIX, GNU, V7 = b"ustar\x0000", b"ustar  \0", bytes(8)


def sealed(block: bytes) -> bytes:
    """Return a header with the checksum that it should have."""
    total = sum(block[:148]) + 8 * 0x20 + sum(block[156:])
    return block[:148] + b"%06o\0 " % total + block[156:]


def header(
    name: bytes,
    size: int | bytes = 0,
    kind: bytes = b"0",
    *,
    target: bytes = b"",
    magic: bytes = POSIX,
    prefix: bytes = b"",
) -> bytes:
    """Return a header block by hand; ``size`` as bytes is the raw 12-byte field."""
    size_field = b"%011o\0" % size if isinstance(size, int) else size
    fields = (
        name.ljust(100, b"\0")
        + b"0000644\0" * 3
        + size_field
        + b"%011o\0" % 0
        + bytes(8)
        + kind
        + target.ljust(100, b"\0")
        + magic
        + bytes(80)
        + prefix.ljust(167, b"\0")
    )
    assert len(fields) == BLOCK
    return sealed(fields)


def padded(payload: bytes) -> bytes:
    return payload + bytes(-len(payload) % BLOCK)


def member(name: bytes, payload: bytes = b"", kind: bytes = b"0", **fields: bytes) -> bytes:
    return header(name, len(payload), kind, **fields) + padded(payload)


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    payload = b""
    for keyword, value in records:
        rest = b" " + keyword + b"=" + value + b"\n"
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        payload += str(length).encode() + rest
    return member(b"PaxHeaders/x", payload, kind)


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    return member(b"././@LongLink", name + b"\0", kind, magic=GNU)


def packed(*files: tuple[str, bytes], tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return a tar as Python's ``tarfile`` writes it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tar_format) as tar:
        for name, payload in files:
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            tar.addfile(info, io.BytesIO(payload))
    return file.getvalue()


class Remote:
    """Bytes from elsewhere: what was asked for is watched, and some may be gone."""

    def __init__(self, data: bytes, *, missing: int = 0) -> None:
        self.data = data
        self.missing = missing
        self.largest = 0

    def __len__(self) -> int:
        return len(self.data) + self.missing

    def __getitem__(self, index: slice, /) -> bytes:
        chunk = self.data[index]
        self.largest = max(self.largest, len(chunk))
        return chunk


def read(data: Bytes, *, strict: bool = True, limit: int | None = None) -> Members:
    return read_members(data, path=PATH, strict=strict, limit=limit)


def contents(data: bytes, members: Members) -> list[tuple[str, bytes]]:
    return [
        (name, data[position : position + size])
        for name, position, size in zip(
            members.names, members.positions.tolist(), members.sizes.tolist(), strict=True
        )
    ]


def files_of(data: bytes) -> list[tuple[str, bytes]]:
    return contents(data, read(data))


def refusal_of(data: bytes) -> str:
    """Return the message of the refusal, which a lenient read must keep as its fault."""
    with pytest.raises(TarFormatError) as caught:
        read(data)
    message = str(caught.value)
    assert message.startswith(f"{PATH}: ")
    assert str(read(data, strict=False).fault) == message
    return message


# Plain members


@pytest.mark.parametrize(
    "tar_format",
    [
        pytest.param(tarfile.USTAR_FORMAT, id="ustar"),
        pytest.param(tarfile.GNU_FORMAT, id="gnu"),
        pytest.param(tarfile.PAX_FORMAT, id="pax"),
    ],
)
@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK])
def test_range_holds_exactly_the_payload(tar_format: int, size: int) -> None:
    files = [("a.jpg", b"x" * size), ("b/c.json", b"y" * size), ("last", b"end")]

    data = packed(*files, tar_format=tar_format)

    assert files_of(data) == files


def test_arrays_are_int64_and_notes_empty_for_a_sound_tar() -> None:
    members = read(packed(("a", b"1"), ("b", b"22")))

    assert members.positions.dtype == members.sizes.dtype == "int64"
    assert members.positions.tolist() == [512, 1536]
    assert members.sizes.tolist() == [1, 2]
    assert members.notes == {}
    assert members.fault is None


def test_memory_map_is_read_like_bytes(tmp_path: Path) -> None:
    path = tmp_path / "000000.tar"
    path.write_bytes(packed(("a", b"1"), ("b" * 150, b"22"), tar_format=tarfile.PAX_FORMAT))

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        members = read_members(data, path=str(path))

    assert contents(path.read_bytes(), members) == [("a", b"1"), ("b" * 150, b"22")]


def test_prefix_is_part_of_a_posix_name_only() -> None:
    posix = member(b"name", prefix=b"folder/deep", magic=POSIX)
    gnu = member(b"name", prefix=b"00000000000\0", magic=GNU)
    v7 = member(b"name", prefix=b"junk", magic=V7)

    assert files_of(posix + gnu + v7 + END) == [
        ("folder/deep/name", b""),
        ("name", b""),
        ("name", b""),
    ]


def test_name_may_fill_its_whole_field() -> None:
    data = member(b"n" * 100, b"1", prefix=b"p" * 155) + member(b"m" * 100, b"2") + END

    assert files_of(data) == [("p" * 155 + "/" + "n" * 100, b"1"), ("m" * 100, b"2")]


@pytest.mark.parametrize("kind", [b"0", b"\0", b"7"])
def test_every_regular_type_is_a_file(kind: bytes) -> None:
    assert files_of(member(b"a", b"1", kind) + member(b"b", b"2") + END) == [
        ("a", b"1"),
        ("b", b"2"),
    ]


@pytest.mark.parametrize("name", [b"./a", b"././a", b".//a"])
def test_leading_dot_slash_is_no_part_of_a_name(name: bytes) -> None:
    assert files_of(member(name, b"1") + END) == [("a", b"1")]


@pytest.mark.parametrize("name", [b".a", b"..a", b"a./b", b"/abs", b"-", b"a.b/c.d", b" ", b"x/"])
def test_other_names_are_kept_as_stored(name: bytes) -> None:
    assert files_of(member(name) + END) == [(name.decode(), b"")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(member(b"", b"1"), id="nothing"),
        pytest.param(member(b"./"), id="dot-slash"),
        pytest.param(pax((b"path", b"")) + member(b"a"), id="empty-pax-path"),
        pytest.param(long_name(b"") + member(b"a"), id="empty-long-name"),
        pytest.param(pax((b"path", b"a\0b")) + member(b"a"), id="nul-inside"),
        pytest.param(member(b"", kind=b"1", target=b"ok"), id="link"),
    ],
)
def test_empty_name_is_refused(data: bytes) -> None:
    assert "is no name for a file" in refusal_of(member(b"ok") + data + END)


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"00000000003\0", id="zeros"),
        pytest.param(b"          3\0", id="leading-spaces"),
        pytest.param(b"3          \0", id="trailing-spaces"),
        pytest.param(b"3\0junkjunkju", id="nul-closes"),
        pytest.param(b"000000000003", id="no-closing-byte"),
        pytest.param(b"\x80" + (3).to_bytes(11, "big"), id="base-256"),
    ],
)
def test_size_is_read_in_every_spelling(field: bytes) -> None:
    data = header(b"a", field) + padded(b"abc") + member(b"b") + END

    assert files_of(data) == [("a", b"abc"), ("b", b"")]


@pytest.mark.parametrize("field", [bytes(12), b" " * 12], ids=["zeros", "spaces"])
def test_blank_size_is_zero(field: bytes) -> None:
    assert files_of(header(b"a", field) + member(b"b") + END) == [("a", b""), ("b", b"")]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        pytest.param(b"\xff" * 12, "negative", id="negative-base-256"),
        pytest.param(b"\x81" + bytes(11), "negative or larger", id="other-high-byte"),
        pytest.param(b"-0000000001\0", "not an octal number", id="minus"),
        pytest.param(b"00000000009\0", "not an octal number", id="nine"),
        pytest.param(b"0000000_001\0", "not an octal number", id="underscore"),
        pytest.param(b"0o000000001\0", "not an octal number", id="python-prefix"),
    ],
)
def test_size_that_is_no_size_is_refused(field: bytes, reason: str) -> None:
    message = refusal_of(member(b"ok") + header(b"odd", field) + END)

    assert reason in message
    assert "'odd'" in message
    assert "byte 512" in message


def test_signed_checksum_is_right_too() -> None:
    block = header("b\u00e4r".encode())
    signed = sum(byte - 256 * (byte > 127) for byte in block[:148] + block[156:]) + 8 * 0x20
    data = block[:148] + b"%06o\0 " % signed + block[156:]

    assert files_of(data + END) == [("b\u00e4r", b"")]


def test_block_without_a_readable_checksum_is_no_header_whatever_it_adds_up_to() -> None:
    adds_up_to_minus_one = b"\xff" + bytes(BLOCK - 1)

    assert "has a wrong checksum" in refusal_of(member(b"ok") + adds_up_to_minus_one + END)


@pytest.mark.parametrize("spelling", [b"%06o\0 ", b"%06o \0", b"%07o\0", b"%6o\0 ", b"%8o"])
def test_checksum_is_read_in_every_spelling(spelling: bytes) -> None:
    block = header(b"a")
    total = sum(block[:148]) + 8 * 0x20 + sum(block[156:])

    assert files_of(block[:148] + spelling % total + block[156:] + END) == [("a", b"")]


# Extension headers


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_unicode_names_are_read(tar_format: int) -> None:
    files = [("x" * 150, b"1"), ("sch\u00f6n_\u56fe\u50cf", b"2"), ("deep/" * 60 + "leaf", b"3")]

    assert files_of(packed(*files, tar_format=tar_format)) == files


def test_pax_size_wins_over_the_header() -> None:
    first = pax((b"size", b"700")) + header(b"a", 0) + padded(b"x" * 700)

    assert files_of(first + member(b"b", b"2") + END) == [("a", b"x" * 700), ("b", b"2")]


def test_pax_size_of_a_folder_moves_nothing() -> None:
    data = pax((b"size", b"700")) + header(b"folder", 0, b"5") + member(b"b", b"2") + END

    assert files_of(data) == [("b", b"2")]


def test_last_of_two_equal_pax_records_wins() -> None:
    data = pax((b"path", b"first"), (b"path", b"second")) + member(b"a") + END

    assert files_of(data) == [("second", b"")]


@pytest.mark.parametrize("kind", [b"x", b"X"])
def test_pax_header_speaks_of_the_next_member_only(kind: bytes) -> None:
    data = pax((b"path", b"long"), kind=kind) + member(b"a") + member(b"b") + END

    assert files_of(data) == [("long", b""), ("b", b"")]


def test_extension_header_before_a_folder_does_not_reach_the_file_after_it() -> None:
    data = pax((b"path", b"folder")) + member(b"f", kind=b"5") + member(b"a", b"1") + END

    assert files_of(data) == [("a", b"1")]


def test_long_name_and_pax_size_of_one_member_add_up() -> None:
    data = pax((b"size", b"3")) + long_name(b"n" * 120) + header(b"n", 0) + padded(b"abc") + END

    assert files_of(data) == [("n" * 120, b"abc")]


def test_slash_of_the_whole_long_name_tells_an_old_folder() -> None:
    cut_at_a_slash = long_name(b"n/a") + member(b"n/", b"1", b"\0")
    folder = long_name(b"folder/") + member(b"folder", kind=b"\0")

    assert files_of(cut_at_a_slash + folder + END) == [("n/a", b"1")]


@pytest.mark.parametrize(
    "second", [long_name(b"second"), pax((b"path", b"second"))], ids=["gnu", "pax"]
)
def test_two_names_for_one_member_are_refused(second: bytes) -> None:
    assert "a second path" in refusal_of(long_name(b"first") + second + member(b"a") + END)


def test_global_header_that_says_nothing_of_ranges_is_ignored() -> None:
    git_archive = pax((b"comment", b"5e0c1f"), kind=b"g")

    assert files_of(git_archive + member(b"a", b"1") + END) == [("a", b"1")]
    assert files_of(git_archive + END) == []


@pytest.mark.parametrize("keyword", [b"path", b"size", b"linkpath", b"GNU.sparse.major"])
def test_global_header_that_sets_ranges_is_refused(keyword: bytes) -> None:
    message = refusal_of(pax((keyword, b"1"), kind=b"g") + member(b"a") + END)

    assert "of all members at once" in message


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"no record", id="no-length"),
        pytest.param(b"0 a=b\n", id="length-zero"),
        pytest.param(b"6 a=bc\n", id="too-short"),
        pytest.param(b"99 a=b\n", id="too-long"),
        pytest.param(b"6 a=b!", id="no-newline"),
        pytest.param(b"5 ab\n", id="no-equals-sign"),
        pytest.param(b"5 =b\n", id="no-keyword"),
        pytest.param(b"6 a=b\nrest", id="rest"),
        pytest.param(b"-6 a=b\n", id="negative-length"),
        pytest.param(b"9" * 5000 + b" a=b\n", id="endless-length"),
    ],
)
@pytest.mark.parametrize("kind", [b"x", b"g"])
def test_malformed_pax_record_is_refused(payload: bytes, kind: bytes) -> None:
    assert "malformed" in refusal_of(member(b"p", payload, kind) + member(b"a") + END)


@pytest.mark.parametrize("value", [b"", b"-1", b"x", b" 1", b"1_0", b"0x1", b"9" * 30, b"9" * 5000])
def test_pax_size_that_is_no_number_is_refused(value: bytes) -> None:
    assert "decimal number" in refusal_of(pax((b"size", value)) + member(b"a") + END)


@pytest.mark.parametrize("kind", [b"x", b"X", b"L", b"K"])
@pytest.mark.parametrize("end", [END, b""], ids=["end-marker", "no-end-marker"])
def test_extension_header_without_its_member_is_refused(kind: bytes, end: bytes) -> None:
    lone = pax((b"mtime", b"1.5"), kind=kind)

    message = refusal_of(member(b"a") + lone + end)

    assert "no whole member after it" in message
    assert "byte 512" in message


@pytest.mark.parametrize("kind", [b"x", b"X", b"L", b"K", b"g"])
def test_extension_header_over_the_cap_is_refused_before_it_is_read(kind: bytes) -> None:
    data = Remote(member(b"p", bytes(MAX_EXTENSION_HEADER + 1), kind) + member(b"a") + END)

    with pytest.raises(TarFormatError, match=f"at most {MAX_EXTENSION_HEADER} were expected"):
        read(data)

    assert data.largest == BLOCK


def test_extension_header_at_the_cap_is_read() -> None:
    name = b"n" * (MAX_EXTENSION_HEADER - 1)

    assert read(long_name(name) + member(b"a") + END).names == [name.decode()]


# What is left out


def test_folders_are_left_out_and_their_size_moves_nothing() -> None:
    folder, old_folder = header(b"d", 4096, b"5"), header(b"e/", 4096, b"\0", magic=V7)

    assert files_of(folder + old_folder + member(b"d/a", b"1") + END) == [("d/a", b"1")]


def test_devices_and_pipes_are_counted_and_left_out() -> None:
    special = b"".join(header(b"s", 4096, kind) for kind in (b"3", b"4", b"6"))
    data = special + member(b"a", b"1") + END

    members = read(data)

    assert contents(data, members) == [("a", b"1")]
    assert members.notes == {"special files skipped": 3}


def test_volume_label_is_counted_and_left_out() -> None:
    data = member(b"label", kind=b"V", magic=GNU) + member(b"a", b"1") + END

    members = read(data)

    assert contents(data, members) == [("a", b"1")]
    assert members.notes == {"volume labels skipped": 1}


def test_macos_sidecars_are_counted_and_left_out() -> None:
    sidecars = [
        b"._a.jpg",
        b"./._a.jpg",
        b"shots/._a.jpg",
        b".DS_Store",
        b"shots/.DS_Store",
        b"__MACOSX/a.jpg",
        b"x/__MACOSX/y/z",
        b"._caf\xe9",
    ]
    look_alikes = ["a._b", ".DS_Stores", "__MACOSX", "my__MACOSX/a", "__MACOSXY/a", "a/.b"]
    data = b"".join(member(name, b"side") for name in sidecars)
    data += b"".join(member(name.encode(), b"1") for name in look_alikes) + END

    members = read(data)

    assert members.names == look_alikes
    assert members.notes == {"macOS sidecars skipped": len(sidecars)}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (b"S", "is a sparse file"),
        (b"D", "is a GNU dump of a folder"),
        (b"M", "is the rest of a file in another volume"),
        (b"N", "is of the unknown type b'N'"),
        (b"\xff", r"is of the unknown type b'\xff'"),
    ],
)
def test_unreadable_types_are_refused_by_name(kind: bytes, what: str) -> None:
    message = refusal_of(member(b"ok", b"1") + member(b"odd", kind=kind) + END)

    assert f"'odd' {what}" in message
    assert "byte 1024" in message


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([(b"GNU.sparse.size", b"9"), (b"GNU.sparse.numblocks", b"0")], id="0.0"),
        pytest.param([(b"GNU.sparse.map", b"0,1"), (b"path", b"holes")], id="0.1"),
        pytest.param([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.name", b"holes")], id="1.0"),
    ],
)
def test_sparse_pax_member_is_refused_by_name(records: list[tuple[bytes, bytes]]) -> None:
    message = refusal_of(pax(*records) + member(b"holes", b"1") + END)

    assert "'holes' is a sparse file" in message


# Names that are not UTF-8


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(member(b"caf\xe9", b"odd"), id="header"),
        pytest.param(long_name(b"caf\xe9") + member(b"a", b"odd"), id="gnu"),
        pytest.param(pax((b"path", b"caf\xe9")) + member(b"a", b"odd"), id="pax"),
        pytest.param(
            pax((b"hdrcharset", b"BINARY"), (b"path", b"caf\xe9")) + member(b"a", b"odd"),
            id="pax-binary",
        ),
        pytest.param(member(b"caf\xe9", kind=b"1", target=b"before"), id="link"),
        pytest.param(member(b"link", kind=b"1", target=b"caf\xe9"), id="link-target"),
    ],
)
def test_name_that_is_not_utf8_is_refused_or_left_out_alone(entry: bytes) -> None:
    data = member(b"before", b"1") + entry + member(b"after", b"2") + END

    with pytest.raises(TarFormatError, match=re.escape(r"b'caf\xe9' is not UTF-8")):
        read(data)
    members = read(data, strict=False)

    assert contents(data, members) == [("before", b"1"), ("after", b"2")]
    assert members.fault is None
    assert members.notes == {"names that are not UTF-8": 1}


def test_binary_pax_names_that_are_utf8_are_read() -> None:
    name = "b\u00e4r"
    data = pax((b"hdrcharset", b"BINARY"), (b"path", name.encode())) + member(b"a", b"1") + END

    assert files_of(data) == [(name, b"1")]


# Links


def hard(name: bytes, target: bytes, size: int = 0) -> bytes:
    return header(name, size, b"1", target=target)


def symbolic(name: bytes, target: bytes) -> bytes:
    return header(name, 0, b"2", target=target)


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param(hard(b"link", b"d/a"), ["d/a", "link"], id="hard"),
        pytest.param(hard(b"./link", b"./d/a"), ["d/a", "link"], id="hard-dot-slash"),
        pytest.param(hard(b"link", b"d/a", 4096), ["d/a", "link"], id="hard-with-size"),
        pytest.param(symbolic(b"link", b"d/a"), ["d/a", "link"], id="symbolic"),
        pytest.param(symbolic(b"d/link", b"a"), ["d/a", "d/link"], id="symbolic-same-folder"),
        pytest.param(
            symbolic(b"e/link", b"../d/./a"), ["d/a", "e/link"], id="symbolic-other-folder"
        ),
        pytest.param(
            hard(b"l1", b"d/a") + symbolic(b"l2", b"l1") + hard(b"l3", b"l2"),
            ["d/a", "l1", "l2", "l3"],
            id="links-to-links",
        ),
        pytest.param(
            symbolic(b"l1", b"l2") + symbolic(b"l2", b"d/a"), ["d/a", "l1", "l2"], id="chain"
        ),
    ],
)
def test_link_stands_for_the_range_of_its_file(links: bytes, expected: list[str]) -> None:
    data = member(b"d/a", b"file") + links + END

    assert files_of(data) == [(name, b"file") for name in expected]


def test_links_keep_their_place_among_the_files() -> None:
    data = symbolic(b"s", b"b") + member(b"a", b"1") + hard(b"h", b"a") + member(b"b", b"2") + END

    assert files_of(data) == [("s", b"2"), ("a", b"1"), ("h", b"1"), ("b", b"2")]


def test_long_link_targets_are_read() -> None:
    name = b"n" * 150
    gnu = long_name(b"n" * 150, b"K") + hard(b"gnu", b"n" * 100)
    posix = pax((b"linkpath", name)) + symbolic(b"posix", b"n" * 100)
    data = long_name(name) + member(b"n" * 100, b"1") + gnu + posix + END

    assert files_of(data) == [(name.decode(), b"1"), ("gnu", b"1"), ("posix", b"1")]


def test_hard_link_means_the_last_file_of_that_name_before_it() -> None:
    data = member(b"a", b"1") + member(b"a", b"2") + hard(b"h", b"a") + member(b"a", b"3") + END

    assert files_of(data)[2] == ("h", b"2")


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        pytest.param(hard(b"link", b"b"), "'b' is no regular file before it", id="hard-forward"),
        pytest.param(hard(b"link", b"folder"), "'folder' is no regular", id="hard-to-folder"),
        pytest.param(symbolic(b"link", b"no"), "'no' is no regular file in this tar", id="missing"),
        pytest.param(symbolic(b"link", b"d/../../a"), "is outside the tar", id="outside"),
        pytest.param(symbolic(b"link", b"/a"), "'/a' is outside the tar", id="absolute"),
        pytest.param(symbolic(b"link", b"link"), "leads back to itself", id="itself"),
        pytest.param(
            symbolic(b"link", b"two") + symbolic(b"two", b"link"),
            "leads back to itself",
            id="cycle",
        ),
        pytest.param(
            symbolic(b"link", b"two") + symbolic(b"two", b"no"), "'no' is no regular", id="chain"
        ),
    ],
)
def test_link_to_nothing_is_refused_by_name(links: bytes, reason: str) -> None:
    folder = header(b"folder", 0, b"5")
    data = member(b"a", b"1") + folder + links + member(b"b", b"2") + END

    message = refusal_of(data)

    assert re.search(r"byte 1536: the (hard|symbolic) link 'link' leads to no file: ", message)
    assert reason in message
    assert "sound up to byte 513, after 1 file;" in message
    assert contents(data, read(data, strict=False)) == [("a", b"1")]


def test_long_chain_of_links_is_followed_to_its_file() -> None:
    count = 5000
    chain = b"".join(symbolic(b"l%d" % i, b"l%d" % (i + 1)) for i in range(count))

    members = read(chain + member(b"l%d" % count, b"1") + END)

    assert members.positions.tolist() == [(count + 1) * BLOCK] * (count + 1)


def test_earlier_broken_link_is_told_before_a_later_cut() -> None:
    data = member(b"a", b"1") + hard(b"link", b"no") + header(b"cut", 9999)

    assert "the hard link 'link'" in refusal_of(data)


def test_link_to_what_lies_behind_a_fault_is_counted() -> None:
    data = symbolic(b"link", b"b") + member(b"a", b"1") + header(b"b", 9999)

    members = read(data, strict=False)

    assert members.names == ["a"]
    assert members.notes == {"links to members not read": 1}
    assert "cut" in str(members.fault)


# Files that are no tar


@pytest.mark.parametrize(
    ("data", "what"),
    [
        pytest.param(gzip.compress(packed(("a", b"1"))), "a gzip file", id="gzip"),
        pytest.param(bz2.compress(packed(("a", b"1"))), "a bzip2 file", id="bzip2"),
        pytest.param(lzma.compress(packed(("a", b"1"))), "an xz file", id="xz"),
        pytest.param(b"\x28\xb5\x2f\xfd" + bytes(600), "a zstd file", id="zstd"),
        pytest.param(b"\x04\x22\x4d\x18" + bytes(600), "an lz4 file", id="lz4"),
    ],
)
def test_compressed_file_is_refused_with_the_cure(data: bytes, what: str) -> None:
    message = refusal_of(data)

    assert (
        f"{PATH}: {what}; byte ranges need an uncompressed tar; unpack and pack it again" in message
    )


@pytest.mark.parametrize(
    ("start", "what"),
    [
        pytest.param(b"<!DOCTYPE html><html>", "an HTML page", id="html"),
        pytest.param(b"\n <HTML><body>404", "an HTML page", id="bare-html"),
        pytest.param(b"<?xml version='1.0'?><Error>", "an XML document", id="xml"),
        pytest.param(b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG picture", id="jpeg"),
        pytest.param(b"\x89PNG\r\n\x1a\n", "a PNG picture", id="png"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", id="lfs"
        ),
        pytest.param(b"hello world", "not a tar: it starts with b'hello world", id="text"),
    ],
)
@pytest.mark.parametrize("filler", [b"", b"~" * 2000], ids=["short", "long"])
def test_other_file_is_named_for_what_it_is(start: bytes, what: str, filler: bytes) -> None:
    assert f"{PATH}: {what}" in refusal_of(start + filler)


def test_zip_file_is_named() -> None:
    file, empty = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"x" * 1000)
    zipfile.ZipFile(empty, "w").close()

    assert "a zip file" in refusal_of(file.getvalue())
    assert "an empty zip file" in refusal_of(empty.getvalue())


def test_empty_file_is_refused() -> None:
    assert "an empty file (0 bytes)" in refusal_of(b"")


@pytest.mark.parametrize("size", [2 * BLOCK, 3 * BLOCK, 20 * BLOCK])
def test_zeros_as_an_empty_tar_has_them_are_no_members(size: int) -> None:
    members = read(bytes(size))

    assert members.names == []
    assert members.positions.tolist() == members.sizes.tolist() == []
    assert members.positions.dtype == "int64"
    assert members.notes == {}


@pytest.mark.parametrize("size", [1, 511, BLOCK, 2 * BLOCK + 1, 21 * BLOCK, 1 << 22])
def test_zeros_as_a_failed_download_has_them_are_refused(size: int) -> None:
    assert f"{size} bytes that start with zeros" in refusal_of(bytes(size))


def test_bytes_after_leading_zeros_are_refused() -> None:
    assert "that start with zeros" in refusal_of(bytes(BLOCK) + b"~" * BLOCK + bytes(BLOCK))
    assert "another header" in refusal_of(bytes(BLOCK) + packed(("a", b"1"))[: 3 * BLOCK])


# Damage, cuts and ends


def test_damaged_header_is_refused_with_its_offset_and_how_far_the_tar_is_sound() -> None:
    data = bytearray(packed(*((f"id_{i}.jpg", b"x" * 600) for i in range(5))))
    data[2 * 1536 + 148 : 2 * 1536 + 154] = b"000001"

    message = refusal_of(bytes(data))

    assert "byte 3072: the header here, of 'id_2.jpg', has a wrong checksum" in message
    assert "sound up to byte 2648, after 2 files" in message
    assert read(bytes(data), strict=False).names == ["id_0.jpg", "id_1.jpg"]


def test_damaged_first_header_is_not_taken_for_a_foreign_file() -> None:
    data = bytearray(packed(("ustar", b"1")))
    data[0] ^= 1

    assert "byte 0: the header here, of 'tstar', has a wrong checksum; no file" in refusal_of(
        bytes(data)
    )


def test_damaged_size_is_told_as_a_wrong_checksum_not_by_what_follows_from_it() -> None:
    data = bytearray(packed(("a", b"1"), ("b", b"2"), ("c", b"3")))
    data[1024 + 130] = ord("7")

    assert "byte 1024: the header here, of 'b', has a wrong checksum" in refusal_of(bytes(data))


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        pytest.param(
            1024 + 300, "byte 1024: the tar is cut at byte 1324, inside the header", id="header"
        ),
        pytest.param(
            1536, "byte 1024: 'b' should go on to byte 2236, but the tar is cut", id="start"
        ),
        pytest.param(
            2235, "byte 1024: 'b' should go on to byte 2236, but the tar is cut", id="payload"
        ),
    ],
)
def test_cut_tar_is_refused_with_the_member_and_the_offset(cut: int, message: str) -> None:
    data = packed(("a", b"1"), ("b", b"2" * 700))[:cut]

    refusal = refusal_of(data)

    assert message in refusal
    assert "sound up to byte 513, after 1 file;" in refusal
    assert contents(data, read(data, strict=False)) == [("a", b"1")]


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(513, id="padding"),
        pytest.param(1024, id="member"),
        pytest.param(1100, id="zeros"),
    ],
)
def test_tar_without_end_marker_is_read_with_a_warning(
    cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="daft_twinwds"):
        members = read(packed(("a", b"1"))[:cut])

    assert members.names == ["a"]
    assert members.notes == {"no end marker": 1}
    assert caplog.messages == [f"{PATH}: no end marker; its 1 files were read"]


@pytest.mark.parametrize("size", [512, 513, 1023])
def test_half_an_end_marker_is_enough(size: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="daft_twinwds"):
        members = read(member(b"a", b"1") + bytes(size))

    assert members.names == ["a"]
    assert members.notes == {"single end block": 1}
    assert caplog.messages == []


@pytest.mark.parametrize("gap", [0, 1, 3 << 20], ids=["at-once", "one-byte", "megabytes"])
def test_bytes_after_the_end_marker_are_read_over_with_a_warning(
    gap: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="daft_twinwds"):
        members = read(member(b"a", b"1") + END + bytes(gap) + b"ustar junk")

    assert members.names == ["a"]
    assert members.notes == {"bytes after the end marker": 1}
    assert caplog.messages == [f"{PATH}: bytes after the end marker; its 1 files were read"]


@pytest.mark.parametrize("gap", [0, 512, 5 << 20], ids=["at-once", "a-block", "megabytes"])
@pytest.mark.parametrize("second", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_joined_tars_are_refused_with_the_offset_of_the_second(gap: int, second: int) -> None:
    first = packed(("a", b"1")) + bytes(gap)

    message = refusal_of(first + packed(("b\u00e4r" * 10, b"2"), tar_format=second))

    assert f"byte {len(first)}: another header after the end marker at byte 1024" in message


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param(b"~" + header(b"b"), id="header-off-the-block-grid"),
        pytest.param(header(b"b").replace(b"b", b"c", 1), id="header-with-a-wrong-checksum"),
        pytest.param(b"ustar" * 200, id="words"),
    ],
)
def test_what_only_looks_like_a_header_after_the_end_marker_is_stray(stray: bytes) -> None:
    end = member(b"a", b"1") + END + stray

    assert read(end).notes == {"bytes after the end marker": 1}
    assert "another header" in refusal_of(end + bytes(-len(end) % BLOCK) + header(b"b"))


def test_lone_end_block_before_another_tar_is_refused_too() -> None:
    data = member(b"a", b"1") + bytes(BLOCK) + member(b"b", b"2") + END

    assert "byte 1536: another header" in refusal_of(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(member(b"a", b"1"), id="no-header"),
        pytest.param(member(b"a", b"1") + header(b"b")[:100], id="half-a-header"),
        pytest.param(long_name(b"n" * 600)[:700], id="long-name"),
        pytest.param(pax((b"path", b"n" * 600))[:700], id="pax"),
    ],
)
def test_data_that_comes_back_short_is_an_error_of_storage(data: bytes) -> None:
    with pytest.raises(StorageError, match="cut or replaced while it was read"):
        read(Remote(data, missing=4096), strict=False)


# Limit, bounds, what is kept


def test_limit_stops_without_looking_at_the_rest() -> None:
    data = member(b"a", b"1") + member(b"b", b"2") + b"~" * 5000

    members = read(data, limit=2)

    assert contents(data, members) == [("a", b"1"), ("b", b"2")]
    assert members.fault is None
    assert members.notes == {}
    assert read(data, limit=1).names == ["a"]


def test_limit_counts_members_that_are_given() -> None:
    data = member(b"._a") + member(b"d/", kind=b"5") + member(b"a", b"1") + hard(b"h", b"a")
    data += symbolic(b"s", b"z") + member(b"b", b"2") + member(b"z", b"3") + END

    assert read(data, limit=1).names == ["a"]
    assert read(data, limit=2).names == ["a", "h"]
    assert read(data, limit=2).notes == {
        "macOS sidecars skipped": 1,
        "links to members not read": 1,
    }
    assert read(data, limit=9).names == ["a", "h", "s", "b", "z"]


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_below_one_is_a_wrong_argument(limit: int) -> None:
    with pytest.raises(ValueError, match="limit must be at least 1"):
        read(END, limit=limit)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(header(b"bomb", b"\x80" + (1 << 63).to_bytes(11, "big")), id="8-EiB-file"),
        pytest.param(header(b"bomb", b"\x80" + b"\xff" * 11), id="largest-number"),
        pytest.param(header(b"bomb", 1 << 30, b"L") + member(b"a"), id="1-GiB-name"),
        pytest.param(header(b"bomb", 1 << 30, b"x") + member(b"a"), id="1-GiB-pax"),
        pytest.param(pax((b"size", b"9" * 19)) + member(b"bomb"), id="pax-size"),
        pytest.param(header(b"bomb", 1 << 20, b"L") + bytes(BLOCK), id="cut-name"),
    ],
)
def test_claims_of_a_header_cost_no_memory(data: bytes) -> None:
    read(member(b"warm", b"up") + END)
    tracemalloc.start()
    try:
        with pytest.raises(TarFormatError, match="bomb"):
            read(data + END)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 18


def test_long_names_are_short_in_messages() -> None:
    data = long_name(b"n" * 100_000) + member(b"n", kind=b"S") + END

    assert len(refusal_of(data)) < 600


def test_kept_fault_holds_no_frames_and_can_be_sent() -> None:
    fault = read(member(b"a") + header(b"b", b"9" * 12) + END, strict=False).fault

    assert fault is not None
    assert fault.__cause__ is not None
    assert fault.__traceback__ is None
    assert fault.__cause__.__traceback__ is None
    assert str(pickle.loads(pickle.dumps(fault))) == str(fault)
