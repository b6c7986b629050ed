"""One holder at a time, also while holders take the file and its folder away."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.file_lock import file_lock


def locked(path: Path) -> AbstractContextManager[int]:
    return file_lock(path, where="here", doing="works", cure="wait")


def test_the_folders_above_are_made(tmp_path: Path) -> None:
    with locked(tmp_path / "new" / "folder" / "lock"):
        assert (tmp_path / "new" / "folder" / "lock").is_file()


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
def test_a_folder_that_goes_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    # With `exist_ok` as well: `mkdir` finds a folder, and then finds that nothing is there.
    errors = [error(17, "gone again"), error(17, "gone again")]
    mkdir = Path.mkdir

    def make(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if errors:
            raise errors.pop()
        mkdir(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", make)

    with locked(tmp_path / "new" / "lock"):
        assert not errors


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "at all")
    (tmp_path / "file").touch()

    with pytest.raises(FileNotFoundError), locked(tmp_path / "link" / "lock"):
        raise AssertionError("a lock in no folder")
    with pytest.raises(NotADirectoryError), locked(tmp_path / "file" / "lock"):
        raise AssertionError("a lock in a file")


def test_holders_that_remove_the_folder_let_one_in_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "out"
    inside, most = [0], [0]
    start = threading.Barrier(2)

    def hold() -> None:
        start.wait()
        for _ in range(300):
            with suppress(LayoutError), locked(folder / "lock"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1
                (folder / "lock").unlink()
                with suppress(OSError):
                    folder.rmdir()
                    folder.parent.rmdir()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(hold) for _ in range(2)]:
            future.result()

    assert most == [1]
