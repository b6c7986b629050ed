"""Tars that we write: the bytes of ``tarfile``, and what our reader gives back."""

import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.tar import BLOCK, read_members
from daft_twinwds.shards.tar_write import (
    LONGEST_NAME,
    TarWriter,
    member_header,
    name_fault,
    tar_size,
)

Members = list[tuple[str, bytes]]

parts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1, max_size=40
)
names = st.lists(parts, min_size=1, max_size=12).map("/".join)
payloads = st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]).map(
    lambda size: bytes(range(251)) * (size // 251) + bytes(size % 251)
)
members_of_tars = st.lists(st.tuples(names, payloads), max_size=8)


def written(members: Members) -> bytes:
    file = io.BytesIO()
    with TarWriter(file) as tar:
        for name, data in members:
            tar.add(name, data)
    return file.getvalue()


def by_tarfile(members: Members) -> bytes:
    """The same tar by Python's own module."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def is_held_by_ustar(name: str) -> bool:
    try:
        tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)
    except ValueError:
        return False
    return True


@given(members=members_of_tars)
@example(members=[("x" * 101, b"1"), ("y" * 100, b"2"), ("p" * 155 + "/" + "z" * 100, b"3")])
def test_bytes_are_those_of_tarfile_where_ustar_holds_the_names(members: Members) -> None:
    members = [
        (name, data)
        for name, data in members
        if name_fault(name) is None and is_held_by_ustar(name)
    ]

    assert written(members) == by_tarfile(members)


@given(members=members_of_tars)
def test_every_name_without_a_fault_comes_back_with_its_payload(members: Members) -> None:
    members = [(name, data) for name, data in members if name_fault(name) is None]

    data = written(members)

    found = read_members(data, path="written.tar")
    ranges = zip(found.positions.tolist(), found.sizes.tolist(), strict=True)
    contents = [data[position : position + size] for position, size in ranges]
    assert list(zip(found.names, contents, strict=True)) == members
    assert found.notes == {}


@given(members=members_of_tars)
def test_size_is_known_before_anything_is_written(members: Members) -> None:
    members = [(name, data) for name, data in members if name_fault(name) is None]

    assert tar_size((name, len(data)) for name, data in members) == len(written(members))


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        pytest.param("x" * 100, 1, id="name-field-full"),
        pytest.param("p" * 155 + "/" + "x" * 100, 1, id="prefix-and-name-full"),
        pytest.param("x" * 101, 3, id="one-byte-over-and-no-slash"),
        pytest.param("p" * 156 + "/" + "x" * 100, 3, id="prefix-one-byte-over"),
        pytest.param("\u56fe" * 33, 1, id="unicode-that-fits"),
        pytest.param("\u56fe" * 34, 3, id="unicode-cut-inside-a-character"),
        pytest.param("x" * LONGEST_NAME, 2 + 9, id="longest"),
    ],
)
def test_pax_comes_only_before_names_that_ustar_cannot_hold(name: str, blocks: int) -> None:
    header = member_header(name, 5)

    assert len(header) == blocks * BLOCK
    with tarfile.open(fileobj=io.BytesIO(header + b"12345".ljust(BLOCK))) as tar:
        assert tar.getnames() == [name]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param("big.mp4", 8**11, id="first-size-that-ustar-cannot-hold"),
        pytest.param("big.mp4", 3 * 2**40, id="terabytes"),
        pytest.param("x" * 150 + ".mp4", 8**11, id="long-name-too"),
        pytest.param("x" * 104, 7, id="record-whose-length-gets-a-digit-by-itself"),
    ],
)
def test_extended_headers_are_those_of_tarfile(name: str, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size

    assert member_header(name, size) == info.tobuf(tarfile.PAX_FORMAT)


def test_largest_size_of_ustar_needs_no_pax() -> None:
    assert len(member_header("big.mp4", 8**11 - 1)) == BLOCK


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param("", "empty part", id="empty"),
        pytest.param("a//b.jpg", "empty part", id="empty-part"),
        pytest.param("a/", "empty part", id="folder"),
        pytest.param("./a.jpg", "empty part, '.' or '..'", id="dot"),
        pytest.param("a/../../b.jpg", "empty part, '.' or '..'", id="dots"),
        pytest.param("/etc/passwd.jpg", "absolute", id="absolute"),
        pytest.param("a\0.jpg", "NUL", id="nul"),
        pytest.param("a\\b.jpg", "backslash", id="backslash"),
        pytest.param("a\udcff.jpg", "not UTF-8", id="not-utf-8"),
        pytest.param("x" * (LONGEST_NAME + 1), "longer than 4095 bytes", id="long"),
        pytest.param("__MACOSX/a.jpg", "macOS sidecar", id="macos-folder"),
        pytest.param("a/._b.jpg", "macOS sidecar", id="macos-file"),
    ],
)
def test_names_that_would_not_come_back_are_refused(name: str, fault: str) -> None:
    found = name_fault(name)
    assert found is not None
    assert fault in found

    with pytest.raises(ValueError, match="expected a relative path of UTF-8 text"):
        TarWriter(io.BytesIO()).add(name, b"")


@pytest.mark.parametrize("size", [1, BLOCK, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_file_is_copied_byte_by_byte(tmp_path: Path, size: int) -> None:
    data = (b"0123456789abc" * (size // 13 + 1))[:size]
    source = tmp_path / "source"
    source.write_bytes(data)

    file = io.BytesIO()
    with TarWriter(file) as tar:
        tar.add_file("a.bin", str(source), size=size)

    assert file.getvalue() == written([("a.bin", data)])


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(lambda path: path.write_bytes(b"123456"), "more bytes than the 5", id="grown"),
        pytest.param(lambda path: path.write_bytes(b"1234"), "fewer bytes than the 5", id="cut"),
        pytest.param(lambda path: path.write_bytes(b""), "fewer bytes than the 5", id="emptied"),
        pytest.param(lambda path: path.unlink(), "No such file", id="removed"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), "Is a directory", id="folder"),
    ],
)
def test_file_that_changed_since_it_was_listed_is_an_error(
    tmp_path: Path, change: Callable[[Path], object], found: str
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"12345")
    change(source)

    with pytest.raises(StorageError, match=f"source: .*{found}"):
        TarWriter(io.BytesIO()).add_file("a.bin", str(source), size=5)


def test_memory_does_not_depend_on_the_size_of_a_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(64 << 20)

    with (tmp_path / "copy.tar").open("wb") as out, TarWriter(out) as tar:
        tracemalloc.start()
        tar.add_file("a.bin", str(source), size=64 << 20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak < 4 << 20
    assert (tmp_path / "copy.tar").stat().st_size == tar_size([("a.bin", 64 << 20)])


def test_tar_is_not_ended_after_an_error() -> None:
    file = io.BytesIO()

    def write_half() -> None:
        with TarWriter(file) as tar:
            tar.add("a.bin", b"1")
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        write_half()

    assert len(file.getvalue()) == 2 * BLOCK


def test_pieces_make_the_member_that_they_add_up_to() -> None:
    whole, pieces = io.BytesIO(), io.BytesIO()

    with TarWriter(whole) as tar:
        tar.add("x.bin", b"abcdef")
    with TarWriter(pieces) as tar:
        expected = tar.size_with("x.bin", 6)
        tar.add_pieces("x.bin", iter([b"ab", b"", b"cdef"]), size=6)

    assert pieces.getvalue() == whole.getvalue()
    assert expected == tar.size == len(whole.getvalue())


@pytest.mark.parametrize(("pieces", "found"), [([b"ab", b"c"], "fewer"), ([b"abc", b"de"], "more")])
def test_pieces_that_do_not_add_up_are_refused(pieces: list[bytes], found: str) -> None:
    tar = TarWriter(io.BytesIO())

    with pytest.raises(StorageError, match=f"'x.bin': {found} bytes than the 4"):
        tar.add_pieces("x.bin", pieces, size=4)
