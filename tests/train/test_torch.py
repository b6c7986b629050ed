"""The feed into PyTorch: what batches look like, who reads what, and what it costs."""

import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pyarrow as pa
import pytest
import torch
from daft import col
from torch.utils.data import DataLoader

import daft_twinwds
from daft_twinwds.errors import DecodeError
from daft_twinwds.partition import Partition
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.train import DecodeImage, Selection, to_torch_iter_dataset

PACKAGE = Path(daft_twinwds.__file__).parent.parent
KEYS = [f"id_{number}" for number in range(10)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_twin_dataset(
        tmp_path_factory.mktemp("twins"), num_shards=2, samples_per_shard=5, image_size=(64, 48)
    )


@pytest.fixture
def df(root: Path) -> daft.DataFrame:
    return daft_twinwds.read_twin_webdataset(root)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _every_thread_ends() -> Iterator[None]:
    yield
    wait_for_threads()


def decode_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("daft-twinwds-decode")]


def wait_for_threads() -> None:
    deadline = time.monotonic() + 20
    while threads := decode_threads():
        assert time.monotonic() < deadline, f"still there: {threads}"
        time.sleep(0.005)


def content_of(ref: Any) -> bytes:
    return Path(ref.path).read_bytes()[ref.position :][: ref.size]


def pictures_of(df: daft.DataFrame) -> torch.Tensor:
    """Decode all pictures, (rows, channels, height, width)."""
    selection = Selection.from_dataframe(df)
    contents = [content_of(row["image"]) for row in selection.rows(range(len(selection)))]
    return torch.from_numpy(np.stack(list(map(DecodeImage(), contents)))).permute(0, 3, 1, 2)


def keys_of(batches: Sequence[Any]) -> list[str]:
    return list(chain.from_iterable(batch["__key__"] for batch in batches))


def run_script(script: Path, *args: object) -> Any:
    """Run a script as its own program; return the JSON that it prints last."""
    done = subprocess.run(
        [sys.executable, script, *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_batches_are_as_documented(df: daft.DataFrame) -> None:
    batches = list(to_torch_iter_dataset(df, batch_size=4))

    assert keys_of(batches) == KEYS
    assert [tuple(batch["image"].shape) for batch in batches] == [
        (4, 3, 48, 64),
        (4, 3, 48, 64),
        (2, 3, 48, 64),
    ]
    assert {batch["image"].dtype for batch in batches} == {torch.uint8}
    assert torch.equal(torch.cat([batch["image"] for batch in batches]), pictures_of(df))
    assert list(batches[0]) == ["__key__", "__url__", "image", "caption"]
    assert batches[2]["caption"] == df.to_pydict()["caption"][8:]


def test_pictures_are_channels_last_without_a_copy(df: daft.DataFrame) -> None:
    batch = next(iter(to_torch_iter_dataset(df, batch_size=4)))

    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    hwc = batch["image"].permute(0, 2, 3, 1)
    assert hwc.is_contiguous()
    assert hwc.data_ptr() == batch["image"].data_ptr()


def test_the_caller_alone_decides_how_long_a_batch_lives(df: daft.DataFrame) -> None:
    batches = iter(to_torch_iter_dataset(df, batch_size=4))
    gc.disable()
    try:
        batch = next(batches)
        picture = weakref.ref(batch["image"])
        del batch

        assert picture() is None
    finally:
        gc.enable()


def test_without_a_batch_size_samples_come_one_by_one(df: daft.DataFrame) -> None:
    samples = list(to_torch_iter_dataset(df.with_column("number", daft.lit(7))))

    assert [sample["__key__"] for sample in samples] == KEYS
    assert torch.equal(torch.stack([sample["image"] for sample in samples]), pictures_of(df))
    assert samples[3]["caption"] == df.to_pydict()["caption"][3]
    assert samples[3]["number"].shape == ()
    assert samples[3]["number"] == 7


@pytest.mark.parametrize(
    ("values", "arrow_type", "dtype"),
    [
        ([1, -(2**63)], pa.int64(), torch.int64),
        ([1, 2], pa.int32(), torch.int32),
        ([1, 2], pa.int16(), torch.int16),
        ([1, 2], pa.int8(), torch.int8),
        ([1, 2**64 - 1], pa.uint64(), torch.uint64),
        ([1, 2**32 - 1], pa.uint32(), torch.uint32),
        ([1, 2**16 - 1], pa.uint16(), torch.uint16),
        ([1, 255], pa.uint8(), torch.uint8),
        ([0.5, float("inf")], pa.float64(), torch.float64),
        ([0.5, 1.5], pa.float32(), torch.float32),
        ([True, False], pa.bool_(), torch.bool),
    ],
    ids=str,
)
def test_numbers_become_tensors(
    values: list[Any], arrow_type: pa.DataType, dtype: torch.dtype
) -> None:
    table = pa.table({"__key__": ["a", "b"], "x": pa.array(values, arrow_type)})

    (batch,) = to_torch_iter_dataset(daft.from_arrow(table), batch_size=2)

    assert batch["x"].dtype == dtype
    assert batch["x"].tolist() == values


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1, None, 3], id="numbers-with-a-null"),
        pytest.param(["x", "y", "z"], id="texts"),
        pytest.param([[1], [], [2, 3]], id="lists"),
        pytest.param([{"a": 1}, {"a": 2}, {"a": 3}], id="structs"),
    ],
)
def test_all_else_becomes_lists(values: list[Any]) -> None:
    frame = daft.from_pydict({"__key__": ["a", "b", "c"], "x": values})

    batches = list(to_torch_iter_dataset(frame, batch_size=2))

    # A null anywhere makes lists of all batches: a column is one or the other throughout.
    assert [batch["x"] for batch in batches] == [values[:2], values[2:]]


def test_decoders_of_the_caller_give_lists(df: daft.DataFrame) -> None:
    def mean_of(data: bytes) -> torch.Tensor:
        return torch.from_numpy(DecodeImage()(data)).float().mean()

    (batch,) = to_torch_iter_dataset(df, decode={"image": mean_of}, batch_size=10)

    expected = pictures_of(df).float().mean(dim=(1, 2, 3))
    torch.testing.assert_close(torch.stack(batch["image"]), expected)


def test_pictures_are_resized_as_told(df: daft.DataFrame) -> None:
    decode = {"image": DecodeImage(size=(16, 24))}

    (batch,) = to_torch_iter_dataset(df, decode=decode, batch_size=10)

    assert batch["image"].shape == (10, 3, 16, 24)


def test_without_decoders_no_file_is_read(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "twins", num_shards=1, samples_per_shard=3)
    selection = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root))
    for tar in root.rglob("*.tar"):
        tar.unlink()

    (batch,) = to_torch_iter_dataset(selection, decode={}, batch_size=4)

    assert batch["__key__"] == KEYS[:3]
    assert list(batch) == ["__key__", "__url__", "caption"]


def test_a_selection_saves_running_the_query_again(df: daft.DataFrame) -> None:
    kept = df.where(col("caption")["prompt_short"].not_null())

    ours = list(to_torch_iter_dataset(Selection.from_dataframe(kept), batch_size=4))

    assert keys_of(ours) == KEYS[::2]
    assert keys_of(list(to_torch_iter_dataset(kept, batch_size=4))) == keys_of(ours)


def test_ranks_share_the_rows(df: daft.DataFrame) -> None:
    shares = [
        keys_of(list(to_torch_iter_dataset(df, decode={}, batch_size=2, partition=partition)))
        for partition in (Partition(rank=rank, world_size=3) for rank in range(3))
    ]

    assert sorted(chain.from_iterable(shares)) == KEYS
    assert [len(share) for share in shares] == [4, 3, 3]


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "workers", "batches"),
    [
        pytest.param(10, 2, 1, (2, 1), id="a-batch-more"),
        pytest.param(10, None, 1, (3, 2), id="a-sample-more"),
        pytest.param(10, 1, 2, (3, 2), id="over-the-workers-of-a-rank"),
        pytest.param(10, 3, 1, None, id="as-many-of-other-sizes"),
        pytest.param(8, 1, 1, None, id="as-many"),
    ],
)
def test_unequal_numbers_of_batches_are_told_by_the_first_rank(
    df: daft.DataFrame,
    caplog: pytest.LogCaptureFixture,
    num_rows: int,
    batch_size: int | None,
    workers: int,
    batches: tuple[int, int] | None,
) -> None:
    selection = Selection.from_dataframe(df.limit(num_rows))
    counts = [0] * 4
    for rank in range(4):
        for worker in range(workers):
            reader = Partition(rank=rank, world_size=4, worker=worker, num_workers=workers)
            data = to_torch_iter_dataset(
                selection, decode={}, batch_size=batch_size, partition=reader
            )
            counts[rank] += len(list(data))

    assert (max(counts), min(counts)) == (batches or (counts[0], counts[0]))
    told = [message for message in caplog.messages if "use TwinLoader" in message]
    if batches is None:
        assert told == []
    else:
        (message,) = told
        assert message.startswith(f"rank 0 gets {batches[0]} batches, rank 3 gets {batches[1]}:")


def test_few_rows_leave_no_reader_of_many_without_data(tmp_path: Path) -> None:
    """Ten samples in one shard, four ranks with two workers each: rows are split, not shards."""
    root = make_twin_dataset(tmp_path, num_shards=1, samples_per_shard=10)
    selection = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root))

    shares = [
        keys_of(list(to_torch_iter_dataset(selection, batch_size=1, partition=reader)))
        for reader in (
            Partition(rank=rank, world_size=4, worker=worker, num_workers=2)
            for rank in range(4)
            for worker in range(2)
        )
    ]

    assert {len(share) for share in shares} == {1, 2}
    assert sorted(chain.from_iterable(shares)) == KEYS


def test_the_rank_is_found_in_the_environment(
    df: daft.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    dataset = to_torch_iter_dataset(df, decode={}, batch_size=5)

    assert dataset.partition == Partition(rank=1, world_size=2)
    assert keys_of(list(dataset)) == KEYS[1::2]


@pytest.mark.parametrize("batch_size", [None, 5])
def test_a_data_loader_without_workers_adds_nothing(
    df: daft.DataFrame, batch_size: int | None
) -> None:
    """Batches come from the data set, or samples from it are stacked by the loader."""
    samples = df.select("__key__", "image", col("caption")["width"])
    dataset = to_torch_iter_dataset(samples, batch_size=batch_size)

    loader = DataLoader(dataset, batch_size=None if batch_size else 5)

    batches = list(loader)
    assert keys_of(batches) == KEYS
    assert [tuple(batch["image"].shape) for batch in batches] == [(5, 3, 48, 64)] * 2
    assert torch.equal(torch.cat([batch["image"] for batch in batches]), pictures_of(df))
    assert torch.equal(batches[0]["width"], torch.full((5,), 64))


def test_a_data_set_can_be_iterated_again(df: daft.DataFrame) -> None:
    dataset = to_torch_iter_dataset(df, batch_size=3)

    assert keys_of(list(dataset)) == keys_of(list(dataset)) == KEYS
    assert dataset.report()["rows"] == 20


def test_two_live_iterators_do_not_disturb_each_other(df: daft.DataFrame) -> None:
    dataset = to_torch_iter_dataset(df, batch_size=2)
    ours, theirs = iter(dataset), iter(dataset)

    first = next(ours)
    assert keys_of(list(theirs)) == KEYS
    assert keys_of([first, *ours]) == KEYS


def test_leaving_early_leaves_no_thread_behind(df: daft.DataFrame) -> None:
    dataset = to_torch_iter_dataset(df, batch_size=1)
    for batch in dataset:
        assert batch["__key__"] == ["id_0"]
        break

    wait_for_threads()
    assert keys_of(list(dataset)) == KEYS


def test_an_iterator_that_is_dropped_leaves_no_thread_behind(df: daft.DataFrame) -> None:
    batches = iter(to_torch_iter_dataset(df, batch_size=1))
    next(batches)
    assert decode_threads()

    del batches

    wait_for_threads()


def test_an_error_of_the_caller_leaves_no_thread_behind(df: daft.DataFrame) -> None:
    def train() -> None:
        for _ in to_torch_iter_dataset(df, batch_size=1):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        train()
    # The traceback holds on to the loop that failed, and that to the iterator.
    del caught

    wait_for_threads()


def test_a_data_set_travels_to_other_processes(df: daft.DataFrame) -> None:
    dataset = to_torch_iter_dataset(df, batch_size=4)
    list(dataset)

    copy = pickle.loads(pickle.dumps(dataset))

    assert keys_of(list(copy)) == KEYS


def test_bad_pictures_are_an_error_that_names_them(damaged: Path) -> None:
    df = daft_twinwds.read_twin_webdataset(damaged)

    with pytest.raises(
        DecodeError, match=r"000000\.tar: 'id_3' \(image, byte \d+\): this is an HTML page"
    ):
        list(to_torch_iter_dataset(df, batch_size=4))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Ten pictures, of which id_3 and id_6 are none."""
    root = make_twin_dataset(tmp_path / "good", num_shards=1, samples_per_shard=10)
    rows = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root)).rows(range(10))
    bad = {3: b"<html>404 not found</html>", 6: b""}
    members = [
        (f"id_{number}.jpg", bad.get(number, content_of(row["image"])))
        for number, row in enumerate(rows)
    ]
    write_tar(tmp_path / "bad" / "image" / "000000.tar", members)
    return tmp_path / "bad"


def test_bad_pictures_are_skipped_and_counted(damaged: Path) -> None:
    df = daft_twinwds.read_twin_webdataset(damaged)
    dataset = to_torch_iter_dataset(df, batch_size=3, on_error="skip")

    batches = list(dataset)

    assert [len(batch["__key__"]) for batch in batches] == [3, 3, 2]
    assert [len(batch["image"]) for batch in batches] == [3, 3, 2]
    assert sorted(keys_of(batches)) == [key for key in KEYS if key not in ("id_3", "id_6")]
    report = dataset.report()
    assert (report["rows"], report["skipped"]) == (8, {"DecodeError": 2})
    assert report["bytes"] > 0


def test_skipping_works_sample_by_sample(damaged: Path) -> None:
    df = daft_twinwds.read_twin_webdataset(damaged)

    samples = list(to_torch_iter_dataset(df, on_error="skip"))

    assert sorted(sample["__key__"] for sample in samples) == [
        key for key in KEYS if key not in ("id_3", "id_6")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be None or at least 1, got 0"),
        ({"num_threads": 0}, "num_threads must be None or at least 1, got 0"),
        ({"prefetch_batches": -1}, "prefetch_batches must be at least 0, got -1"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip', got 'ignore'"),
        ({"decode": {"caption": bytes}}, "decode: 'caption' is no File column"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_that_cannot_be_are_refused(
    df: daft.DataFrame, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        to_torch_iter_dataset(df, **arguments)


def test_dafts_own_data_set_takes_our_frames(df: daft.DataFrame) -> None:
    rows = list(df.to_torch_iter_dataset())

    assert [row["__key__"] for row in rows] == KEYS
    with rows[3]["image"].open() as file:
        picture = torch.from_numpy(DecodeImage()(file.read())).permute(2, 0, 1)
    assert torch.equal(picture, pictures_of(df)[3])


LOADERS = """
import json
import sys

import daft
from torch.utils.data import DataLoader

from daft_twinwds.train import Selection, to_torch_iter_dataset


def collect(dataset, context):
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context)
    return [
        {
            "keys": batch["__key__"],
            "shape": list(batch["image"].shape),
            "channels_last": batch["image"].permute(0, 2, 3, 1).is_contiguous(),
            "sums": batch["image"].sum(dim=(1, 2, 3)).tolist(),
        }
        for batch in loader
    ]


def attempt(dataset, context):
    try:
        return collect(dataset, context)
    except RuntimeError as error:
        return str(error)


if __name__ == "__main__":
    selection = Selection.load(sys.argv[1])
    dataset = to_torch_iter_dataset(selection, batch_size=2)
    # Daft has not run in this process yet: a fork is harmless.
    results = {"fork": collect(dataset, "fork")}
    daft.from_pydict({"x": [1]}).where(daft.col("x") > 0).to_pydict()
    results["fork-after-daft"] = attempt(dataset, "fork")
    results |= {context: collect(dataset, context) for context in ("spawn", "forkserver")}
    print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def loaded(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What DataLoaders with two workers gave, by how the workers were started."""
    folder = tmp_path_factory.mktemp("loaders")
    df = daft_twinwds.read_twin_webdataset(root)
    Selection.from_dataframe(df).save(folder / "selection.parquet")
    (folder / "loaders.py").write_text(LOADERS)
    return run_script(folder / "loaders.py", folder / "selection.parquet")


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_data_loader_workers_share_the_rows(loaded: Any, root: Path, start: str) -> None:
    batches = loaded[start]

    # The loader takes a batch of each worker in turn; worker 0 has the even rows.
    evens, odds = KEYS[::2], KEYS[1::2]
    assert [batch["keys"] for batch in batches] == [
        evens[:2],
        odds[:2],
        evens[2:4],
        odds[2:4],
        evens[4:],
        odds[4:],
    ]
    assert {tuple(batch["shape"][1:]) for batch in batches} == {(3, 48, 64)}
    assert all(batch["channels_last"] for batch in batches)
    sums = {key: n for b in batches for key, n in zip(b["keys"], b["sums"], strict=True)}
    pictures = pictures_of(daft_twinwds.read_twin_webdataset(root))
    assert [sums[key] for key in KEYS] == pictures.sum(dim=(1, 2, 3)).tolist()


def test_workers_forked_after_daft_has_run_are_refused(loaded: Any) -> None:
    assert isinstance(loaded["fork-after-daft"], str), "it went on, and might have hung"
    assert "RuntimeError: this DataLoader worker was forked" in loaded["fork-after-daft"]
    assert "multiprocessing_context='forkserver' or 'spawn'" in loaded["fork-after-daft"]
    assert "num_workers=0" in loaded["fork-after-daft"]


SLOW_CONSUMER = """
import json
import sys
import time
from pathlib import Path

from daft_twinwds.train import DecodeImage, Selection, to_torch_iter_dataset

BATCH_SIZE, PREFETCH = 4, 2


def megabytes(name):
    (line,) = [s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(name)]
    return int(line.split()[1]) / 1024


class Counted(DecodeImage):
    decoded = []

    def into(self, data, out):
        super().into(data, out)
        self.decoded.append(out.nbytes)


if __name__ == "__main__":
    dataset = to_torch_iter_dataset(
        Selection.load(sys.argv[1]),
        decode={"image": Counted()},
        batch_size=BATCH_SIZE,
        prefetch_batches=PREFETCH,
        num_threads=2,
    )
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    base = megabytes("VmRSS")
    batches = iter(dataset)
    batch = next(batches)
    # All that may be made ahead is there soon; then the consumer sleeps on.
    deadline = time.monotonic() + 60
    while len(Counted.decoded) < BATCH_SIZE * (1 + PREFETCH) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)
    asleep = {"decoded": len(Counted.decoded), "peak": megabytes("VmHWM") - base}
    for batch in batches:
        pass
    print(json.dumps({
        "batch": BATCH_SIZE * max(Counted.decoded) / 2**20,
        "asleep": asleep,
        "decoded": len(Counted.decoded),
        "peak": megabytes("VmHWM") - base,
    }))
"""


def test_a_consumer_that_sleeps_holds_as_many_batches_as_documented(tmp_path: Path) -> None:
    root = make_twin_dataset(
        tmp_path / "4k", num_shards=1, samples_per_shard=1, image_size=(3840, 2160)
    )
    pictures = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root, ["image"]))
    rows = pictures.table.take([0] * 32)
    Selection(rows, pictures.media).save(tmp_path / "selection.parquet")
    (tmp_path / "consumer.py").write_text(SLOW_CONSUMER)

    found = run_script(tmp_path / "consumer.py", tmp_path / "selection.parquet")

    print(found)  # noqa: T201  # shown if an assertion fails
    batch = 4 * 3840 * 2160 * 3 / 2**20
    assert found["batch"] == pytest.approx(batch)
    # The consumer's batch and two more were made, and no other was begun.
    assert found["asleep"]["decoded"] == 12
    assert 2.9 * batch < found["asleep"]["peak"] < 4 * batch
    # While it hurries, one more is being waited for; the rest are bytes on their way.
    assert found["decoded"] == 32
    assert found["peak"] < 4 * batch + 64
