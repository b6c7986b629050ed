"""The header walk against Python's ``tarfile``, and against bytes that no tar should hold."""

import io
import posixpath
import tarfile
from bisect import bisect_right
from collections.abc import Iterator

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from daft_twinwds.errors import TarFormatError
from daft_twinwds.shards.tar import BLOCK, Members, read_members

Files = list[tuple[str, bytes]]

FORMATS = [
    pytest.param(tarfile.USTAR_FORMAT, id="ustar"),
    pytest.param(tarfile.GNU_FORMAT, id="gnu"),
    pytest.param(tarfile.PAX_FORMAT, id="pax"),
]


def read(data: bytes, *, strict: bool = True) -> Members:
    return read_members(data, path="fuzz.tar", strict=strict)


def contents(data: bytes, members: Members) -> Files:
    return [
        (name, data[position : position + size])
        for name, position, size in zip(
            members.names, members.positions.tolist(), members.sizes.tolist(), strict=True
        )
    ]


def read_files(data: bytes) -> Files | None:
    """Return the files, or None where the tar is refused."""
    try:
        return contents(data, read(data))
    except TarFormatError:
        return None


def is_sidecar(name: str) -> bool:
    folder, base = posixpath.split(name)
    return base[:2] == "._" or base == ".DS_Store" or "/__MACOSX/" in f"/{folder}/"


def tidy(name: str) -> str:
    """Return a name without what ``tarfile`` keeps and the walk drops, or the reverse."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name.rstrip("/")


def tarfile_files(data: bytes) -> Files | None:
    """Return the files as ``tarfile`` sees them, or None where it stops before the tar's end."""
    files: Files = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", encoding="utf-8") as tar:
            for info in tar.getmembers():
                if (info.isreg() or info.islnk() or info.issym()) and not is_sidecar(info.name):
                    file = tar.extractfile(info)
                    files.append((info.name, file.read() if file else b""))
            # It takes a damaged header for the end, and says nothing.
            rest = data[tar.offset : tar.offset + BLOCK]
    except (tarfile.TarError, KeyError, ValueError, OSError, OverflowError, RecursionError):
        return None
    return None if rest.strip(b"\0") else files


def same(ours: Files, theirs: Files) -> bool:
    def tidied(files: Files) -> Files:
        return [(tidy(name), payload) for name, payload in files]

    return tidied(ours) == tidied(theirs)


def packed(entries: list[tuple[tarfile.TarInfo, bytes]], tar_format: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tar_format, encoding="utf-8") as tar:
        for info, payload in entries:
            tar.addfile(info, io.BytesIO(payload))
    return file.getvalue()


def entry(
    name: str,
    payload: bytes = b"",
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
    mtime: float = 0,
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.mtime = len(payload), kind, target, mtime
    return info, payload


# Law 1: for every file that tarfile gives, the range holds exactly its payload.

characters = st.characters(exclude_characters="/\0", exclude_categories=["Cs"])
parts = st.one_of(
    st.text(characters, min_size=1, max_size=12),
    st.sampled_from(
        ["a", "b.jpg", ".hidden", "._side", ".DS_Store", "__MACOSX", "x" * 99, "\u56fe" * 60]
    ),
).filter(lambda part: part not in (".", ".."))
names = st.lists(parts, min_size=1, max_size=4).map("/".join)
payloads = st.one_of(
    st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK]).map(lambda size: b"x" * size),
    st.binary(max_size=3 * BLOCK),
)


@st.composite
def archives(draw: st.DrawFn) -> tuple[list[tuple[tarfile.TarInfo, bytes]], Files]:
    """Draw entries of a tar, and the files that they stand for."""
    unique = draw(st.lists(names, max_size=8, unique_by=posixpath.normpath))
    entries: list[tuple[tarfile.TarInfo, bytes]] = []
    files: Files = []
    for name in unique:
        dotted = draw(st.sampled_from(["", "./"]))
        mtime = draw(st.sampled_from([0, 1.5]))
        kind = draw(
            st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE])
        )
        if kind == tarfile.DIRTYPE:
            entries.append(entry(name, kind=kind, mtime=mtime))
            continue
        if kind == tarfile.REGTYPE or not files:
            payload = draw(payloads)
            entries.append(entry(dotted + name, payload, mtime=mtime))
        else:
            target, payload = draw(st.sampled_from(files))
            if kind == tarfile.SYMTYPE:
                target = posixpath.relpath(target, posixpath.dirname(name) or ".")
            entries.append(entry(dotted + name, kind=kind, target=target, mtime=mtime))
        if not is_sidecar(name):
            files.append((name, payload))
    return entries, files


@pytest.mark.parametrize("tar_format", FORMATS)
@given(archive=archives())
def test_ranges_hold_exactly_the_payloads_that_tarfile_gives(
    tar_format: int, archive: tuple[list[tuple[tarfile.TarInfo, bytes]], Files]
) -> None:
    entries, files = archive
    try:
        data = packed(entries, tar_format)
    except ValueError:  # ustar cannot store every name
        reject()

    ours, theirs = read_files(data), tarfile_files(data)

    assert ours == files
    assert theirs is not None
    assert same(files, theirs)


# Damage: a tar with one of everything that the formats have.


def sample(tar_format: int) -> bytes:
    long = "folder/" * 10 + "sub/" * 10 + "leaf.jpg"  # over 100 bytes, and ustar can split it
    return packed(
        [
            entry("a.jpg", b"1" * 700),
            entry("folder", kind=tarfile.DIRTYPE),
            entry("./b.jpg", b"2" * BLOCK, mtime=1.5),
            entry(long, b"3"),
            entry("hard.jpg", kind=tarfile.LNKTYPE, target="a.jpg"),
            entry("folder/soft.jpg", kind=tarfile.SYMTYPE, target="../b.jpg"),
            entry("b\u00e4r.jpg", b"4" * 10),
            entry("empty"),
        ],
        tar_format,
    )


def blocks_that_describe(data: bytes) -> Iterator[tuple[int, bool]]:
    """Yield the offset of every block before the end marker that is no file's payload.

    With it comes whether the block is a header rather than an extension header's payload.
    """
    offset = 0
    while data[offset : offset + BLOCK].strip(b"\0"):
        yield offset, True
        info = tarfile.TarInfo.frombuf(data[offset : offset + BLOCK], "utf-8", "strict")
        blocks = -(-info.size // BLOCK)
        if not info.isreg():
            yield from ((offset + BLOCK * (1 + number), False) for number in range(blocks))
        offset += BLOCK * (1 + blocks)


def flipped(data: bytes, position: int, mask: int) -> bytes:
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def sealed(block: bytes) -> bytes:
    total = sum(block[:148]) + 8 * 0x20 + sum(block[156:])
    return block[:148] + b"%06o\0 " % total + block[156:]


@pytest.mark.parametrize("tar_format", FORMATS)
def test_sample_is_sound_and_as_tarfile_sees_it(tar_format: int) -> None:
    data = sample(tar_format)

    ours, theirs = read_files(data), tarfile_files(data)

    assert ours is not None
    assert theirs is not None
    assert len(ours) == 7
    assert same(ours, theirs)


@pytest.mark.parametrize("tar_format", FORMATS)
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_any_flipped_byte_is_refused_or_read_as_tarfile_reads_it(
    tar_format: int, mask: int
) -> None:
    data = sample(tar_format)
    refused = 0

    for block, is_header in blocks_that_describe(data):
        for position in range(block, block + BLOCK):
            damaged = flipped(data, position, mask)
            ours = read_files(damaged)
            if ours is None:
                refused += is_header
            else:
                theirs = tarfile_files(damaged)
                assert theirs is not None
                assert same(ours, theirs)

    # Only the few bytes that close the checksum field can change without a change of its value.
    num_headers = sum(is_header for _, is_header in blocks_that_describe(data))
    assert refused >= num_headers * (BLOCK - 2)


@pytest.mark.parametrize("tar_format", FORMATS)
@given(choice=st.data())
def test_forged_header_is_refused_or_read_as_tarfile_reads_it(
    tar_format: int, choice: st.DataObject
) -> None:
    """Headers with other fields and a right checksum.

    The prefix and the magic are left alone: tarfile takes a prefix from any kind of header, the
    walk only from a POSIX one. So is the size of extension headers: tarfile takes their last block
    whole. Where it stumbles over fields that do not matter here, such as times, there is nothing
    to compare.
    """
    data = sample(tar_format)
    headers = [block for block, is_header in blocks_that_describe(data) if is_header]
    for _ in range(8):
        block = choice.draw(st.sampled_from(headers))
        is_extension = data[block + 156 : block + 157] in (b"L", b"x")
        numbers = st.integers(100, 123 if is_extension else 135)
        position = choice.draw(st.one_of(st.integers(0, 99), numbers, st.integers(156, 256)))
        byte = choice.draw(
            st.one_of(st.sampled_from(b"\0 /.01234567xgLKS\x80\xff"), st.integers(0, 255))
        )
        forged = bytearray(data[block : block + BLOCK])
        forged[position] = byte
        damaged = data[:block] + sealed(bytes(forged)) + data[block + BLOCK :]

        ours = read_files(damaged)
        # Negative sizes send tarfile round and round, so what is refused is not shown to it.
        theirs = None if ours is None else tarfile_files(damaged)

        assert ours is None or theirs is None or same(ours, theirs)


@pytest.mark.parametrize("tar_format", FORMATS)
def test_tar_cut_at_any_byte_is_refused_or_gives_exactly_the_whole_members(tar_format: int) -> None:
    data = packed(
        [
            entry("a.jpg", b"1" * 700),
            entry("folder", kind=tarfile.DIRTYPE),
            entry("./b.jpg", b"2" * BLOCK, mtime=1.5),
            entry("n/" * 60 + "c.jpg", b"3"),
            entry("empty"),
            entry("b\u00e4r.jpg", b"4" * 10),
        ],
        tar_format,
    )
    members = read(data)
    everything = contents(data, members)
    ends = (members.positions + members.sizes).tolist()
    marker = -(-ends[-1] // BLOCK) * BLOCK

    for cut in range(marker + 3 * BLOCK):
        short = data[:cut]
        whole = everything[: bisect_right(ends, cut)]
        lenient = read(short, strict=False)
        assert contents(short, lenient) == whole

        strict = read_files(short)
        assert (strict is None) == (lenient.fault is not None)
        if cut >= ends[-1]:
            assert strict == everything
            expected = "no end marker" if cut < marker + BLOCK else "single end block"
            assert dict(lenient.notes) == ({expected: 1} if cut < marker + 2 * BLOCK else {})
        elif strict is not None:
            assert strict == whole
            assert lenient.notes == {"no end marker": 1}


# Bytes that no tar should hold.


def assert_holds_together(data: bytes) -> None:
    """Check what must be true of any bytes whatever, which is also that nothing else is raised."""
    lenient = read(data, strict=False)
    ours = read_files(data)

    assert len(lenient.names) == len(lenient.positions) == len(lenient.sizes)
    assert all(name and name.encode() for name in lenient.names)
    assert (lenient.positions % BLOCK == 0).all()
    assert (lenient.sizes >= 0).all()
    assert (lenient.positions + lenient.sizes <= len(data)).all()
    if "names that are not UTF-8" not in lenient.notes:
        assert (ours is None) == (lenient.fault is not None)
    if ours is not None:
        assert ours == contents(data, lenient)


@given(data=st.binary(max_size=4 * BLOCK))
def test_garbage_is_refused(data: bytes) -> None:
    assert_holds_together(data)


NAMES = [b"a", b"b", b"./a", b"d/a", b"../a", b"._a", b"ustar", b"n" * 100, b"", b"\xe9"]
RECORDS = [b"9 path=a\n", b"13 linkpath=a\n", b"10 size=3\n", b"7 a=bc\n", b"8 path=a"]
SIZES = [b"%011o\0" % size for size in (0, 3, 9, 600, 1 << 20, 8**11 - 1)]


@st.composite
def hostile_headers(draw: st.DrawFn) -> bytes:
    """Draw a header with a right checksum and anything in it, and what may follow it."""
    payload = draw(st.one_of(st.just(b""), st.sampled_from(RECORDS), st.binary(max_size=600)))
    right_size = b"%011o\0" % len(payload)
    size = draw(
        st.one_of(
            st.just(right_size),
            st.just(right_size),
            st.sampled_from(SIZES),
            st.binary(min_size=12, max_size=12),
        )
    )
    block = (
        draw(st.one_of(st.sampled_from(NAMES), st.binary(max_size=100))).ljust(100, b"\0")
        + bytes(24)
        + size
        + bytes(20)
        + draw(st.sampled_from(list(b"000\x001122345677LKxgXVSM"))).to_bytes(1, "big")
        + draw(st.sampled_from(NAMES)).ljust(100, b"\0")
        + draw(st.sampled_from([b"ustar\x0000", b"ustar  \0", bytes(8)]))
        + bytes(80)
        + draw(st.sampled_from([b"", b"", b"p"])).ljust(167, b"\0")
    )
    return sealed(block) + payload + bytes(-len(payload) % BLOCK)


SOUND = packed([entry("sound.jpg", b"1" * 600)], tarfile.USTAR_FORMAT)[: 3 * BLOCK]


@given(
    pieces=st.lists(st.one_of(st.just(SOUND), hostile_headers()), max_size=5),
    end=st.one_of(
        st.sampled_from([bytes(2 * BLOCK), bytes(BLOCK), b""]), st.binary(max_size=BLOCK)
    ),
)
def test_hostile_headers_are_refused_or_read_within_bounds(pieces: list[bytes], end: bytes) -> None:
    assert_holds_together(b"".join(pieces) + end)
