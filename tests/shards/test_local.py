"""Ranges of local files: the same bytes as plain slices, in few calls, or an error."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daft_twinwds.errors import StorageError
from daft_twinwds.shards import local
from daft_twinwds.shards.local import BegunFile
from daft_twinwds.shards.storage import LocalFile, read_range

CONTENT = np.random.default_rng(0).bytes(1 << 20)
LENGTH = 400

bounds = st.none() | st.integers(-LENGTH - 20, LENGTH + 20)
ranges = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(sorted)

Calls = list[tuple[int, int]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file that holds `CONTENT`."""
    file = tmp_path_factory.mktemp("storage") / "large.bin"
    file.write_bytes(CONTENT)
    return str(file)


@pytest.fixture(scope="module")
def short_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file that holds the first `LENGTH` bytes of `CONTENT`."""
    file = tmp_path_factory.mktemp("storage") / "short.bin"
    file.write_bytes(CONTENT[:LENGTH])
    return str(file)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Position and size of every read from the disk."""
    calls: Calls = []
    pread = os.pread

    def record(descriptor: int, size: int, position: int) -> bytes:
        calls.append((position, size))
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", record)
    return calls


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that gives seven bytes at a time, as large reads and interrupted ones come short."""
    pread = os.pread
    monkeypatch.setattr(
        os,
        "pread",
        lambda descriptor, size, position: pread(descriptor, min(size, 7), position),
    )


@given(
    slices=st.lists(st.builds(slice, bounds, bounds), min_size=1, max_size=20),
    read_ahead=st.integers(0, 100),
    max_gap=st.integers(0, 50),
)
@example(slices=[slice(1, None), slice(1, 0)], read_ahead=0, max_gap=0)
def test_slices_are_those_of_bytes(
    short_path: str, slices: list[slice], read_ahead: int, max_gap: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, LocalFile(short_path) as file:
        patch.setattr(local, "READ_AHEAD", read_ahead)
        patch.setattr(local, "MAX_GAP", max_gap)

        for part in slices:
            assert file[part] == CONTENT[:LENGTH][part]


@given(
    wanted=st.lists(ranges, max_size=30),
    is_sorted=st.booleans(),
    is_whole=st.booleans(),
    max_gap=st.integers(0, 50),
    max_read=st.integers(0, 200),
)
def test_many_ranges_are_those_read_one_by_one(
    short_path: str,
    wanted: list[list[int]],
    is_sorted: bool,
    is_whole: bool,
    max_gap: int,
    max_read: int,
) -> None:
    wanted = sorted(wanted) if is_sorted else wanted
    positions = [start for start, _ in wanted]
    sizes = [stop - start for start, stop in wanted]

    with pytest.MonkeyPatch.context() as patch, LocalFile(short_path) as file:
        patch.setattr(local, "MAX_GAP", max_gap)
        patch.setattr(local, "MAX_READ", max_read)
        if is_whole:
            file.data()
        together = file.read_many(positions, sizes)
        alone = [file.read(*place) for place in zip(positions, sizes, strict=True)]

    assert together == alone
    assert together == [CONTENT[start:stop] for start, stop in wanted]


def test_a_slice_with_a_step_is_refused(path: str) -> None:
    with LocalFile(path) as file, pytest.raises(ValueError, match="step of 2"):
        file[0:10:2]


def test_a_file_is_as_long_as_it_was_when_opened(tmp_path: Path) -> None:
    path = tmp_path / "grows.bin"
    path.write_bytes(b"first")

    with LocalFile(str(path)) as file, path.open("ab") as writer:
        writer.write(b", second")
        writer.flush()

        assert len(file) == 5
        assert file[:] == b"first"
        assert file.data() == b"first"


@pytest.mark.parametrize("distance", [1024, 700], ids=["on-the-border", "across-the-border"])
def test_close_headers_are_read_ahead(path: str, calls: Calls, distance: int) -> None:
    num_bytes = 4 * local.READ_AHEAD - 4096

    with LocalFile(path) as file:
        for start in range(0, num_bytes, distance):
            assert file[start : start + 512] == CONTENT[start : start + 512]

    assert [size for _, size in calls] == [local.READ_AHEAD] * 4


def test_of_far_headers_nothing_else_is_read(path: str, calls: Calls) -> None:
    starts = range(local.READ_AHEAD, len(CONTENT), 4 * local.READ_AHEAD)

    with LocalFile(path) as file:
        for start in starts:
            assert file[start : start + 512] == CONTENT[start : start + 512]

    assert calls == [(start, 512) for start in starts]


def test_reading_ahead_stops_at_the_end(path: str, calls: Calls) -> None:
    end = len(CONTENT)

    with LocalFile(path) as file:
        assert file[end - 1000 : end - 488] == CONTENT[-1000:-488]
        assert file[end - 488 : end] == CONTENT[-488:]

    assert calls == [(end - 1000, 512), (end - 488, 488)]


def test_a_small_file_is_read_in_one_call(path: str, calls: Calls) -> None:
    with LocalFile(path) as file:
        whole = file.data()
        parts = file.read_many([7, 500_000], [3, 4])

        assert whole == CONTENT
        assert file.data() is whole
        assert parts == [CONTENT[7:10], CONTENT[500_000:500_004]]

    assert calls == [(0, len(CONTENT))]


@pytest.mark.parametrize(
    ("limit", "is_read"),
    [pytest.param(LENGTH, True, id="at-the-limit"), pytest.param(LENGTH - 1, False, id="larger")],
)
def test_a_large_file_is_sliced_from_the_disk(
    short_path: str, monkeypatch: pytest.MonkeyPatch, calls: Calls, limit: int, is_read: bool
) -> None:
    monkeypatch.setattr(local, "WHOLE", limit)

    with LocalFile(short_path) as file:
        data = file.data()

        assert (data is not file) == is_read
        assert len(calls) == is_read
        assert data[3:9] == CONTENT[3:9]
        assert len(data) == LENGTH


def test_neighbouring_ranges_are_read_in_one_call(path: str, calls: Calls) -> None:
    positions = list(range(512, 102_400, 1024))

    with LocalFile(path) as file:
        parts = file.read_many(positions, [300] * len(positions))

    assert parts == [CONTENT[position : position + 300] for position in positions]
    assert calls == [(512, positions[-1] + 300 - 512)]


def test_ranges_behind_a_large_gap_are_read_apart(path: str, calls: Calls) -> None:
    gap = local.MAX_GAP

    with LocalFile(path) as file:
        file.read_many([0, 10 + gap, 20 + 2 * gap + 1], [10, 10, 10])

    assert calls == [(0, 20 + gap), (21 + 2 * gap, 10)]


def test_a_call_reads_no_more_than_its_limit(
    path: str, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    monkeypatch.setattr(local, "MAX_READ", 1000)

    with LocalFile(path) as file:
        file.read_many(list(range(0, 5000, 100)), [100] * 50)
        file.read_many([0], [4000])

    assert calls == [*((start, 1000) for start in range(0, 5000, 1000)), (0, 4000)]


def test_a_range_asked_for_twice_is_read_once(path: str, calls: Calls) -> None:
    with LocalFile(path) as file:
        assert file.read_many([50, 50, 40], [20, 10, 5]) == [
            CONTENT[50:70],
            CONTENT[50:60],
            CONTENT[40:45],
        ]

    assert calls == [(50, 20), (40, 5)]


@pytest.mark.usefixtures("in_small_parts")
def test_short_reads_are_completed(path: str) -> None:
    with LocalFile(path) as file:
        assert file.read(100, 1000) == CONTENT[100:1100]
        assert file[5000:5020] == CONTENT[5000:5020]
        assert file.read_many([9, 70], [50, 50]) == [CONTENT[9:59], CONTENT[70:120]]


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda file: file.read(LENGTH - 1, 2), id="read"),
        pytest.param(lambda file: file.read_many([LENGTH - 1], [2]), id="read-many"),
        pytest.param(
            lambda file: file.data() and file.read_many([LENGTH - 1], [2]), id="read-many-of-whole"
        ),
        pytest.param(lambda file: read_range(file.path, LENGTH - 1, 2), id="read-range"),
    ],
)
def test_a_range_past_the_end_is_refused(
    short_path: str, read: Callable[[LocalFile], object]
) -> None:
    expected = rf"{short_path}: 1 bytes at byte 399, expected 2; .*; read the dataset again"

    with LocalFile(short_path) as file, pytest.raises(StorageError, match=expected):
        read(file)


def test_a_range_of_no_bytes_is_empty_anywhere(short_path: str) -> None:
    with LocalFile(short_path) as file:
        assert file.read(0, 0) == b""
        assert file.read(LENGTH, 0) == b""
        assert file.read_many([LENGTH, 3], [0, 0]) == [b"", b""]


def test_a_file_cut_after_opening_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(CONTENT[:LENGTH])

    with LocalFile(str(path)) as file:
        os.truncate(path, 100)

        with pytest.raises(
            StorageError, match=r"cut.bin: 100 bytes at byte 0, expected 400; .*cut"
        ):
            file.data()
        with pytest.raises(StorageError, match=r"0 bytes at byte 150, expected 10"):
            file.read(150, 10)
        assert file[90:110] == CONTENT[90:100]


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "empty.tar"
    path.touch()

    with LocalFile(str(path)) as file:
        assert len(file) == 0
        assert file.data() == b""
        assert file[0:512] == b""
        assert file.read_many([], []) == []
        with pytest.raises(StorageError, match="0 bytes at byte 0, expected 1"):
            file.read_many([0], [1])


def test_one_range_of_a_file_is_read(path: str) -> None:
    assert read_range(path, 77, 700) == CONTENT[77:777]


def test_a_missing_file_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "missing.tar"

    with pytest.raises(
        StorageError, match=rf"{path}: cannot be opened \(No such file or directory\); .* the path"
    ):
        LocalFile(str(path))


def test_an_unreadable_file_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "loop.tar"
    path.symlink_to(path)

    with pytest.raises(StorageError, match=r"loop.tar: cannot be opened .*symbolic links"):
        LocalFile(str(path))


def test_a_folder_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"{tmp_path}: not a regular file; expected .*; check"):
        LocalFile(str(tmp_path))


def test_a_closed_file_gives_no_bytes(short_path: str) -> None:
    with LocalFile(short_path) as file:
        assert file.read(0, 1) == CONTENT[:1]

    with pytest.raises(
        StorageError, match=rf"{short_path}: reading 9 bytes at byte 5 failed \(Bad file"
    ):
        file.read(5, 9)


def test_closing_twice_closes_no_other_file(short_path: str) -> None:
    file = LocalFile(short_path)
    file.close()

    # It most likely gets the descriptor that has just become free.
    with LocalFile(short_path) as other:
        file.close()

        assert other.read(0, 4) == CONTENT[:4]


def test_files_are_closed_even_after_an_error(short_path: str) -> None:
    file = LocalFile(short_path)

    with pytest.raises(KeyError), file:
        raise KeyError

    with pytest.raises(StorageError, match="Bad file"):
        file.read(0, 1)


@given(st.integers(1, LENGTH + 20), st.lists(st.tuples(bounds, bounds), max_size=5))
def test_a_begun_file_gives_what_bytes_give(
    short_path: str, first: int, slices: list[tuple[int | None, int | None]]
) -> None:
    with BegunFile(short_path, LENGTH, first=first) as file:
        assert len(file) == LENGTH
        for start, stop in slices:
            assert file[start:stop] == CONTENT[:LENGTH][start:stop]


def test_a_begun_file_is_opened_once_for_all_that_is_behind_its_head(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[dict[str, float]] = []
    monkeypatch.setattr(local, "record", lambda **counts: recorded.append(counts))

    with BegunFile(path, len(CONTENT), first=100) as file:
        assert file[:100] == CONTENT[:100]
        assert len(recorded) == 1
        for start in range(100, 1 << 16, 1000):
            assert file[start : start + 8] == CONTENT[start : start + 8]

    head, rest = recorded
    assert (head["requests"], head["num_bytes"]) == (1, 100)
    assert rest["requests"] < 5


def test_a_begun_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"gone: cannot be opened \(No such file"):
        BegunFile(str(tmp_path / "gone"), 5, first=5)


def test_a_begun_file_that_has_become_shorter_ends_where_it_ends(short_path: str) -> None:
    with BegunFile(short_path, LENGTH + 50, first=LENGTH + 50) as file:
        assert file[:] == CONTENT[:LENGTH]
