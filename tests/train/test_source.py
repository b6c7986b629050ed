"""Samples by number: a Grain pipeline of one's own, TorchTitan's protocol, and what is refused."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import absl.logging
import numpy as np
import pytest

import daft_twinwds
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import DecodeImage, PickCaption, Selection, TwinRandomAccessSource


@pytest.fixture(scope="module")
def selection(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    root = make_twin_dataset(
        tmp_path_factory.mktemp("twins"), num_shards=2, samples_per_shard=6, image_size=(64, 48)
    )
    return Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root))


@pytest.fixture(scope="module")
def grain() -> Any:
    """Grain says at its import that it found no JAX."""
    before = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.FATAL)
    try:
        import grain
    finally:
        absl.logging.set_verbosity(before)
    return grain


@runtime_checkable
class RandomAccessDataSource(Protocol):
    """As TorchTitan and Grain have it."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetIterationPolicy:
    """TorchTitan's, torchtitan/components/data/types.py."""

    seed: int
    shuffle: bool
    repeat: bool
    dp_rank: int
    dp_world_size: int
    streaming_shuffle_buffer_size: int


def test_samples_are_those_of_the_selection(selection: Selection) -> None:
    source = TwinRandomAccessSource(selection)

    assert isinstance(source, RandomAccessDataSource)
    assert len(source) == 12
    assert [source[number]["__key__"] for number in range(12)] == [f"id_{n}" for n in range(12)]
    assert source[-1]["__key__"] == source[np.int64(11)]["__key__"] == "id_11"
    assert list(source[0]) == ["__key__", "__url__", "image", "caption"]
    assert source[3]["image"].shape == (48, 64, 3)
    assert source[3]["image"].dtype == np.uint8


def test_decoders_and_transforms_are_those_of_the_loader(selection: Selection) -> None:
    def shift(pixels: Any, rng: np.random.Generator) -> Any:
        return np.roll(pixels, rng.integers(20), 0)

    source = TwinRandomAccessSource(
        selection,
        decode={"image": DecodeImage(size=(20, 30)), "caption": PickCaption()},
        transform={"image": shift},
        seed=3,
    )
    sample, again = source[5], source[5]

    assert sample["image"].shape == (20, 30, 3)
    assert isinstance(sample["caption"], str)
    np.testing.assert_array_equal(sample["image"], again["image"])
    assert list(TwinRandomAccessSource(selection, decode={})[0]) == [
        "__key__",
        "__url__",
        "caption",
    ]


def test_sources_can_be_pickled(selection: Selection) -> None:
    source = TwinRandomAccessSource(selection)

    twin = pickle.loads(pickle.dumps(source))

    np.testing.assert_array_equal(twin[7]["image"], source[7]["image"])


def test_threads_share_a_source(selection: Selection) -> None:
    source = TwinRandomAccessSource(selection)
    with ThreadPoolExecutor(8) as pool:
        samples = list(pool.map(lambda number: source[number % 12], range(96)))

    for number, sample in enumerate(samples):
        np.testing.assert_array_equal(sample["image"], source[number % 12]["image"])


@pytest.mark.parametrize("index", [12, -13])
def test_samples_that_are_not_there_are_index_errors(selection: Selection, index: int) -> None:
    with pytest.raises(IndexError, match=f"index {index} of a selection of 12 samples"):
        TwinRandomAccessSource(selection)[index]


@pytest.mark.parametrize("index", ["0", 0.0, True, None])
def test_indices_are_integers(selection: Selection, index: Any) -> None:
    with pytest.raises(TypeError, match="index must be an int"):
        TwinRandomAccessSource(selection)[index]


def test_a_grain_pipeline_of_ones_own_trains_and_resumes(selection: Selection, grain: Any) -> None:
    def make() -> Any:
        dataset = grain.MapDataset.source(TwinRandomAccessSource(selection))
        samples = dataset.shuffle(seed=0).map(lambda sample: sample["image"].mean())
        options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
        return iter(samples.batch(4).to_iter_dataset(options))

    batches = make()
    first = next(batches)
    state = batches.get_state()
    rest = list(batches)
    resumed = make()
    resumed.set_state(state)

    assert first.shape == (4,)
    assert len(rest) == 2
    np.testing.assert_array_equal(np.stack(list(resumed)), np.stack(rest))


def test_torchtitan_builds_it_late(selection: Selection, tmp_path: Path, grain: Any) -> None:
    """What its SingleDatasetConfig does with a source, torchtitan/components/data/dataset.py."""
    selection.save(tmp_path / "selection.parquet")
    config = TwinRandomAccessSource.Config(path=str(tmp_path / "selection.parquet"), decode={})
    policy = DatasetIterationPolicy(
        seed=5,
        shuffle=True,
        repeat=False,
        dp_rank=1,
        dp_world_size=2,
        streaming_shuffle_buffer_size=1,
    )

    source = config.build(dataset_iteration_policy=policy)
    dataset = grain.MapDataset.source(source).shuffle(seed=policy.seed)
    shares = [
        [sample["__key__"] for sample in dataset[rank :: policy.dp_world_size].to_iter_dataset()]
        for rank in range(policy.dp_world_size)
    ]

    assert isinstance(source, RandomAccessDataSource)
    assert sorted(shares[0] + shares[1]) == sorted(f"id_{number}" for number in range(12))
    assert len(shares[policy.dp_rank]) == 6
