"""Several processes: jobs that are killed and go on, meshes, and queries run by one rank alone."""

import json
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import daft_twinwds
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import Partition, Selection, distributed

PACKAGE = Path(daft_twinwds.__file__).parent.parent
JOB = Path(__file__).parent / "train_job.py"
SAMPLES = 24

RUN = """
import json
import os
import sys

import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, size, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    try:
        # A file each: what two processes print may come out as one line.
        with open(f"{store}_{rank}.json", "w") as file:
            json.dump(look(rank), file)
        dist.barrier()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(run, (int(sys.argv[1]), sys.argv[2]), int(sys.argv[1]), start_method="fork")
"""


def environment() -> dict[str, str]:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}


def torchrun(processes: int, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={processes}", *map(str, args)),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twins")
    root = make_twin_dataset(folder / "root", num_shards=3, samples_per_shard=SAMPLES // 3)
    path = folder / "selection.parquet"
    Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root)).save(path)
    return path


@pytest.fixture(scope="module")
def killed(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a job of two processes leaves behind that was killed after three of six steps."""
    folder = tmp_path_factory.mktemp("killed")
    done = torchrun(2, JOB, saved, folder, 3)
    assert done.returncode != 0
    assert "SIGKILL" in done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_that_is_killed_goes_on_with_any_number_of_processes(
    saved: Path, killed: Path, tmp_path: Path, processes: int
) -> None:
    folder = shutil.copytree(killed, tmp_path / "job")
    state = json.loads((folder / "state.json").read_text())

    resumed = torchrun(processes, JOB, saved, folder, 0)

    assert (state["epoch"], state["step"]) == (0, 3)
    assert resumed.returncode == 0, resumed.stderr
    keys = [key for file in folder.glob("keys_*.txt") for key in file.read_text().split()]
    assert Counter(keys) == Counter(f"id_{number}" for number in range(SAMPLES))


LOOK = """
import daft_twinwds
import pyarrow as pa
import torch.distributed as dist
from daft_twinwds.train import distributed
from daft_twinwds.errors import LayoutError
from daft_twinwds.train import Partition, Selection
from torch.distributed.device_mesh import init_device_mesh


class OddError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def look(rank):
    def make_df():
        ran.append(rank)
        return daft_twinwds.read_twin_webdataset(sys.argv[3])

    def plain():
        raise LayoutError("wdinfo.json: gone")

    def odd():
        raise OddError(1, 2)

    ran = []
    # So that even a small selection is sent in several pieces.
    distributed.PIECE = 1000
    found = {"errors": []}
    # Before Daft runs anywhere: its threads make a process that leaves by fork wait.
    for failing in (plain, odd):
        try:
            Selection.from_dataframe_distributed(failing)
        except Exception as error:
            found["errors"].append([type(error).__name__, str(error)])
    selection = Selection.from_dataframe_distributed(make_df)
    found["fingerprint"] = selection.fingerprint
    found["media"] = dict(selection.media)
    found["rows"] = str(selection.rows(range(len(selection))))
    found["size"] = distributed.stream_size(selection.table)
    found["ran"] = ran

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    groups = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    partitions = [
        Partition.from_device_mesh(mesh),
        Partition.detect(mesh),
        Partition.from_process_group(groups[rank % 2]),
        Partition.detect(),
    ]
    sent = from_first_rank(lambda: pa.table({"rank": [rank]}), groups[rank % 2])
    found["first_of_group"] = sent["rank"].to_pylist()
    found["partitions"] = [[each.rank, each.world_size] for each in partitions]
    for refuse in (Partition.from_process_group, lambda group: from_first_rank(None, group)):
        try:
            refuse(groups[1 - rank % 2])
        except ValueError as error:
            found.setdefault("refused", []).append(str(error))
    return found
"""


@pytest.fixture(scope="module")
def ranks(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four ranks finds."""
    folder = tmp_path_factory.mktemp("ranks")
    script = folder / "ranks.py"
    script.write_text(f"from daft_twinwds.train.distributed import from_first_rank\n{LOOK}{RUN}")
    done = subprocess.run(
        [sys.executable, script, "4", folder / "store", saved.parent / "root"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"store_{rank}.json").read_text()) for rank in range(4)]


def test_one_rank_runs_the_query_for_all(saved: Path, ranks: list[dict[str, Any]]) -> None:
    assert [found["ran"] for found in ranks] == [[0], [], [], []]
    expected = Selection.load(saved)
    for found in ranks:
        assert found["fingerprint"] == expected.fingerprint
        assert found["media"] == expected.media
        assert found["rows"] == str(expected.rows(range(SAMPLES)))
        assert found["size"] > 3000, "not one piece alone"


def test_a_group_has_a_first_rank_of_its_own(ranks: list[dict[str, Any]]) -> None:
    assert [found["first_of_group"] for found in ranks] == [[0], [1], [0], [1]]


@given(
    table=st.sampled_from(["plain", "sliced", "chunked", "empty"]),
    piece=st.integers(1, 3000),
)
def test_pieces_make_the_table_that_was_cut(table: str, piece: int) -> None:
    coded = pa.array(["a", "b", "a", None, "c"] * 20).dictionary_encode()
    nested = pa.StructArray.from_arrays([coded, pa.array(range(100))], names=["path", "position"])
    whole = pa.table({"__key__": [str(row) for row in range(100)], "image": nested})
    made = {
        "plain": whole,
        "sliced": whole.slice(13, 50),
        "chunked": pa.concat_tables([whole.slice(3, 20), whole]),
        "empty": whole.slice(0, 0),
    }[table].replace_schema_metadata({"some": "thing"})
    pieces: list[NDArray[np.uint8]] = []

    def receive(array: NDArray[np.uint8]) -> None:
        array[:] = pieces.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "PIECE", piece)
        distributed.write_pieces(made, lambda array: pieces.append(array.copy()))
        sizes = [len(array) for array in pieces]
        got = distributed.read_pieces(sum(sizes), receive)

    assert distributed.stream_size(made) == sum(sizes)
    assert set(sizes[:-1]) <= {piece}
    assert 0 < sizes[-1] <= piece
    assert got.equals(made, check_metadata=True)
    assert not pieces


def test_sending_takes_a_piece_of_memory_and_receiving_one_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "PIECE", 100_000)
    table = pa.table({"number": np.arange(1_000_000)})
    pieces: list[NDArray[np.uint8]] = []
    distributed.write_pieces(table, lambda array: pieces.append(array.copy()))
    size = sum(map(len, pieces))
    left = iter(pieces)

    def receive(array: NDArray[np.uint8]) -> None:
        array[:] = next(left)

    def peak_of(work: Callable[[], object]) -> int:
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        try:
            kept = work()
            assert pa.total_allocated_bytes() - before < 100_000, "Arrow has made a copy"
            del kept
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_of(lambda: distributed.write_pieces(table, lambda _: None)) < 200_000
    assert peak_of(lambda: distributed.read_pieces(size, receive)) < size + 200_000


@pytest.mark.parametrize(
    ("config", "device"),
    [
        ("cpu:gloo,cuda:gloo", "cpu"),
        ("cuda:nccl,cpu:gloo", "cpu"),
        ("cuda:nccl", "cuda"),
        ("xpu:xccl", "xpu"),
    ],
)
def test_a_group_sends_from_a_device_only_if_it_cannot_otherwise(config: str, device: str) -> None:
    assert distributed._device_of(config) == torch.device(device)


def test_an_error_of_the_query_reaches_all_ranks_as_it_is(ranks: list[dict[str, Any]]) -> None:
    first, *others = (found["errors"] for found in ranks)
    plain = ["LayoutError", "wdinfo.json: gone"]

    assert first == [plain, ["OddError", "1 and 2"]]
    assert others == [[plain, ["RuntimeError", "OddError: 1 and 2"]]] * 3


class LockedError(Exception):
    """Its text and arguments are as plain as any, and yet it cannot be sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


def test_an_error_that_cannot_be_sent_is_told_by_its_text() -> None:
    portable = distributed._portable(LockedError("gone"))

    assert type(portable) is RuntimeError
    assert str(portable) == "LockedError: gone"


def test_peers_of_other_dimensions_share_a_partition(ranks: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(ranks):
        assert found["partitions"] == [[rank // 2, 2]] * 3 + [[rank, 4]]


def test_processes_outside_of_a_group_are_refused(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert len(found["refused"]) == 2
        assert all("this process is not in" in message for message in found["refused"])


def test_without_a_group_the_query_simply_runs(saved: Path) -> None:
    root = saved.parent / "root"

    selection = Selection.from_dataframe_distributed(
        lambda: daft_twinwds.read_twin_webdataset(root)
    )

    assert selection.fingerprint == Selection.load(saved).fingerprint


class Mesh:
    """As much of a DeviceMesh as is asked for its place."""

    mesh_dim_names: Any = ("pp", "dp_replicate", "dp_shard", "tp")

    def __init__(self, coordinate: Any) -> None:
        self._coordinate = coordinate

    def size(self, place: int) -> int:
        return (2, 3, 4, 5)[place]

    def get_coordinate(self) -> Any:
        return self._coordinate


def test_several_dimensions_make_one_rank() -> None:
    mesh = Mesh([1, 2, 3, 4])

    assert Partition.from_device_mesh(mesh) == Partition(rank=11, world_size=12)
    assert Partition.from_device_mesh(mesh, "dp_shard") == Partition(rank=3, world_size=4)
    assert Partition.from_device_mesh(mesh, ["tp", "pp"]) == Partition(rank=9, world_size=10)


def test_meshes_without_such_a_dimension_are_refused() -> None:
    nameless = Mesh([0, 0, 0, 0])
    nameless.mesh_dim_names = None

    with pytest.raises(ValueError, match=r"not \['cp'\]; expected the data-parallel ones"):
        Partition.from_device_mesh(Mesh([0, 0, 0, 0]), "cp")
    with pytest.raises(ValueError, match=r"dimensions \[\], none of them data-parallel"):
        Partition.from_device_mesh(nameless)
    with pytest.raises(ValueError, match="this process is not in it"):
        Partition.from_device_mesh(Mesh(None))
