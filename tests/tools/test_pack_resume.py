"""A packing that was killed is finished to the byte; nothing else is ever mixed in."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from daft_twinwds import read_twin_webdataset
from daft_twinwds.errors import LayoutError, ResumeError, StorageError
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.tools.pack import PackProgress, PackReport, pack
from daft_twinwds.tools.pack_output import claimed
from daft_twinwds.tools.validate import validate

WriteFiles = Callable[[Mapping[str, bytes]], Path]
Tree = Callable[[Path], dict[str, bytes]]

KILLS = int(os.environ.get("TWINWDS_KILLS", "5"))
"""How many packings are killed; each takes a new process, which takes a second to start."""

CHILD = """
import os, signal, sys, threading
from daft_twinwds.tools.pack import pack

source, output, last_call = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls, lock = 0, threading.Lock()

def counted(function):
    def call(*args, **options):
        global calls
        with lock:
            calls += 1
            if calls == last_call:
                os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return call

for name in ("open", "read", "fsync", "replace", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
pack(source, output, shard_size=3, part_size=4, num_workers=2, classify_aspect_ratio=False)
print(calls)
"""


def run_child(source: Path, output: Path, last_call: int) -> subprocess.CompletedProcess[str]:
    """Pack in a process that kills itself at one of its calls to the system; 0 is none of them."""
    command = [sys.executable, "-c", CHILD, str(source), str(output), str(last_call)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def packed(source: Path, output: Path, **options: Any) -> PackReport:
    settings = {"shard_size": 3, "part_size": 4, "classify_aspect_ratio": False, **options}
    return pack(source, output, num_workers=2, **settings)


def times(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*.tar")}


@pytest.fixture
def raw(write_files: WriteFiles) -> Path:
    """An input of 40 samples and a file to leave out."""
    draw = random.Random(0)
    files = {
        f"{modality}/{number:02d}.{suffix}": draw.randbytes(draw.randrange(1, 3000))
        for modality, suffix in (("image", "jpg"), ("caption", "txt"))
        for number in range(40)
    }
    return write_files({**files, "image/lone.jpg": b"1"})


def test_killed_packing_is_resumed_to_the_same_bytes(tree: Tree, raw: Path, tmp_path: Path) -> None:
    whole = run_child(raw, tmp_path / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    expected = tree(tmp_path / "whole")
    calls = random.Random(1).sample(range(1, int(whole.stdout) + 1), KILLS)

    for last_call in calls:
        output = tmp_path / f"killed-{last_call}"
        killed = run_child(raw, output, last_call)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        found = tree(output)
        assert "wdinfo.json" not in found or expected.items() <= found.items()

        packed(raw, output, resume=True)

        assert tree(output) == expected, f"killed at call {last_call} of {whole.stdout}"


def test_packing_that_stopped_with_an_error_goes_on_after_it(
    tree: Tree, raw: Path, tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    def stop(step: PackProgress) -> None:
        if step.done == 5:
            raise StopError

    with pytest.raises(StopError):
        packed(raw, tmp_path / "out", progress=stop)
    before = times(tmp_path / "out")

    report = packed(raw, tmp_path / "out", resume=True)

    assert report.tars_found == len(before) >= 5
    assert before.items() <= times(tmp_path / "out").items()
    packed(raw, tmp_path / "whole")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_resuming_where_nothing_was_begun_packs(raw: Path, tmp_path: Path) -> None:
    report = packed(raw, tmp_path / "out", resume=True)

    assert (report.num_samples, report.tars_found) == (40, 0)


def test_resuming_what_is_done_reports_it_and_writes_no_tar(raw: Path, tmp_path: Path) -> None:
    first = packed(raw, tmp_path / "out", limit=30)
    before = times(tmp_path / "out")

    again = packed(raw, tmp_path / "out", limit=30, resume=True)

    assert times(tmp_path / "out") == before
    assert again.tars_found == len(before)
    assert (again.leaves, again.left_out) == (first.leaves, first.left_out)
    assert again.beyond_limit == first.beyond_limit == 10


def test_dry_run_of_a_resumption_shows_the_plan(tree: Tree, raw: Path, tmp_path: Path) -> None:
    first = packed(raw, tmp_path / "out")
    before = tree(tmp_path / "out")

    again = packed(raw, tmp_path / "out", resume=True, dry_run=True)

    assert again.leaves == first.leaves
    assert tree(tmp_path / "out") == before


def test_tar_that_was_cut_is_written_again(tree: Tree, raw: Path, tmp_path: Path) -> None:
    packed(raw, tmp_path / "out")
    expected = tree(tmp_path / "out")
    tar = tmp_path / "out" / "image" / "part_000000" / "000001.tar"
    tar.write_bytes(tar.read_bytes()[:1000])

    packed(raw, tmp_path / "out", resume=True)

    assert tree(tmp_path / "out") == expected


@pytest.mark.parametrize(
    ("options", "then", "now"),
    [
        pytest.param({"shard_size": 4}, "shard_size 3", "now 4", id="number"),
        pytest.param({"seed": 7}, "seed 0", "now 7", id="seed"),
        pytest.param({"shuffle": False}, "shuffle True", "now False", id="order"),
        pytest.param({"dataset_name": "x"}, "key_prefix ", "now x__", id="prefix"),
        pytest.param({"modalities": ["image"]}, "modalities None", "image", id="modalities"),
    ],
)
def test_other_flags_are_refused_with_both_values(
    raw: Path, tmp_path: Path, options: dict[str, Any], then: str, now: str
) -> None:
    packed(raw, tmp_path / "out")

    with pytest.raises(ResumeError, match=f"was made with .*{then}.*, .*{now}"):
        packed(raw, tmp_path / "out", resume=True, **options)


def rewrite(path: Path) -> None:
    """Change a file's content and not its size."""
    data = path.read_bytes()
    path.write_bytes(bytes(byte ^ 1 for byte in data))
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(
            lambda raw: (raw / "image" / "new.jpg").write_bytes(b"1"),
            r"folder 'image' 41 files of \d+ bytes .*, now 42 files",
            id="more",
        ),
        pytest.param(
            lambda raw: (raw / "caption" / "07.txt").unlink(),
            r"folder 'caption' 40 files of \d+ bytes .*, now 39 files",
            id="fewer",
        ),
        pytest.param(
            lambda raw: rewrite(raw / "image" / "07.jpg"),
            r"folder 'image' 41 files of (\d+) bytes \(sha256 \w+\), now 41 files of \1 bytes",
            id="same-size",
        ),
        pytest.param(
            lambda raw: (raw / "umt5").mkdir(),
            "folder 'umt5' absent, now 0 files of 0 bytes",
            id="another-folder",
        ),
    ],
)
def test_changed_input_is_refused_by_folder(
    raw: Path, tmp_path: Path, change: Callable[[Path], object], found: str
) -> None:
    packed(raw, tmp_path / "out")
    change(raw)

    with pytest.raises(ResumeError, match=found):
        packed(raw, tmp_path / "out", resume=True)


def test_folder_of_a_data_set_is_refused_without_resume(raw: Path, tmp_path: Path) -> None:
    packed(raw, tmp_path / "out")

    with pytest.raises(LayoutError, match=r"out: a packing was begun here.*pass resume=True"):
        packed(raw, tmp_path / "out")


@pytest.mark.parametrize("resume", [False, True])
def test_folder_of_other_things_is_refused(
    tree: Tree, raw: Path, tmp_path: Path, resume: bool
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "wdinfo.json").write_text("{}")

    with pytest.raises(LayoutError, match=r"out: wdinfo\.json were found; expected a new or empty"):
        packed(raw, tmp_path / "out", resume=resume)

    assert tree(tmp_path / "out") == {"wdinfo.json": b"{}"}


def test_file_in_place_of_the_output_is_refused(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")

    with pytest.raises(LayoutError, match="out: a file; expected a folder"):
        packed(raw, tmp_path / "out")


def test_output_below_a_file_is_refused(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StorageError, match="out: cannot be used"):
        packed(raw, tmp_path / "file" / "out")


def test_output_that_cannot_be_looked_at_is_refused(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"xxx: cannot be used \(File name too long\)"):
        packed(raw, tmp_path / ("x" * 300))


def test_hidden_files_are_no_data_set(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".nfs0001").write_bytes(b"")

    assert packed(raw, tmp_path / "out").num_samples == 40


@pytest.mark.parametrize("resume", [False, True])
def test_two_packings_into_one_folder_refuse_each_other(
    raw: Path, tmp_path: Path, resume: bool
) -> None:
    message = f"process {os.getpid()} on .* is packing into this folder"
    with claimed(tmp_path / "out"), pytest.raises(LayoutError, match=message):
        packed(raw, tmp_path / "out", resume=resume)

    assert packed(raw, tmp_path / "out", resume=resume).num_samples == 40


def test_lock_of_a_dead_process_is_taken_over(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".pack.lock").write_text("process 1 on nowhere, which is long gone")

    packed(raw, tmp_path / "out", resume=True)

    assert not (tmp_path / "out" / ".pack.lock").exists()


def test_lock_that_goes_while_it_is_waited_for_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    path = tmp_path / "out" / ".pack.lock"
    locked: list[int] = []

    def lock(descriptor: int, operation: int) -> None:
        if not locked:
            path.unlink()
        locked.append(descriptor)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock)

    with claimed(tmp_path / "out"):
        assert path.read_text().startswith(f"process {os.getpid()} on ")
        assert len(locked) == 2


def test_claimed_folder_goes_again_if_it_stays_empty(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()

    with claimed(tmp_path / "kept" / "new" / "out"):
        assert (tmp_path / "kept" / "new" / "out").is_dir()

    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
    assert list((tmp_path / "kept").iterdir()) == []


def test_file_system_without_locks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", lock)

    with pytest.raises(StorageError, match=r"out: cannot be used \(No locks available\)"):
        claimed(tmp_path / "out").__enter__()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        pytest.param(lambda lines: ["{"], "not a plan that can be followed", id="cut"),
        pytest.param(lambda lines: ["{}"], "'version'", id="foreign"),
        pytest.param(
            lambda lines: [lines[0].replace('"version": 1', '"version": 9'), *lines[1:]],
            "its version is 9, not 1",
            id="of-another-version",
        ),
        pytest.param(lambda lines: [lines[0], "[]"], "not a plan", id="no-shard"),
    ],
)
def test_plan_that_cannot_be_followed_is_refused(
    raw: Path, tmp_path: Path, damage: Callable[[list[str]], list[str]], found: str
) -> None:
    packed(raw, tmp_path / "out")
    plan = tmp_path / "out" / "pack_plan.jsonl"
    plan.write_text("\n".join(damage(plan.read_text().splitlines())))

    with pytest.raises(ResumeError, match=f"pack_plan.jsonl: .*{found}"):
        packed(raw, tmp_path / "out", resume=True)


def test_report_that_is_gone_cannot_be_resumed(raw: Path, tmp_path: Path) -> None:
    packed(raw, tmp_path / "out")
    (tmp_path / "out" / "pack_report.jsonl").unlink()

    with pytest.raises(StorageError, match=r"pack_report\.jsonl: cannot be read"):
        packed(raw, tmp_path / "out", resume=True)


def test_plan_says_where_each_key_came_from(raw: Path, tmp_path: Path) -> None:
    packed(raw, tmp_path / "out", shuffle=False, dataset_name="set")

    line = (tmp_path / "out" / "pack_plan.jsonl").read_text().splitlines()[1]
    assert json.loads(line) == {
        "leaf": "",
        "name": "part_000000/000000.tar",
        "keys": ["set__00", "set__01", "set__02"],
        "files": {
            "caption": ["00.txt", "01.txt", "02.txt"],
            "image": ["00.jpg", "01.jpg", "02.jpg"],
        },
        "sizes": {
            modality: [
                (raw / modality / f"0{number}.{suffix}").stat().st_size for number in range(3)
            ]
            for modality, suffix in (("caption", "txt"), ("image", "jpg"))
        },
    }


def test_a_file_in_place_of_a_part_folder_is_an_error(raw: Path, tmp_path: Path) -> None:
    packed(raw, tmp_path / "out")
    part = tmp_path / "out" / "image" / "part_000000"
    shutil.rmtree(part)
    part.write_text("in the way")

    with pytest.raises(StorageError, match=r"cannot be written \(Not a directory\)"):
        packed(raw, tmp_path / "out", resume=True)


def test_a_part_folder_that_cannot_be_listed_is_an_error(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(raw, tmp_path / "out")
    iterdir = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path.name == "part_000000":
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)

    with pytest.raises(StorageError, match=r"part_000000: cannot be listed \(Permission denied\)"):
        packed(raw, tmp_path / "out", resume=True)


@pytest.mark.parametrize("leaf", ["", "aspect_ratio_1_1", "aspect_ratio_1_1/duration_0_5"])
def test_what_a_stopped_packing_left_is_no_sound_data_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaf: str
) -> None:
    root = make_twin_dataset(tmp_path / "out" / leaf, num_shards=1, samples_per_shard=2)
    (tmp_path / "out" / "pack_plan.jsonl").touch()
    assert validate(tmp_path / "out").is_sound, "its manifest was written, so it is finished"
    (root / "wdinfo.json").unlink()

    (fault,) = validate(tmp_path / "out").faults

    assert (fault.kind, fault.path) == ("unfinished", str(tmp_path / "out" / "pack_plan.jsonl"))
    assert "go on with it by daft-twinwds pack --resume" in fault.text
    assert read_twin_webdataset(tmp_path / "out").count_rows() == 2
    (message,) = [message for message in caplog.messages if "pack_plan" in message]
    assert "is not finished" in message
