"""Where a tar's faults are: what a lenient reading tells beside the members."""

import io
import tarfile
from pathlib import Path

import pytest

from daft_twinwds.errors import AlignmentError, TarFormatError
from daft_twinwds.shards.samples import DUPLICATE, NO_SUFFIX, all_samples, name_faults, read_samples
from daft_twinwds.shards.storage import open_file
from daft_twinwds.shards.tar import read_members
from daft_twinwds.shards.tar_walk import MAX_BAD_NAMES
from daft_twinwds.testing import write_tar


def tar_of(*names: str) -> bytes:
    """A tar of members of one byte, which take two blocks each."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    return buffer.getvalue()


def test_error_knows_the_byte_offset_of_its_header() -> None:
    data = tar_of("a.txt", "b.txt")
    damaged = data[:1024] + b"?" + data[1025:]

    with pytest.raises(TarFormatError, match="byte 1024: ") as refusal:
        read_members(damaged, path="x.tar")

    assert refusal.value.offset == 1024


def test_error_of_a_file_that_is_no_tar_has_no_offset() -> None:
    with pytest.raises(TarFormatError, match="gzip") as refusal:
        read_members(b"\x1f\x8b" + bytes(510), path="x.tar")

    assert refusal.value.offset is None


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(None, id="whole"),
        pytest.param(2048, id="no-end-marker"),
        pytest.param(2047, id="padding-cut"),
    ],
)
def test_end_is_where_the_end_marker_is_or_should_be(cut: int | None) -> None:
    data = tar_of("a.txt", "b.txt")[:cut]

    assert read_members(data, path="x.tar").end == 2048


def test_end_is_unknown_where_the_reading_stopped_before_it() -> None:
    data = tar_of("a.txt", "b.txt")

    assert read_members(data, path="x.tar", limit=1).end is None
    assert read_members(data[:1100], path="x.tar", strict=False).end is None


def test_names_that_are_not_utf_8_are_told_each_with_its_place() -> None:
    data = tar_of("a.txt", "caf\udce9.txt", "b.txt", "\udcff.txt")

    members = read_members(data, path="x.tar", strict=False)

    assert members.names == ["a.txt", "b.txt"]
    assert [error.offset for error in members.bad_names] == [1024, 3072]
    assert r"b'caf\xe9.txt' is not UTF-8" in str(members.bad_names[0])


def test_no_more_than_so_many_bad_names_are_kept_and_all_are_counted() -> None:
    data = tar_of(*["\udcff.txt"] * (MAX_BAD_NAMES + 3))

    members = read_members(data, path="x.tar", strict=False)

    assert len(members.bad_names) == MAX_BAD_NAMES
    assert members.notes == {"names that are not UTF-8": MAX_BAD_NAMES + 3}


def test_all_faults_of_names_are_yielded_and_a_strict_reading_raises_the_first(
    tmp_path: Path,
) -> None:
    names = ["a.txt", "README", "b.txt", "a.jpg", "LICENCE", "b.txt"]
    path = str(write_tar(tmp_path / "x.tar", [(name, b"x") for name in names]))
    with open_file(path) as file:
        members = read_members(file.data(), path=path)
        faults = list(name_faults(all_samples(members, path=path, key_split="last")))

        with pytest.raises(AlignmentError, match="'README' at byte 1536 has no suffix") as refusal:
            read_samples(file, key_split="last", strict=True)

    assert [(fault.reason, fault.places) for fault in faults] == [
        (NO_SUFFIX, [1]),
        (NO_SUFFIX, [4]),
        (DUPLICATE, [0, 3]),
        (DUPLICATE, [2, 5]),
    ]
    assert str(refusal.value) == faults[0].message
