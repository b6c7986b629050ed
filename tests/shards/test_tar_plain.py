"""Plain headers read at once are what the walk finds one by one."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import TarFormatError
from daft_twinwds.shards.tar import Members, read_members
from daft_twinwds.shards.tar_plain import read_plain_run


class OneByOne:
    """Bytes that are walked header by header."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: slice, /) -> bytes:
        return self._data[index]


def tar_of(members: list[tuple[str, bytes]], tar_format: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
        for name, payload in members:
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            tar.addfile(info, io.BytesIO(payload))
    return buffer.getvalue()


def outcome(data: bytes | OneByOne, limit: int | None = None) -> tuple[object, ...]:
    try:
        found = read_members(data, path="x.tar", limit=limit)
    except TarFormatError as error:
        return ("error", str(error))
    return (found.names, found.positions.tolist(), found.sizes.tolist(), dict(found.notes))


HEADER_IN_PAYLOAD = tar_of([("inner.txt", b"deep")], tarfile.USTAR_FORMAT)
names = st.sampled_from(
    [
        "a.jpg",
        "b/c.jpg",
        "./d.jpg",
        "._e.jpg",
        "b/._f.jpg",
        "__MACOSX/g",
        ".h",
        "\u00e9.jpg",
        f"{'d' * 60}/{'x' * 60}",
    ]
)
PAYLOADS = (b"", b"x", b"y" * 512, b"z" * 513, HEADER_IN_PAYLOAD)
payloads = st.integers(0, len(PAYLOADS) - 1)
members = st.lists(st.tuples(names, payloads), max_size=6)
formats = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


@given(members=members, tar_format=formats, limit=st.none() | st.integers(1, 4))
def test_at_once_or_one_by_one_is_the_same(
    members: list[tuple[str, int]], tar_format: int, limit: int | None
) -> None:
    data = tar_of([(name, PAYLOADS[number]) for name, number in members], tar_format)

    assert outcome(data, limit) == outcome(OneByOne(data), limit)


@given(
    members=members,
    tar_format=formats,
    at=st.integers(0),
    byte=st.integers(0, 255),
    cut=st.integers(0),
)
def test_so_it_is_for_damaged_and_cut_tars(
    members: list[tuple[str, int]], tar_format: int, at: int, byte: int, cut: int
) -> None:
    whole = tar_of([(name, PAYLOADS[number]) for name, number in members], tar_format)
    damaged = bytearray(whole)
    damaged[at % len(whole)] = byte
    data = bytes(damaged[: len(whole) - cut % len(whole)])

    assert outcome(data) == outcome(OneByOne(data))


@given(data=st.binary(max_size=2000))
def test_what_is_no_tar_has_no_plain_run(data: bytes) -> None:
    assert read_plain_run(data) == ([], [], [], 0)


def test_a_plain_tar_is_read_to_its_end() -> None:
    data = tar_of([(f"id_{n}.json", b"x" * n) for n in range(50)], tarfile.USTAR_FORMAT)

    run = read_plain_run(data)

    assert run.names == [f"id_{n}.json" for n in range(50)]
    assert data[run.positions[7] :][: run.sizes[7]] == b"x" * 7
    assert not data[run.end :].strip(b"\0")


@pytest.mark.parametrize("limit", [1, 2])
def test_a_limit_ends_in_the_plain_run(limit: int) -> None:
    data = tar_of([("a.txt", b"1"), ("b.txt", b"2")], tarfile.USTAR_FORMAT)

    found: Members = read_members(data + b"garbage", path="x.tar", limit=limit)

    assert found.names == ["a.txt", "b.txt"][:limit]
