"""Worker processes write what threads write, and nothing is lost where one of them ends."""

import fcntl
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.file_lock import file_lock
from daft_twinwds.tools import pack_output, pack_process, pack_worker, pack_workers
from daft_twinwds.tools.pack import PackProgress, PackReport, pack
from daft_twinwds.tools.pack_fill import SYNCS, Job, Places, PlannedTar, Tar, fill_tars, jobs_of
from daft_twinwds.tools.pack_output import claimed
from daft_twinwds.tools.pack_process import Processes
from daft_twinwds.tools.pack_shard import ShardPlan, line_of

WriteFiles = Callable[[Mapping[str, bytes]], Path]
Tree = Callable[[Path], dict[str, bytes]]

KILLS = int(os.environ.get("TWINWDS_KILLS", "5"))

SCRIPT = """
import os, signal, sys
from daft_twinwds.tools import pack_workers
from daft_twinwds.tools.pack import pack

pack_workers._MANY = 1
pack_workers._TOGETHER = 2

def stop(step):
    if step.stage == "write" and step.done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

report = pack(sys.argv[1], sys.argv[2], shard_size=3, num_workers=2, progress=stop,
              classify_aspect_ratio=False)
print("packed", report.num_samples)
"""


@pytest.fixture
def raw(write_files: WriteFiles) -> Path:
    """An input of 90 samples, of which a process has many more jobs to do than it is ahead."""
    draw = random.Random(0)
    return write_files(
        {
            f"{modality}/{number:02d}.{suffix}": draw.randbytes(draw.randrange(1, 3000))
            for modality, suffix in (("image", "jpg"), ("caption", "txt"))
            for number in range(90)
        }
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes for however few files; those that were started, all of which must end."""
    processes: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            processes.append(self)

    monkeypatch.setattr(pack_workers, "_MANY", 1)
    monkeypatch.setattr(pack_workers, "_TOGETHER", 2)
    monkeypatch.setattr(subprocess, "Popen", Popen)
    yield processes
    assert None not in [process.poll() for process in processes]


def packed(source: Path, output: Path, *, num_workers: int = 2, **options: Any) -> PackReport:
    settings = {"shard_size": 3, "classify_aspect_ratio": False, **options}
    return pack(source, output, num_workers=num_workers, **settings)


def test_processes_write_what_threads_write(
    tree: Tree, raw: Path, tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    steps: list[PackProgress] = []

    report = packed(raw, tmp_path / "processes", progress=steps.append)

    assert len(started) == 2
    assert (report.num_samples, report.num_shards) == (90, 30)
    assert [step.done for step in steps if step.tar] == list(range(1, 61))
    assert len({step.tar for step in steps if step.tar}) == 60
    packed(raw, tmp_path / "threads", num_workers=1)
    assert len(started) == 2
    assert tree(tmp_path / "processes") == tree(tmp_path / "threads")


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        pytest.param(pack_workers, "_MANY", 91, id="few"),
        pytest.param(pack_workers, "_SMALL", 1, id="large"),
        pytest.param(sys, "executable", "", id="python-has-no-program"),
        pytest.param(sys, "frozen", True, id="python-is-part-of-a-program"),
    ],
)
def test_threads_do_the_work_where_processes_do_not_help(
    raw: Path,
    tmp_path: Path,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
    where: ModuleType,
    name: str,
    value: Any,
) -> None:
    monkeypatch.setattr(where, name, value, raising=False)

    assert packed(raw, tmp_path / "out").num_samples == 90

    assert not started


def test_errors_of_a_process_are_those_of_a_thread(
    raw: Path,
    tmp_path: Path,
    started: list["subprocess.Popen[bytes]"],
) -> None:
    def damage(step: PackProgress) -> None:
        if step.stage == "write" and step.done == 1:
            for path in (raw / "caption").iterdir():
                path.write_bytes(b"")

    with pytest.raises(StorageError, match=r"caption/\d\d\.txt: fewer bytes than the \d+ that"):
        packed(raw, tmp_path / "out", progress=damage)
    assert len(started) == 2
    assert not list((tmp_path / "out").rglob("wdinfo.json"))
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_a_process_that_is_killed_is_an_error_and_no_loss(
    tree: Tree, raw: Path, tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    def kill(step: PackProgress) -> None:
        if step.stage == "write" and step.done == 10:
            started[0].kill()

    with pytest.raises(StorageError, match=r"ended early \(exit code -9; silent\).*num_workers=1"):
        packed(raw, tmp_path / "out", progress=kill)

    assert not (tmp_path / "out" / "wdinfo.json").exists()
    report = packed(raw, tmp_path / "out", resume=True)
    assert report.tars_found >= 10
    packed(raw, tmp_path / "whole", num_workers=1)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_a_process_that_does_not_start_is_an_error(
    raw: Path,
    tmp_path: Path,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pack_process, "_START", "raise SystemExit('no room')")

    with pytest.raises(StorageError, match=r"ended early \(exit code 1; no room\)"):
        packed(raw, tmp_path / "out")


def test_a_process_that_cannot_be_started_is_an_error(
    raw: Path,
    tmp_path: Path,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "python").write_bytes(b"")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    with pytest.raises(StorageError, match=r"python: no worker .* \(Permission denied\); .*resume"):
        packed(raw, tmp_path / "out")


def test_an_answer_that_is_none_ends_the_packing(
    raw: Path,
    tmp_path: Path,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pack_process, "_START", "print('welcome')")

    with pytest.raises(StorageError, match=r"ended early \(exit code 0; silent\)"):
        packed(raw, tmp_path / "out")


def test_a_folder_of_temporary_files_that_is_gone_is_an_error(
    raw: Path,
    tmp_path: Path,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    with pytest.raises(StorageError, match=r"no worker .* \(No such file .*temporary files"):
        packed(raw, tmp_path / "out")


def test_nothing_is_started_for_nothing(
    raw: Path, tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    packed(raw, tmp_path / "out", num_workers=1)

    assert packed(raw, tmp_path / "out", resume=True).tars_found == 60

    assert not started


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_the_program_is_not_waited_for(
    raw: Path, tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    forked: list[int] = []

    def fork(step: PackProgress) -> None:
        if step.stage == "write" and step.done == 1:
            process = os.fork()
            if not process:  # it only waits, with all that it has inherited open
                signal.pause()
                os._exit(0)
            forked.append(process)

    try:
        assert packed(raw, tmp_path / "out", progress=fork).num_samples == 90
        assert os.waitpid(forked[0], os.WNOHANG) == (0, 0), "it is still there"
    finally:
        os.kill(forked[0], signal.SIGKILL)
        os.waitpid(forked[0], 0)


@pytest.mark.parametrize("mode", [0, 1])
def test_paths_are_bytes_as_here(raw: Path, tmp_path: Path, mode: int) -> None:
    """Whether text is UTF-8 whatever the locale is decided by this process for its workers."""
    code = SCRIPT.replace(
        "pack_workers._MANY = 1",
        "pack_workers._MANY = 1\n"
        "from daft_twinwds.tools import pack_process\n"
        "pack_process._START = 'import sys; sys.exit(f\"mode {sys.flags.utf8_mode}\")'",
    )
    command = [sys.executable, "-X", f"utf8={mode}", "-c", code, str(raw), str(tmp_path / "o"), "0"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert f"exit code 1; mode {mode})" in done.stderr


def test_a_packing_that_is_killed_is_resumed_to_the_same_bytes(
    tree: Tree, raw: Path, tmp_path: Path
) -> None:
    """A plain script, too: what it does at its top level is not done again by its processes."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(raw)]
    whole = subprocess.run(
        [*command, str(tmp_path / "whole"), "0"], capture_output=True, text=True, check=False
    )
    assert whole.stdout == "packed 90\n", whole.stderr

    for last in random.Random(2).sample(range(1, 60), KILLS):
        output = tmp_path / f"killed-{last}"
        killed = subprocess.run([*command, str(output), str(last)], check=False)
        assert killed.returncode == -signal.SIGKILL

        packed(raw, output, resume=True)

        assert tree(output) == tree(tmp_path / "whole"), f"killed after {last} tars"


@dataclass
class Plan:
    """Shards of one small file each."""

    folder: Path
    places: Places = field(init=False)
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "text").mkdir()
        self.places = Places(
            plan=str(self.folder / "plan"),
            output=str(self.folder / "out"),
            folders=[("text", str(self.folder / "text"))],
        )

    def add(self, number: int, *, is_there: bool = True) -> Job:
        """Plan a tar that is a job of its own."""
        content = b"%d" % number
        if is_there:
            (self.folder / "text" / f"{number}.txt").write_bytes(content)
        shard = ShardPlan(
            leaf="",
            name=f"{number}.tar",
            keys=[str(number)],
            files={"text": [f"{number}.txt"]},
            sizes={"text": [len(content)]},
        )
        with (self.folder / "plan").open("ab") as file:
            start = file.tell()
            stop = start + file.write(line_of(shard))
        job = Job([Tar(start, stop, 0)], [shard.tar("text")])
        self.jobs.append(job)
        return job

    def lines(self, jobs: Iterable[Job]) -> Iterator[str]:
        """Yield what a worker is sent."""
        yield json.dumps(self.places)
        for one in jobs:
            yield json.dumps(one.tars)

    def has(self, one: Job) -> bool:
        return Path(self.places.output, one.paths[0]).exists()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path)


def test_a_process_holds_the_lock_until_it_ends(plan: Plan, tmp_path: Path) -> None:
    jobs = [plan.add(number) for number in range(30)]
    with ExitStack() as stack:
        with file_lock(tmp_path / "lock", where="here", doing="works", cure="wait") as lock:
            processes = stack.enter_context(Processes(lock=lock))
            filling = processes.fill(plan.places, jobs, count=1)
            assert next(filling) == jobs[0]
        other = os.open(tmp_path / "lock", os.O_RDWR)

        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert len(list(filling)) == 29

    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_a_lock_stays_with_a_process_that_was_not_waited_for(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_output, "_PATIENCE", 0)
    with claimed(tmp_path / "out") as lock:
        worker = subprocess.Popen(["sleep", "60"], pass_fds=[lock])

    with pytest.raises(LayoutError, match="or one of its workers is packing into this folder"):
        packed(raw, tmp_path / "out")

    worker.kill()
    worker.wait()
    assert packed(raw, tmp_path / "out").num_samples == 90
    assert not (tmp_path / "out" / ".pack.lock").exists()


def test_a_lock_is_none_of_the_descriptors_that_a_child_replaces(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from daft_twinwds.shards.file_lock import file_lock
os.close(0)
with file_lock(Path(sys.argv[1]), where="here", doing="works", cure="wait") as lock:
    print(lock > 2, end="")
"""

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "lock")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert done.stdout == "True"


def test_a_worker_answers_each_job(plan: Plan) -> None:
    jobs = [plan.add(number) for number in range(SYNCS + 3)]
    missing = plan.add(99, is_there=False)
    answers = io.StringIO()

    pack_worker.main(os.getppid(), plan.lines([*jobs, missing, *jobs]), answers)

    *done, error = map(json.loads, answers.getvalue().splitlines())
    # Those that wait for the disk are finished, though nobody is told any more.
    assert done == [None] * 3
    assert all(map(plan.has, jobs))
    assert error[0] == "StorageError"
    assert "99.txt: cannot be read" in error[1]


def test_a_worker_ends_with_the_last_line_though_the_pipe_stays_open(plan: Plan) -> None:
    answers = io.StringIO()

    def lines() -> Iterator[str]:
        yield from plan.lines([plan.add(0)])
        yield "null"
        raise AssertionError("it would wait for ever")

    pack_worker.main(os.getppid(), lines(), answers)

    assert answers.getvalue() == "null\n"


@pytest.mark.parametrize("lines", [["null"], []], ids=["nothing-to-do", "nobody-there"])
def test_a_worker_ends_without_a_packing(lines: list[str]) -> None:
    answers = io.StringIO()

    pack_worker.main(os.getppid(), lines, answers)

    assert answers.getvalue() == ""


def test_a_worker_ends_with_its_starter(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    class ExitError(Exception):
        pass

    def leave(code: int) -> None:
        raise ExitError(code)

    monkeypatch.setattr(os, "_exit", leave)

    def lines() -> Iterator[str]:
        *first, last = plan.lines([plan.add(0), plan.add(1)])
        yield from first
        monkeypatch.setattr(os, "getppid", lambda: 1)
        yield last

    with pytest.raises(ExitError, match="1"):
        pack_worker.main(os.getppid(), lines(), io.StringIO())

    assert list(map(plan.has, plan.jobs)) == [True, False]


def test_jobs_wait_in_the_smallest_pipe(
    tree: Tree, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that gives jobs never waits for one that is busy, which could wait for it."""
    longest = json.dumps([Tar(2**50, 2**50, 999)] * pack_workers._TOGETHER)
    assert (len(longest) + 1) * pack_process._AHEAD <= 4096

    popen = partial(subprocess.Popen, pipesize=4096)
    monkeypatch.setattr(pack_workers, "_MANY", 1)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", popen)
        packed(raw, tmp_path / "out", shard_size=1)

    packed(raw, tmp_path / "whole", shard_size=1, num_workers=1)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


@pytest.mark.parametrize("damage", [b"", b"{", b"{}"], ids=["cut", "no-json", "foreign"])
def test_a_plan_that_has_changed_is_an_error(plan: Plan, damage: bytes) -> None:
    jobs = [plan.add(0)]
    Path(plan.places.plan).write_bytes(damage)

    with pytest.raises(StorageError, match=r"plan: no shard at byte 0 \(.*\); expected the plan"):
        list(fill_tars(plan.places, jobs))


def test_processes_start_before_it_is_known_what_they_do(
    raw: Path, tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    def look(step: PackProgress) -> None:
        if step.stage == "inspect":
            seen.append(len(started))

    seen: list[int] = []

    with pytest.raises(LayoutError, match="no sample can be packed"):
        packed(raw, tmp_path / "out", classify_aspect_ratio=True, progress=look)

    assert seen
    assert set(seen) == {2}


def test_few_files_are_few_processes_work(
    raw: Path,
    tmp_path: Path,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pack_workers, "_MANY", 60)

    assert packed(raw, tmp_path / "out", num_workers=100).num_samples == 90

    assert len(started) == 180 // 60


def test_fewer_jobs_than_processes_are_done(
    raw: Path, tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    assert packed(raw, tmp_path / "out", shard_size=100, num_workers=3).num_shards == 1


def planned(count: int, *, num_files: int = 1, num_bytes: int = 1) -> list[PlannedTar]:
    return [
        PlannedTar(Tar(number, number + 1, 0), f"{number}.tar", num_files, num_bytes)
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("tars", "sizes"),
    [
        pytest.param(planned(0), [], id="none"),
        pytest.param(planned(9), [4, 4, 1], id="small"),
        pytest.param(planned(5, num_files=500), [2, 2, 1], id="many-files"),
        pytest.param(planned(3, num_bytes=1 << 30), [1, 1, 1], id="large"),
        pytest.param(planned(4, num_bytes=2 << 20), [2, 2], id="medium"),
    ],
)
def test_small_tars_are_a_job_together(tars: list[PlannedTar], sizes: list[int]) -> None:
    jobs = list(jobs_of(iter(tars), most=4))

    assert [len(job.tars) for job in jobs] == sizes
    assert [tar for job in jobs for tar in job.tars] == [tar.tar for tar in tars]
    assert [path for job in jobs for path in job.paths] == [tar.path for tar in tars]


def test_threads_have_few_files_open(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one process has those of all its threads."""
    most = [0]

    def count(step: PackProgress) -> None:
        names = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                names.append(descriptor.readlink().name)
        most[0] = max(most[0], sum(name.endswith(".tar.tmp") for name in names))

    fsync = os.fsync

    def slow(descriptor: int) -> None:
        time.sleep(0.01)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)

    packed(raw, tmp_path / "out", shard_size=1, num_workers=4, progress=count)

    assert 0 < most[0] <= 4 * (SYNCS + 1) * 2
