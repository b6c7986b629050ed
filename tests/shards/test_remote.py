"""Remote files: the same bytes as plain slices, in few requests, or an error."""

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import StorageError
from daft_twinwds.shards import read_plans, remote
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.read_plans import FIRST_READ
from daft_twinwds.shards.remote import RemoteFile
from daft_twinwds.shards.samples import read_samples
from daft_twinwds.shards.sources import Answer
from daft_twinwds.testing import write_tar

if TYPE_CHECKING:
    from tests.conftest import RangeServer

CONTENT = np.random.default_rng(0).bytes(1 << 20)
LENGTH = 400
OPTIONS = StorageOptions(backoff=0.01, retries=2)

bounds = st.none() | st.integers(-LENGTH - 20, LENGTH + 20)
ranges = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(sorted)


class MemorySource:
    """`CONTENT`, cut to a length, in pieces of seven bytes."""

    def __init__(self, length: int = LENGTH) -> None:
        self.content = CONTENT[:length]
        self.asked: list[tuple[int, int]] = []

    def get(self, start: int, stop: int) -> Answer:
        self.asked.append((start, stop))
        stop = min(stop, len(self.content))
        data = self.content[start:stop]
        return Answer(
            start=start,
            stop=stop,
            size=len(self.content),
            tag="same",
            chunks=[data[at : at + 7] for at in range(0, len(data), 7)],
        )


def memory_file(
    patch: pytest.MonkeyPatch, source: MemorySource, options: StorageOptions = OPTIONS
) -> RemoteFile:
    patch.setattr(remote, "source_of", lambda url, options: source)
    return RemoteFile("https://host/x.tar?signature=secret", options)


@given(
    slices=st.lists(st.builds(slice, bounds, bounds), min_size=1, max_size=20),
    first=st.integers(1, 100),
    block=st.integers(1, 100),
    header=st.integers(1, 50),
    cost=st.integers(0, 100),
    kept=st.integers(0, LENGTH),
)
def test_slices_are_those_of_bytes(
    slices: list[slice], first: int, block: int, header: int, cost: int, kept: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "FIRST_READ", first)
        patch.setattr(remote, "MAX_KEPT", kept)
        patch.setattr(read_plans, "BLOCK_READ", block)
        patch.setattr(read_plans, "HEADER_READ", header)
        file = memory_file(patch, MemorySource(), replace(OPTIONS, request_cost=cost))

        for part in slices:
            assert file[part] == CONTENT[:LENGTH][part]


@given(
    wanted=st.lists(ranges, max_size=20),
    is_sorted=st.booleans(),
    is_looked_at=st.booleans(),
    max_gap=st.integers(0, 50),
    part=st.integers(1, 200),
)
def test_many_ranges_are_those_of_bytes(
    wanted: list[list[int]], is_sorted: bool, is_looked_at: bool, max_gap: int, part: int
) -> None:
    wanted = sorted(wanted) if is_sorted else wanted
    positions = [start for start, _ in wanted]
    sizes = [stop - start for start, stop in wanted]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "FIRST_READ", 100)
        patch.setattr(remote, "MAX_GAP", max_gap)
        patch.setattr(remote, "PART", part)
        patch.setattr(read_plans, "PART", part)
        file = memory_file(patch, MemorySource())
        if is_looked_at:
            len(file)
        together = file.read_many(positions, sizes)

    assert together == [CONTENT[start:stop] for start, stop in wanted]


def test_nothing_is_asked_before_something_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MemorySource()

    with memory_file(monkeypatch, source) as file:
        assert file.read_many([], []) == []
        assert file.read(0, 0) == b""
        assert file.path == "https://host/x.tar"

    assert source.asked == []


def test_a_slice_with_a_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="step of 2"):
        memory_file(monkeypatch, MemorySource())[0:10:2]


def test_ranges_behind_the_known_end_are_refused_without_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = MemorySource()
    file = memory_file(monkeypatch, source)
    len(file)

    with pytest.raises(StorageError, match=r"x\.tar: 1 bytes at byte 399, expected 2; .*replaced"):
        file.read(LENGTH - 1, 2)
    with pytest.raises(StorageError, match="0 bytes at byte 1000, expected 1"):
        file.read_many([0, 1000], [1, 1])

    assert source.asked == [(0, FIRST_READ)]


def test_large_ranges_come_in_parts_side_by_side(
    range_server: "RangeServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_plans.split_range, "__kwdefaults__", {"most": 100_000})
    range_server.files["/x"] = CONTENT
    range_server.latency = 0.1

    with RemoteFile(f"{range_server.url}/x", OPTIONS) as file:
        assert file.read(0, len(CONTENT)) == CONTENT

    assert len(range_server.requests) == 11
    assert min(map(str, range_server.ranges())) == "bytes=0-95324"


def test_a_file_replaced_between_two_reads_is_refused(range_server: "RangeServer") -> None:
    range_server.files["/x"] = CONTENT
    with RemoteFile(f"{range_server.url}/x", OPTIONS) as file:
        file.read(0, 10)
        range_server.files["/x"] = CONTENT[::-1]

        with pytest.raises(StorageError, match="/x: was replaced while it was read"):
            file.read(10, 10)


@pytest.fixture
def sparse_tar(tmp_path: Path) -> Path:
    """100 pictures of 2.5 MB, which take no room on the disk."""
    path = tmp_path / "sparse.tar"
    with path.open("wb") as file:
        for number in range(100):
            info = tarfile.TarInfo(f"id_{number}.jpg")
            info.size = 2_500_000
            file.write(info.tobuf(tarfile.USTAR_FORMAT))
            file.seek(-(-info.size // 512) * 512, 1)
        file.write(bytes(10_240))
    return path


def test_listing_large_pictures_moves_a_hundredth_of_the_tar(
    range_server: "RangeServer", sparse_tar: Path
) -> None:
    range_server.files["/x.tar"] = sparse_tar
    range_server.latency = 0.02

    with RemoteFile(f"{range_server.url}/x.tar", OPTIONS) as file:
        samples = read_samples(file, key_split="last", strict=True)

    assert samples.keys == [f"id_{number}" for number in range(100)]
    assert set(samples.sizes.tolist()) == {2_500_000}
    # A tenth is what was promised.
    assert range_server.sent <= sparse_tar.stat().st_size / 100
    assert len(range_server.requests) <= 103


def test_captions_and_their_headers_are_read_once(
    range_server: "RangeServer", tmp_path: Path
) -> None:
    members = [(f"id_{number}.json", CONTENT[number : number + 1500]) for number in range(3000)]
    range_server.files["/x.tar"] = write_tar(tmp_path / "x.tar", members)

    with RemoteFile(f"{range_server.url}/x.tar", OPTIONS) as file:
        samples = read_samples(file, key_split="last", strict=True)
        texts = file.read_many(samples.positions.tolist(), samples.sizes.tolist())

    assert texts == [data for _, data in members]
    assert range_server.sent == (tmp_path / "x.tar").stat().st_size
    assert len(range_server.requests) == 3


def test_a_small_tar_costs_one_request(range_server: "RangeServer", tmp_path: Path) -> None:
    members = [(f"id_{number}.json", b"{}") for number in range(100)]
    range_server.files["/x.tar"] = write_tar(tmp_path / "x.tar", members)

    with RemoteFile(f"{range_server.url}/x.tar", OPTIONS) as file:
        samples = read_samples(file, key_split="last", strict=True)
        file.read_many(samples.positions.tolist(), samples.sizes.tolist())

    assert range_server.ranges() == [f"bytes=0-{FIRST_READ - 1}"]


def test_extended_headers_do_not_make_pictures_look_small(
    range_server: "RangeServer", tmp_path: Path
) -> None:
    path = tmp_path / "pax.tar"
    with path.open("wb") as file:
        for number in range(40):
            info = tarfile.TarInfo(f"{'long' * 40}/id_{number}.jpg")
            info.size = 1_000_000
            file.write(info.tobuf(tarfile.PAX_FORMAT))
            file.seek(-(-info.size // 512) * 512, 1)
        file.write(bytes(10_240))
    range_server.files["/x.tar"] = path

    with RemoteFile(f"{range_server.url}/x.tar", OPTIONS) as file:
        samples = read_samples(file, key_split="last", strict=True)

    assert len(samples.keys) == 40
    assert range_server.sent <= path.stat().st_size / 50


def test_a_closed_file_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MemorySource()
    file = memory_file(monkeypatch, source)
    file[0:10]
    file.close()

    assert file[0:10] == CONTENT[:10]
    assert len(source.asked) == 2
