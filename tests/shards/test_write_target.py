"""A writing that is killed at any moment leaves the old data set or the new one."""

import errno
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.store import LocalStore

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.options import ENVIRONMENT
from daft_twinwds.shards.write_folder import LocalFolder
from daft_twinwds.shards.write_remote import _delete
from daft_twinwds.shards.write_target import WriteTarget


class Killed(BaseException):
    """Ends a process as a kill does: nothing of ours runs after it."""


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def target_at(path: Path) -> WriteTarget:
    return WriteTarget.at(str(path), ENVIRONMENT)


def write(path: Path, names: list[str], *, old: list[str] | None = None) -> None:
    """Write tars of these names, whose content is the name, in place of old ones."""
    with target_at(path).claimed() as target:
        for name in names:
            with target.folder.create(target.staged("image", name)) as file:
                file.write(name.encode())
        target.publish(
            {target.staged("image", name): f"image/{name}" for name in names},
            modalities=["image"],
            names=names,
            counts=[1] * len(names),
            old=[f"image/{name}" for name in old or ()],
        )


def killed_in(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], None], method: str, *, after: bool
) -> None:
    """Run an action that is killed before or after a step; what was locked is let go."""
    step = getattr(LocalFolder, method)

    def stop(*arguments: object) -> None:
        if after:
            step(*arguments)
        # What runs on the way out of a with-block would not run after a kill.
        monkeypatch.setattr(WriteTarget, "_clean", lambda self, staging: None)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, method, stop)
        clean = WriteTarget._clean
        with pytest.raises(Killed):
            action()
        monkeypatch.setattr(WriteTarget, "_clean", clean)


def test_a_writing_leaves_its_tars_and_the_manifest_alone(tmp_path: Path) -> None:
    write(tmp_path / "out", ["a.tar", "b.tar"])

    assert names_in(tmp_path / "out") == {"wdinfo.json", "image/a.tar", "image/b.tar"}


@pytest.mark.parametrize(
    ("method", "after", "is_new"),
    [
        ("move", False, False),
        ("move", True, False),
        ("write_manifest", False, False),
        ("write_manifest", True, True),
    ],
)
def test_a_killed_writing_is_undone_or_ended_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, after: bool, is_new: bool
) -> None:
    out = tmp_path / "out"
    write(out, ["old.tar"])
    killed_in(monkeypatch, lambda: write(out, ["new.tar"], old=["old.tar"]), method, after=after)
    listed = json.loads((out / "wdinfo.json").read_text())["data_list"]
    assert (out / "image" / listed[0]).read_text() == listed[0]

    with target_at(out).claimed() as target:
        seen = target.visible()

    assert listed == (["new.tar"] if is_new else ["old.tar"])
    assert seen == ["image", "wdinfo.json"]
    assert names_in(out) == {"wdinfo.json", f"image/{listed[0]}"}


def test_a_killed_first_writing_leaves_nothing_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    killed_in(monkeypatch, lambda: write(out, ["a.tar"]), "move", after=True)
    assert "image/a.tar" in names_in(out)

    with target_at(out).claimed() as target:
        seen = target.visible()

    assert seen == []
    assert not out.exists() or names_in(out) == set()


def test_a_name_that_is_taken_is_refused_and_its_file_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "image").mkdir(parents=True)
    (out / "image/a.tar").write_text("mine")

    with pytest.raises(LayoutError, match=r"a\.tar: is there already"):
        write(out, ["a.tar", "b.tar"])

    assert names_in(out) == {"image/a.tar"}
    assert (out / "image/a.tar").read_text() == "mine"


def test_a_journal_removes_nothing_but_tars_in_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    staging = out / f".write-{'0' * 32}"
    staging.mkdir(parents=True)
    for name in ("notes.txt", "../outside.tar", "image.tar"):
        (out / name).write_text("mine")
    names = ["notes.txt", "../outside.tar", f"{tmp_path}/outside.tar", "image.tar"]
    (staging / ".publish.json").write_text(json.dumps(names))

    with target_at(out).claimed():
        pass

    assert names_in(tmp_path) == {"out/notes.txt", "outside.tar"}


@pytest.mark.parametrize(
    "content",
    [b"", b'["image/a.tar"', b"\xff", b'["image/a.tar", 1]', b"3", b"[" * 100_000],
    ids=["empty", "cut", "not-utf-8", "a-number-in-it", "a-number", "nested"],
)
def test_a_damaged_journal_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    staging = tmp_path / f".write-{'0' * 32}"
    staging.mkdir()
    (staging / ".publish.json").write_bytes(content)
    (tmp_path / "a.tar").write_text("mine")

    with (
        pytest.raises(LayoutError, match=r"publish\.json: is damaged; .* remove the folder"),
        target_at(tmp_path).claimed(),
    ):
        pass

    assert names_in(tmp_path) == {"a.tar", f"{staging.name}/.publish.json"}


def test_hidden_folders_of_others_stay(tmp_path: Path) -> None:
    for name in (".write-mine", ".cache", f"write-{'0' * 32}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("mine")

    with target_at(tmp_path).claimed():
        pass

    assert len(names_in(tmp_path)) == 3


def test_a_folder_that_another_writer_holds_is_refused(tmp_path: Path) -> None:
    with target_at(tmp_path).claimed():
        with (
            pytest.raises(LayoutError, match="is writing a data set into this folder"),
            target_at(tmp_path).claimed(),
        ):
            raise AssertionError("two writers at once")
        during = names_in(tmp_path)

    assert {name.partition("/")[0][:7] for name in during} == {".write.", ".write-"}
    assert names_in(tmp_path) == set()


def test_of_writers_that_begin_together_one_is_let_in(tmp_path: Path) -> None:
    for number in range(30):
        start = threading.Barrier(2)

        def write(start: threading.Barrier = start, number: int = number) -> str:
            start.wait()
            try:
                with target_at(tmp_path / str(number)).claimed():
                    return "written"
            except LayoutError as error:
                return str(error)

        with ThreadPoolExecutor(2) as pool:
            outcomes = [future.result() for future in [pool.submit(write) for _ in range(2)]]

        assert "written" in outcomes
        assert all(
            o == "written" or "is writing a data set into this folder" in o for o in outcomes
        )


def test_a_writing_that_has_ended_takes_no_more(tmp_path: Path) -> None:
    with target_at(tmp_path).claimed() as target:
        target.require_wanted()

    with pytest.raises(LayoutError, match="has ended already"):
        target.require_wanted()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")

    with (
        pytest.raises(LayoutError, match="a file; expected a folder"),
        target_at(tmp_path / "out").claimed(),
    ):
        raise AssertionError("a file was claimed")


@pytest.mark.parametrize("method", ["mkdir", "rename", "unlink"])
def test_a_full_disk_is_named_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    write(tmp_path / "out", ["a.tar"])

    def fail(*arguments: object, **keywords: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, method, fail)
        with pytest.raises(StorageError, match=r"out.*cannot be written \(No space left"):
            write(tmp_path / "out", ["b.tar"], old=["a.tar"])


def test_removing_objects_passes_those_that_are_gone(tmp_path: Path) -> None:
    for name in ("a", "c"):
        (tmp_path / name).write_text("x")

    _delete(LocalStore(tmp_path), ["a", "b", "c"])

    assert names_in(tmp_path) == set()


def test_folders_that_were_made_for_nothing_go_again(tmp_path: Path) -> None:
    with target_at(tmp_path / "a/b").claimed():
        assert (tmp_path / "a/b").is_dir()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "first"),
    [
        pytest.param([], "part_000000/000000.tar", id="none"),
        pytest.param(["part_000000/000002.tar"], "part_000000/000003.tar", id="next"),
        pytest.param(["part_000004/000009.tar"], "part_000005/000000.tar", id="full"),
        pytest.param(["part_000001/000077.tar"], "part_000002/000000.tar", id="fuller"),
        pytest.param(
            ["part_000000/000001-abc.tar", "x/y.tar"], "part_000000/000002.tar", id="odd-names"
        ),
    ],
)
def test_new_shards_follow_the_old_ones(tmp_path: Path, old: list[str], first: str) -> None:
    names = target_at(tmp_path).shard_names(old, 3, part_size=10)

    assert names[0] == first
    assert not set(names) & set(old)
    assert len(set(names)) == 3
