"""Files that are there whole or not at all."""

import errno
import json
import os
from pathlib import Path

import pytest

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.manifest import read_manifest
from daft_twinwds.shards.manifest_write import write_manifest
from daft_twinwds.shards.new_file import new_file, sync_folder


def test_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "part" / "a.tar"

    with new_file(str(path)) as file:
        file.write(b"whole")
        assert not path.exists()
        assert [entry.name for entry in path.parent.iterdir()] == [".a.tar.tmp"]

    assert path.read_bytes() == b"whole"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.tar"]


def test_old_file_stays_and_nothing_else_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"old")

    def write_half() -> None:
        with new_file(str(path)) as file:
            file.write(b"new")
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        write_half()

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_left_over_of_a_killed_writer_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".a.tar.tmp").write_bytes(b"much longer than what comes")

    with new_file(str(tmp_path / "a.tar")) as file:
        file.write(b"new")

    assert (tmp_path / "a.tar").read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.tar"]


def test_bytes_are_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tar"
    sizes: list[int] = []

    def fsync(descriptor: int) -> None:
        assert not path.exists()
        sizes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", fsync)

    with new_file(str(path)) as file:
        file.write(b"12345")

    assert sizes == [5]


def test_full_disk_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)

    with (
        pytest.raises(StorageError, match=r"a\.tar: cannot be written \(No space left on device\)"),
        new_file(str(tmp_path / "a.tar")),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"")

    opening = new_file(str(tmp_path / "part" / "a.tar"))

    with pytest.raises(StorageError, match=r"a\.tar: cannot be written"):
        opening.__enter__()


def test_syncing_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    sync_folder(str(tmp_path))

    with pytest.raises(StorageError, match="gone: cannot be written"):
        sync_folder(str(tmp_path / "gone"))


def test_manifest_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    names = ["part_000000/000000.tar", "part_000001/000000.tar"]

    write_manifest(str(tmp_path), modalities=["caption", "image"], names=names, counts=[20, 1])

    manifest = read_manifest(str(tmp_path / "wdinfo.json"))
    assert manifest.modalities == ("caption", "image")
    assert manifest.names.to_pylist() == names
    assert manifest.counts is not None
    assert manifest.counts.to_pylist() == [20, 1]
    assert manifest.total == 21
    assert manifest.root == str(tmp_path.resolve())


def test_manifest_has_the_keys_of_pid(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), modalities=["image"], names=["a.tar"], counts=[3])

    assert list(json.loads((tmp_path / "wdinfo.json").read_text())) == [
        "data_keys",
        "data_list",
        "data_list_key_count",
        "root",
        "total_key_count",
    ]
