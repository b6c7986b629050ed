"""Curations that were stopped: what the next run takes over, and what it refuses."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft
import pyarrow.parquet as pq
import pytest

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.curate import CurationProgress, CurationReport, curate
from daft_twinwds.tools.validate import validate

col: Any = daft.col  # Daft types its comparisons as truth values

EXAMPLE = Path(__file__).parents[2] / "examples" / "curate_on_ray.py"
SHARDS = 6


class Stopped(Exception):
    """A run comes to an end before its end."""


def stop_at(stage: str, done: int) -> Callable[[CurationProgress], None]:
    def progress(state: CurationProgress) -> None:
        if (state.stage, state.done) == (stage, done):
            raise Stopped

    return progress


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Of the six shards one is another's copy."""
    root = make_twin_dataset(tmp_path / "in", num_shards=SHARDS, samples_per_shard=3)
    for modality in ("image", "caption"):
        part = root / modality / "part_000000"
        shutil.copy(part / "000001.tar", part / "000004.tar")
    return root


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


def run(root: Path, output: Path, **arguments: Any) -> CurationReport:
    same = {"where": "caption.score > 3", "duplicates": "picture", "workers": 1}
    return curate(root, output, **{**same, **arguments})


@pytest.fixture
def expected(root: Path, output: Path) -> tuple[CurationReport, dict[str, bytes]]:
    """What an undisturbed run gives."""
    report = run(root, output)
    whole = tree(output)
    shutil.rmtree(output)
    return report, whole


@pytest.mark.parametrize(
    ("stage", "done", "looks", "copies"),
    [
        ("look", 1, 1, 0),
        ("look", 4, 4, 0),
        ("copy", 1, SHARDS, 1),
        ("copy", SHARDS, SHARDS, SHARDS),
    ],
)
def test_a_stopped_run_is_gone_on_with(
    root: Path,
    output: Path,
    expected: tuple[CurationReport, dict[str, bytes]],
    stage: str,
    done: int,
    looks: int,
    copies: int,
) -> None:
    report, whole = expected
    assert whole["curate_report.jsonl"].count(b'"duplicate"') == report.dropped["duplicate"] > 0
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at(stage, done))
    assert not (output / "wdinfo.json").exists()
    if stage == "copy":
        (fault,) = validate(output).faults
        assert (fault.kind, fault.path) == ("unfinished", str(output / ".curate" / "job.json"))
        assert "by calling curate with the same arguments" in fault.text

    second = run(root, output)

    assert tree(output) == whole
    # A thread is some shards ahead of what is told.
    assert looks <= second.looks_taken_over <= SHARDS
    assert copies <= second.copies_taken_over <= SHARDS
    assert second.copies_taken_over == 0 or stage == "copy"
    same = ("num_rows", "num_kept", "dropped", "num_bytes", "num_written")
    assert [getattr(second, name) for name in same] == [getattr(report, name) for name in same]


def test_a_process_that_was_killed_is_gone_on_with(tmp_path: Path, output: Path) -> None:
    root = make_twin_dataset(
        tmp_path / "large", num_shards=12, samples_per_shard=3, image_size=(1600, 1200)
    )
    process = subprocess.Popen(
        [sys.executable, EXAMPLE, root, output, "--duplicates", "picture", "--workers", "1"]
    )
    try:
        deadline = time.monotonic() + 60
        while not list(output.glob(".curate/looks/*/*.parquet")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL

    report = curate(root, output, duplicates="picture")

    assert report.looks_taken_over >= 1
    assert not (output / ".curate").exists()
    resumed = tree(output)
    shutil.rmtree(output)
    curate(root, output, duplicates="picture")
    assert tree(output) == resumed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"where": col("caption")["width"] > 3}, "where"),
        ({"where": None}, "where"),
        ({"min_width": 2}, "min_width"),
        ({"duplicates": "bytes"}, "duplicates"),
        ({"on_error": "skip"}, "on_error"),
        ({"modalities": ["image", "caption"], "on_missing": "skip"}, "on_missing"),
    ],
)
def test_other_arguments_do_not_go_on_with_it(
    root: Path, output: Path, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at("look", 2))
    before = tree(output)

    with pytest.raises(
        LayoutError, match=f"unfinished curation with other arguments \\({named}\\)"
    ):
        run(root, output, **arguments)

    assert tree(output) == before


def test_columns_that_changed_in_the_source_are_named(root: Path, output: Path) -> None:
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at("look", 2))
    for path in sorted((root / "caption").rglob("*.tar")):
        with tarfile.open(path) as tar:
            texts = {info.name: json.load(tar.extractfile(info)) for info in tar}  # type: ignore[arg-type]
        for text in texts.values():
            text |= {"source": 3, "size": {"deep": 0.5}}
            del text["tags"]
        write_tar(path, [(name, json.dumps(text).encode()) for name, text in texts.items()])
    before = tree(output)

    with pytest.raises(LayoutError) as caught:
        run(root, output)

    text = str(caught.value)
    assert "the columns of the source have changed: " in text
    assert "caption.source from String to Int64" in text
    assert "caption.tags from List[String] to nothing" in text
    assert "caption.size from nothing to a struct" in text
    assert "other arguments" not in text
    assert "write elsewhere" in text
    assert "schema=" in text
    assert tree(output) == before


def test_declared_columns_are_an_argument(root: Path, output: Path) -> None:
    schema = {"caption": daft.DataType.struct({"score": daft.DataType.float64()})}
    with pytest.raises(Stopped):
        run(root, output, extra_fields="ignore", schema=schema, progress=stop_at("look", 2))

    with pytest.raises(LayoutError, match=r"with other arguments \(schema\)"):
        run(root, output, extra_fields="ignore")


def test_other_shards_do_not_go_on_with_it(root: Path, output: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at("look", 2))
    manifest = json.loads((root / "wdinfo.json").read_text())
    manifest["data_list"].pop()
    manifest["data_list_key_count"].pop()
    (root / "wdinfo.json").write_text(json.dumps(manifest))

    with pytest.raises(LayoutError, match=r"with other arguments \(shards\)"):
        run(root, output)


def test_a_shard_that_has_changed_since_is_looked_at_and_copied_again(
    root: Path, output: Path
) -> None:
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at("copy", SHARDS))
    first = "part_000000/000000.tar"
    assert (output / "image" / first).exists()
    with tarfile.open(root / "caption" / first) as tar:
        captions = {info.name: json.load(tar.extractfile(info)) for info in tar}  # type: ignore[arg-type]
    texts = [(name, json.dumps(text | {"score": 0.5}).encode()) for name, text in captions.items()]
    write_tar(root / "caption" / first, texts)

    report = run(root, output)

    assert report.looks_taken_over == SHARDS - 1
    assert report.copies_taken_over == SHARDS - 1
    assert report.dropped["where"] >= 3
    # What stayed of its old version is gone.
    assert not (output / "image" / first).exists()
    resumed = tree(output)
    shutil.rmtree(output)
    run(root, output)
    assert tree(output) == resumed


def test_a_shard_that_changes_between_look_and_copy_is_an_error(root: Path, output: Path) -> None:
    changed = root / "image/part_000000/000002.tar"

    def progress(state: CurationProgress) -> None:
        if (state.stage, state.done) == ("look", SHARDS):
            os.utime(changed, (1, 1))

    with pytest.raises(StorageError, match=r"000002.tar: its tars were replaced while they were"):
        run(root, output, where=None, progress=progress)
    report = run(root, output, where=None)

    assert report.looks_taken_over == SHARDS - 1
    assert report.num_kept == (SHARDS - 1) * 3


@pytest.mark.parametrize("content", [b"", b"no parquet"])
def test_damaged_notes_are_made_again(
    root: Path,
    output: Path,
    expected: tuple[CurationReport, dict[str, bytes]],
    content: bytes,
) -> None:
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at("copy", SHARDS))
    (output / ".curate/looks/000000/000000001.parquet").write_bytes(content)
    (output / ".curate/copies/000000/000000002.json").write_bytes(content)

    report = run(root, output)

    assert (report.looks_taken_over, report.copies_taken_over) == (SHARDS - 1, SHARDS - 1)
    assert tree(output) == expected[1]


def test_a_tar_that_is_gone_is_copied_again(
    root: Path, output: Path, expected: tuple[CurationReport, dict[str, bytes]]
) -> None:
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at("copy", SHARDS))
    next(iter(sorted(output.glob("image/*/*.tar")))).unlink()

    report = run(root, output)

    assert report.copies_taken_over == SHARDS - 1
    assert tree(output) == expected[1]


def test_a_damaged_job_is_refused(root: Path, output: Path) -> None:
    (output / ".curate").mkdir(parents=True)
    (output / ".curate" / "job.json").write_text("{")

    with pytest.raises(LayoutError, match=r"job.json: is damaged .* begin again"):
        run(root, output)


def test_two_runs_into_one_folder_refuse_each_other(root: Path, output: Path) -> None:
    def progress(state: CurationProgress) -> None:
        if state.done == 1:
            with pytest.raises(
                LayoutError, match=r"process \d+ on .* is curating into this folder"
            ):
                run(root, output)

    report = run(root, output, progress=progress)

    assert report.looks_taken_over == report.copies_taken_over == 0


def test_a_folder_that_cannot_be_used_is_an_error(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be written \(File name too long\)"):
        run(root, tmp_path / ("x" * 300))


def test_a_folder_that_cannot_be_made_is_an_error(root: Path) -> None:
    with pytest.raises(StorageError, match=r"/proc/nothing/out: cannot be written"):
        run(root, Path("/proc/nothing/out"))


def test_a_folder_that_cannot_be_locked_is_an_error(
    root: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)

    with pytest.raises(StorageError, match=r"cannot be written \(No locks available\)"):
        run(root, output)


def at_the_end_of_looks(act: Callable[[], object]) -> Callable[[CurationProgress], None]:
    def progress(state: CurationProgress) -> None:
        if (state.stage, state.done) == ("look", SHARDS):
            act()

    return progress


def test_a_look_that_is_gone_before_the_copy_is_an_error(root: Path, output: Path) -> None:
    look = output / ".curate/looks/000000/000000001.parquet"

    with pytest.raises(StorageError, match=r"000000001.parquet: not found; .* all nodes share"):
        run(root, output, progress=at_the_end_of_looks(look.unlink))


@pytest.mark.parametrize("number", [1, 4])
def test_a_look_that_is_gone_before_the_report_is_an_error(
    root: Path, output: Path, number: int
) -> None:
    look = output / f".curate/looks/000000/00000000{number}.parquet"

    def progress(state: CurationProgress) -> None:
        if (state.stage, state.done) == ("copy", SHARDS):
            look.unlink()

    with pytest.raises(
        StorageError, match=rf"00000000{number}.parquet: not found; .* curate again"
    ):
        run(root, output, where=None, progress=progress)
    assert not (output / "curate_report.jsonl").exists()
    assert not (output / "wdinfo.json").exists()
    run(root, output, where=None)
    assert (output / "curate_report.jsonl").read_bytes().count(b"\n") == 3


def test_a_look_that_changes_before_the_copy_is_an_error(root: Path, output: Path) -> None:
    look = output / ".curate/looks/000000/000000001.parquet"

    def empty() -> None:
        # Not by its path, from which Arrow would take columns.
        with look.open("rb") as file:
            rows = pq.read_table(file)
        pq.write_table(rows.slice(0, 0), look)

    with pytest.raises(StorageError, match=r"rows were copied, \d+ were to be; .* curate again"):
        run(root, output, where=None, progress=at_the_end_of_looks(empty))
    assert not (output / "wdinfo.json").exists()


def test_a_tar_that_cannot_be_read_for_the_copy_leaves_nothing_behind(
    root: Path, output: Path
) -> None:
    gone = root / "caption/part_000000/000001.tar"

    with pytest.raises(StorageError, match=r"caption/part_000000/000001.tar"):
        run(root, output, where=None, progress=at_the_end_of_looks(gone.unlink))

    assert list((output / ".curate" / "stage").iterdir()) == []
    assert not (output / "image/part_000000/000001.tar").exists()


@pytest.mark.parametrize(
    ("blocked", "message"),
    [
        ("looks", "looks/.*: cannot be read"),
        ("copies", "out: cannot be written"),
        ("copies/000000/000000001.json/", "out: cannot be read"),
    ],
)
def test_notes_that_cannot_be_kept_are_an_error(
    root: Path, output: Path, blocked: str, message: str
) -> None:
    with pytest.raises(Stopped):
        run(root, output, progress=stop_at("look", SHARDS))
    path = output / ".curate" / blocked
    shutil.rmtree(path, ignore_errors=True)
    if blocked.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.write_text("in the way")

    with pytest.raises(StorageError, match=message):
        run(root, output)


def test_what_cannot_be_removed_is_an_error(root: Path, output: Path) -> None:
    with pytest.raises(Stopped):
        run(root, output, where="caption.score > 100", progress=stop_at("look", SHARDS))
    (output / "image/part_000000/000000.tar").mkdir(parents=True)

    with pytest.raises(StorageError, match=r"out: cannot be written"):
        run(root, output, where="caption.score > 100")


def test_a_run_that_waits_for_the_end_of_another_does_not_disturb_it(
    root: Path,
    output: Path,
    expected: tuple[CurationReport, dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rmdir = Path.rmdir

    def remove(path: Path) -> None:
        (output / ".curate" / "lock").touch()  # the other has opened it anew
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", remove)
    run(root, output)

    assert tree(output) == {**expected[1], ".curate/lock": b""}


def test_a_file_is_refused_as_output(root: Path, output: Path) -> None:
    output.write_text("a file")

    with pytest.raises(LayoutError, match="out: a file; expected a folder"):
        run(root, output)
