"""The loader: what batches are, who gets which, and how it goes on where it was."""

import gc
import json
import logging
import math
import pickle
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

import daft_twinwds
from daft_twinwds.errors import DecodeError, ResumeError
from daft_twinwds.partition import Partition
from daft_twinwds.testing import assert_resumes_exactly, make_twin_dataset
from daft_twinwds.train import DecodeImage, Mix, PickCaption, Selection, TwinLoader
from daft_twinwds.train.permutation import permute

NUMBERS = 200
Step = list[int]


def int_of(content: bytes) -> int:
    return content[0]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    """Row n refers to one byte, which is n, and is of the kind n % 3."""
    path = tmp_path_factory.mktemp("numbers") / "numbers.bin"
    path.write_bytes(bytes(range(NUMBERS)))
    refs = [{"path": str(path), "position": number, "size": 1} for number in range(NUMBERS)]
    type_ = pa.struct({"path": pa.string(), "position": pa.int64(), "size": pa.int64()})
    table = pa.table(
        {
            "__key__": [str(number) for number in range(NUMBERS)],
            "number": pa.array(refs, type_),
            "kind": [number % 3 for number in range(NUMBERS)],
        }
    )
    return Selection(table, {"number": "unknown"})


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    root = make_twin_dataset(
        tmp_path_factory.mktemp("twins"), num_shards=2, samples_per_shard=7, image_size=(64, 48)
    )
    return Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _every_thread_ends() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 20
    while threads := decode_threads():
        assert time.monotonic() < deadline, f"still there: {threads}"
        time.sleep(0.005)


def decode_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("daft-twinwds-decode")]


def first(selection: Selection, rows: int) -> Selection:
    return Selection(selection.table.slice(0, rows), selection.media)


def loader_of(
    data: Any, batch_size: int = 2, rank: int = 0, world_size: int = 1, **how: Any
) -> Any:
    return TwinLoader(
        data,
        batch_size=batch_size,
        **{
            "decode": {"number": int_of},
            "num_threads": 1,
            "partition": Partition(rank=rank, world_size=world_size),
            **how,
        },
    )


def run(
    data: Any,
    batch_size: int,
    world_size: int,
    *,
    state: Any = None,
    steps: int | None = None,
    **how: Any,
) -> tuple[list[Step], Any]:
    """Run all ranks; return what each step read in the order of the global batch, and the state."""
    shares, states = [], []
    for rank in range(world_size):
        loader = loader_of(data, batch_size, rank, world_size, **how)
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        share = []
        for batch in islice(iter(loader), steps):
            pads = batch.get("__pad__", torch.zeros(len(batch["number"]), dtype=torch.bool))
            share.append([-1 if pad else n for n, pad in zip(batch["number"], pads, strict=True)])
        shares.append(share)
        states.append(loader.state_dict())
    assert len({len(share) for share in shares}) == 1, "all ranks make the same number of steps"
    assert all(saved == states[0] for saved in states), "the state is the same on all ranks"
    together = [
        list(chain.from_iterable(zip(*parts, strict=True))) for parts in zip(*shares, strict=True)
    ]
    return together, states[0]


def divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


@settings(max_examples=40)
@given(
    rows=st.integers(1, 40),
    world_size=st.integers(1, 4),
    batch_size=st.integers(1, 4),
    remainder=st.sampled_from(["drop", "wrap", "pad"]),
    bucket_by=st.sampled_from([None, "kind"]),
    seed=st.integers(0, 3),
)
def test_ranks_share_an_epoch_in_equal_steps_of_one_bucket_each(
    numbers: Selection,
    rows: int,
    world_size: int,
    batch_size: int,
    remainder: Any,
    bucket_by: str | None,
    seed: int,
) -> None:
    whole = world_size * batch_size
    sizes = [rows] if bucket_by is None else [len(range(kind, rows, 3)) for kind in range(3)]
    full = sum(size // whole for size in sizes)
    how: dict[str, Any] = {"remainder": remainder, "bucket_by": bucket_by, "seed": seed}
    if remainder == "drop" and not full:
        with pytest.raises(ValueError, match="not one global batch of"):
            loader_of(first(numbers, rows), batch_size, 0, world_size, **how)
        return

    steps, _ = run(first(numbers, rows), batch_size, world_size, **how)

    read = Counter(chain.from_iterable(steps))
    assert all(len(step) == whole for step in steps)
    if bucket_by:
        assert all(len({number % 3 for number in step if number >= 0}) == 1 for step in steps)
    if remainder == "drop":
        assert len(steps) == full
        assert set(read.values()) == {1}
    else:
        assert set(read) - {-1} == set(range(rows))
        assert len(steps) == sum(math.ceil(size / whole) for size in sizes)
    if remainder == "pad":
        assert all(count == 1 for number, count in read.items() if number >= 0)


@settings(max_examples=40)
@given(data=st.data(), global_batch=st.sampled_from([1, 2, 4, 6, 12]), rows=st.integers(12, 60))
@pytest.mark.parametrize("kind", ["plain", "buckets", "mix-sample", "mix-batch", "concat"])
def test_any_number_of_ranks_goes_on_as_if_nothing_had_happened(
    numbers: Selection, kind: str, data: st.DataObject, global_batch: int, rows: int
) -> None:
    before, after = (data.draw(st.sampled_from(divisors(global_batch))) for _ in range(2))
    part, other = first(numbers, rows), first(numbers, 17)
    source: Any = part
    if kind.startswith("mix"):
        level: Any = kind.removeprefix("mix-")
        source = Mix({"a": (part, 0.7), "b": (other, 0.3)}, level=level, stop="all_exhausted")
    elif kind == "concat":
        source = [part, other, other]
    how: dict[str, Any] = {
        "epochs": 2,
        "seed": data.draw(st.integers(0, 3)),
        "remainder": data.draw(st.sampled_from(["wrap", "pad"])),
        "bucket_by": "kind" if kind == "buckets" else None,
    }
    expected, _ = run(source, global_batch, 1, **how)
    stop = data.draw(st.integers(0, len(expected) - 1))

    begun, state = run(source, global_batch // before, before, steps=stop, **how)
    rest, _ = run(source, global_batch // after, after, state=state, **how)

    assert begun + rest == expected


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="plain"),
        pytest.param({"epochs": 2, "shuffle": False}, id="two-epochs-in-order"),
        pytest.param({"epochs": None}, id="endless"),
        pytest.param({"bucket_by": "kind", "remainder": "pad"}, id="buckets-padded"),
        pytest.param({"num_threads": 3, "prefetch_batches": 0}, id="no-prefetching"),
        pytest.param({"num_threads": 2, "prefetch_batches": 5}, id="much-prefetching"),
    ],
)
def test_it_resumes_exactly(numbers: Selection, how: dict[str, Any]) -> None:
    assert_resumes_exactly(lambda: loader_of(first(numbers, 11), 3, **how), steps=8)


@pytest.mark.parametrize("level", ["sample", "batch"])
@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted", "endless"])
def test_mixes_resume_exactly(numbers: Selection, level: Any, stop: Any) -> None:
    mix = Mix({"a": (first(numbers, 7), 2), "b": (first(numbers, 5), 1)}, level=level, stop=stop)

    assert_resumes_exactly(lambda: loader_of(mix), steps=9)


def test_pictures_captions_and_transforms_resume_exactly(twins: Selection) -> None:
    def crop(pixels: Any, rng: np.random.Generator) -> Any:
        top, left = rng.integers(0, 16, 2)
        return pixels[top : top + 32, left : left + 32]

    def make() -> Any:
        return loader_of(
            twins,
            4,
            decode={"image": DecodeImage(), "caption": PickCaption()},
            transform={"image": crop},
            epochs=2,
        )

    batch = next(iter(make()))
    assert batch["image"].shape == (4, 3, 32, 32)
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert all(isinstance(text, str) for text in batch["caption"])
    assert_resumes_exactly(make, steps=6)


def test_batches_are_as_documented(twins: Selection) -> None:
    batch = next(iter(loader_of(twins, 4, decode=None)))

    assert list(batch) == ["__key__", "__url__", "image", "caption"]
    assert batch["image"].shape == (4, 3, 48, 64)
    assert batch["image"].dtype == torch.uint8
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert all(isinstance(caption, dict) for caption in batch["caption"])


def test_pictures_are_those_of_their_keys(twins: Selection) -> None:
    pictures = {}
    for row in twins.rows(range(len(twins))):
        ref = row["image"]
        data = Path(ref.path.removeprefix("file://")).read_bytes()[ref.position :][: ref.size]
        pictures[row["__key__"]] = torch.from_numpy(DecodeImage()(data)).permute(2, 0, 1)

    for batch in loader_of(twins, 2, decode=None):
        for key, picture in zip(batch["__key__"], batch["image"], strict=True):
            assert torch.equal(picture, pictures[key])


@pytest.mark.parametrize(
    ("dtype", "torch_dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_pictures_are_normalized_if_told(twins: Selection, dtype: Any, torch_dtype: Any) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    plain = next(iter(loader_of(twins, 2, decode=None)))["image"]

    made = next(iter(loader_of(twins, 2, decode=None, normalize=(mean, std), dtype=dtype)))["image"]

    view = (1, 3, 1, 1)
    expected = (plain / 255 - torch.tensor(mean).view(view)) / torch.tensor(std).view(view)
    assert made.dtype == torch_dtype
    assert made.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(made.float(), expected, rtol=1e-2, atol=1e-2)


def test_buckets_of_aspect_ratios_have_one_shape_each(tmp_path: Path) -> None:
    root = make_twin_dataset(
        tmp_path, num_shards=1, samples_per_shard=9, image_size=[(96, 54), (64, 64), (54, 96)]
    )
    wanted = {"16_9": (768, 1344), "1_1": (1024, 1024), "9_16": (1344, 768)}
    decode = {"image": DecodeImage(size="1024")}
    df = daft_twinwds.read_twin_webdataset(root)
    by_caption = Selection.from_dataframe(df)
    by_header = Selection.from_dataframe(df.select("__key__", "image"))

    for selection in (by_caption, by_header):
        loader = loader_of(selection, 3, decode=decode, bucket_by="aspect_ratio")
        shapes = Counter(tuple(batch["image"].shape[2:]) for batch in loader)
        assert shapes == Counter(wanted.values())


def test_folders_and_columns_tell_the_aspect_ratio_before_anything_is_read() -> None:
    type_ = pa.struct({"path": pa.string(), "position": pa.int64(), "size": pa.int64()})
    refs = pa.array([{"path": "/nowhere.tar", "position": 0, "size": 1}] * 4, type_)
    keys = ["a", "b", "c", "d"]
    urls = [f"/root/aspect_ratio_{name}/0.tar" for name in ("16_9", "21_9", "1_1", "1_1")]
    sides = {"image_width": [1000, 1000, 500, 500], "image_height": [500, 500, 500, 501]}

    for columns in ({"__url__": urls}, sides):
        table = pa.table({"__key__": keys, "image": refs, **columns})
        selection = Selection(table, {"image": "image"})
        loader = loader_of(selection, 2, decode={}, bucket_by="aspect_ratio")
        steps = sorted(sorted(batch["__key__"]) for batch in loader)
        assert steps == [["a", "b"], ["c", "d"]]


def test_an_epoch_follows_another_and_can_be_set(numbers: Selection) -> None:
    loader = loader_of(first(numbers, 12), 4)

    epochs = [[batch["number"] for batch in loader] for _ in range(3)]

    assert epochs[0] != epochs[1] != epochs[2]
    assert all(sorted(chain.from_iterable(epoch)) == list(range(12)) for epoch in epochs)
    assert loader.epoch == 3
    loader.set_epoch(1)
    assert [batch["number"] for batch in loader] == epochs[1]
    assert len(loader) == 3


def test_several_epochs_are_one_iteration(numbers: Selection) -> None:
    loader = loader_of(first(numbers, 10), 5, epochs=3)

    assert len(loader) == len(list(loader)) == 6
    assert loader.epoch == 3
    assert len(list(loader)) == 6


def test_endless_loaders_have_no_length(numbers: Selection) -> None:
    mix = Mix({"a": (first(numbers, 3), 1)}, stop="endless")

    for loader in (loader_of(first(numbers, 4), epochs=None), loader_of(mix)):
        with pytest.raises(TypeError, match="never ends"):
            len(loader)
        assert len(list(islice(iter(loader), 20))) == 20


def test_leaving_early_and_iterating_again_begins_the_epoch_again(numbers: Selection) -> None:
    loader = loader_of(first(numbers, 12), 2)
    whole = [batch["number"] for batch in loader_of(first(numbers, 12), 2)]

    for batch in loader:
        assert batch["number"] == whole[0]
        break

    assert [batch["number"] for batch in loader] == whole


def test_a_loaded_position_is_used_once(numbers: Selection) -> None:
    loader, other = (loader_of(first(numbers, 12), 3) for _ in range(2))
    next(iter(loader))

    other.load_state_dict(loader.state_dict())
    iter(other)
    lengths = [len(list(other)) for _ in range(2)]

    assert lengths == [3, 4]


def test_only_batches_that_were_handed_out_count(numbers: Selection) -> None:
    loader = loader_of(first(numbers, 40), 2, prefetch_batches=10)
    batches = iter(loader)
    states = [loader.state_dict()["step"]]

    for _ in range(3):
        next(batches)
        states.append(loader.state_dict()["step"])

    assert states == [0, 1, 2, 3]
    batches.close()


def test_the_state_is_small_and_plain(numbers: Selection) -> None:
    loader = loader_of(numbers, 2)
    batches = iter(loader)
    sizes = set()
    for _ in range(90):
        next(batches)
        sizes.add(len(json.dumps(loader.state_dict())))

    assert max(sizes) < 1024
    assert max(sizes) - min(sizes) <= 1, "one digit more"
    batches.close()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_distributed_checkpoints_hold_the_state(numbers: Selection, tmp_path: Path) -> None:
    loader, other = (loader_of(first(numbers, 12), 2) for _ in range(2))
    batches = iter(loader)
    next(batches)

    save({"loader": loader}, checkpoint_id=tmp_path, no_dist=True)
    load({"loader": other}, checkpoint_id=tmp_path, no_dist=True)

    assert other.state_dict() == loader.state_dict()
    assert [b["number"] for b in other] == [b["number"] for b in batches]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        pytest.param({"seed": 1}, "saved with seed 0, this loader has seed 1", id="seed"),
        pytest.param(
            {"shuffle": False},
            r"saved with the order \(shuffle=True, .*\), this loader has \(shuffle=False, ",
            id="shuffle",
        ),
        pytest.param(
            {"bucket_by": "kind"}, "bucket_by=None.*this loader has.*bucket_by=kind", id="buckets"
        ),
        pytest.param(
            {"batch_size": 3},
            "saved with batch_size=2 in global batches of 2 .* batch_size=3 .* of 3; .* "
            "pass batch_size=2, or resize='batch_size'",
            id="batch-size",
        ),
    ],
)
def test_states_of_other_runs_are_refused(
    numbers: Selection, how: dict[str, Any], message: str
) -> None:
    state = loader_of(first(numbers, 12)).state_dict()

    with pytest.raises(ResumeError, match=message):
        loader_of(first(numbers, 12), **how).load_state_dict(state)


def test_states_of_other_selections_are_refused_with_both_fingerprints(numbers: Selection) -> None:
    ours, theirs = first(numbers, 12), first(numbers, 13)

    with pytest.raises(ResumeError, match=f"{theirs.fingerprint}.*{ours.fingerprint}"):
        loader_of(ours).load_state_dict(loader_of(theirs).state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2; expected 1"),
        ({"step": -1}, "step must be at least 0, got -1"),
        ({"step": 7}, "step must be below 6"),
        ({"more": 1}, "found .*'more'.*; expected what TwinLoader.state_dict returned"),
    ],
)
def test_states_that_were_damaged_are_refused(
    numbers: Selection, change: dict[str, Any], message: str
) -> None:
    loader = loader_of(first(numbers, 12))

    with pytest.raises(ResumeError, match=message):
        loader.load_state_dict({**loader.state_dict(), **change})


def test_another_world_size_keeps_the_global_batch(
    numbers: Selection, caplog: pytest.LogCaptureFixture
) -> None:
    expected, _ = run(first(numbers, 24), 6, 1)
    _, state = run(first(numbers, 24), 3, 2, steps=1)

    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        rest, _ = run(first(numbers, 24), 3, 3, state=state)

    assert rest == expected[1:]
    assert "2 samples on each of 3 ranks, 6 together; saved with 3 on each" in caplog.text


def test_a_global_batch_that_the_ranks_cannot_share_is_refused(numbers: Selection) -> None:
    _, state = run(first(numbers, 24), 3, 2, steps=1)

    with pytest.raises(
        ResumeError, match=r"batches of 6 rows, which 4 ranks cannot .* world size of 1, 2, 3, 6;"
    ):
        loader_of(first(numbers, 24), 3, 0, 4).load_state_dict(state)


@pytest.mark.parametrize("kind", ["plain", "mix"])
def test_the_batch_size_may_stay_instead(numbers: Selection, kind: str) -> None:
    part = first(numbers, 28)
    data: Any = part if kind == "plain" else Mix({"a": (part, 1)})
    begun, state = run(data, 2, 2, steps=2)
    middle, state = run(data, 2, 3, state=state, steps=1, resize="batch_size")
    again, state = run(data, 2, 3, state=state, steps=1, resize="batch_size")
    rest, state = run(data, 2, 2, state=state, resize="batch_size")

    assert [len(step) for step in middle + again] == [6, 6]
    read = list(chain.from_iterable(begun + middle + again + rest))
    assert sorted(read) == list(range(28))
    assert (state["epoch"], state["step"]) == (1, 0)


def test_bad_samples_are_replaced_from_their_global_batch(numbers: Selection) -> None:
    def decode(content: bytes) -> int:
        if content[0] in (3, 4):
            raise ValueError("bad")
        return content[0]

    how: dict[str, Any] = {"decode": {"number": decode}, "on_error": "skip", "shuffle": False}
    steps, _ = run(first(numbers, 12), 2, 3, **how)
    loader = loader_of(first(numbers, 12), 6, **how)
    list(loader)
    report = loader.report()

    assert steps == [[0, 1, 2, 5, 5, 5], [6, 7, 8, 9, 10, 11]]
    assert report["skipped"] == {"DecodeError": 2}
    assert (report["rows"], report["repeated"]) == (12, 2)


def test_a_bad_sample_is_counted_once_and_read_once_on_each_rank(numbers: Selection) -> None:
    """Also where it would be the one to take another's place."""
    read: list[int] = []

    def decode(content: bytes) -> int:
        read.append(content[0])
        if content[0] in (0, 2, 3):
            raise ValueError("bad")
        return content[0]

    how: dict[str, Any] = {"decode": {"number": decode}, "on_error": "skip", "shuffle": False}
    loader = loader_of(first(numbers, 4), 4, **how)

    (batch,) = loader

    assert batch["number"] == [1, 1, 1, 1]
    report = loader.report()
    assert (report["skipped"], report["repeated"]) == ({"DecodeError": 3}, 3)
    assert Counter(read) == {0: 1, 1: 4, 2: 1, 3: 2}, "3 as itself and to fill in"
    ranks = [loader_of(first(numbers, 4), 2, rank, 2, **how) for rank in range(2)]
    batches = [batch["number"] for loader in ranks for batch in loader]
    assert batches == [[1, 1], [1, 1]]
    assert sum(loader.report()["skipped"]["DecodeError"] for loader in ranks) == 3


def test_a_global_batch_of_nothing_but_bad_samples_is_an_error(numbers: Selection) -> None:
    def decode(content: bytes) -> int:
        raise ValueError("bad")

    loader = loader_of(first(numbers, 4), 2, decode={"number": decode}, on_error="skip")

    with pytest.raises(DecodeError, match=r"not one row .*ValueError: bad.*; pass a larger batch"):
        next(iter(loader))


def test_bad_samples_raise_by_default(numbers: Selection) -> None:
    def decode(content: bytes) -> int:
        raise ValueError("bad")

    with pytest.raises(DecodeError, match="ValueError: bad"):
        next(iter(loader_of(first(numbers, 4), decode={"number": decode})))


def test_closing_ends_the_threads_at_once(numbers: Selection) -> None:
    loader = loader_of(numbers, num_threads=3)
    batches = iter(loader)
    next(batches)
    assert decode_threads()

    loader.close()

    assert not decode_threads()
    with pytest.raises(RuntimeError, match="this iteration was ended"):
        next(batches)
    loader.close()


def test_loaders_that_are_dropped_leave_no_thread(numbers: Selection) -> None:
    gc.disable()
    try:
        loader = loader_of(numbers)
        batches = iter(loader)
        next(batches)
        del batches, loader

        deadline = time.monotonic() + 20
        while decode_threads():
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        gc.enable()


def test_a_new_iteration_ends_the_one_before(numbers: Selection) -> None:
    loader = loader_of(first(numbers, 12))
    early = iter(loader)
    next(early)

    late = iter(loader)
    next(late)

    with pytest.raises(RuntimeError, match="another one of the loader began"):
        next(early)
    assert len(list(late)) == 5


def test_two_loaders_at_once_do_not_disturb_each_other(numbers: Selection) -> None:
    ours, theirs = (loader_of(first(numbers, 20)) for _ in range(2))

    pairs = [(a["number"], b["number"]) for a, b in zip(ours, theirs, strict=True)]

    assert len(pairs) == 10
    assert all(a == b for a, b in pairs)


def test_nothing_before_the_position_is_read(numbers: Selection) -> None:
    read: list[int] = []

    def decode(content: bytes) -> int:
        read.append(content[0])
        return content[0]

    loader = loader_of(numbers, decode={"number": decode}, prefetch_batches=0)
    loader.load_state_dict({**loader.state_dict(), "step": 90})

    batch = next(iter(loader))

    assert sorted(read) == sorted(batch["number"])


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": True}, TypeError, "batch_size must be an int"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"num_threads": 0}, ValueError, "num_threads must be at least 1"),
        ({"prefetch_batches": -1}, ValueError, "prefetch_batches must be at least 0"),
        ({"on_error": "ignore"}, ValueError, "on_error must be one of 'raise', 'skip'"),
        ({"remainder": "keep"}, ValueError, "remainder must be one of"),
        ({"resize": "both"}, ValueError, "resize must be one of"),
        ({"bucket_by": "colour"}, ValueError, "bucket_by='colour': there is no such column"),
        ({"bucket_by": "aspect_ratio"}, ValueError, "has no column of pictures"),
        ({"decode": {"kind": bytes}}, ValueError, "'kind' is no File column"),
        ({"decode": {"number": PickCaption()}}, ValueError, "'number' is no column of captions"),
        ({"transform": {"colour": int}}, ValueError, "'colour' is no column of the batches"),
        ({"transform": {"kind": 7}}, TypeError, r"transform\['kind'\] must be callable"),
        ({"normalize": ((0.5,), (0,))}, ValueError, "each std above 0"),
        ({"normalize": 0.5}, ValueError, r"normalize must be \(mean, std\)"),
        ({"normalize": ((0,), (1,)), "dtype": "int8"}, ValueError, "dtype must be"),
        ({"partition": Partition(num_workers=2)}, ValueError, "partition has 2 workers"),
        ({"batch_size": 201}, ValueError, "not one global batch of 201 rows"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    numbers: Selection, how: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        loader_of(numbers, **how)


def test_what_is_no_selection_is_refused(numbers: Selection) -> None:
    other = Selection(numbers.table.drop_columns(["kind"]), numbers.media)

    with pytest.raises(TypeError, match="data must be a Selection"):
        loader_of(numbers.table)
    with pytest.raises(TypeError, match=r"selections\[1\] must be a Selection"):
        loader_of([numbers, 7])
    with pytest.raises(ValueError, match=r"selections\[1\] has the columns"):
        loader_of([numbers, other])
    with pytest.raises(ValueError, match="at least one selection"):
        loader_of([])


def test_parts_that_are_listed_twice_come_twice(numbers: Selection) -> None:
    part, other = first(numbers, 4), Selection(numbers.table.slice(10, 4), numbers.media)

    steps, _ = run([part, other, part], 4, 1)

    assert Counter(chain.from_iterable(steps)) == Counter([*range(4), *range(4), *range(10, 14)])


def test_mixes_keep_to_their_weights(numbers: Selection) -> None:
    low, high = first(numbers, 100), Selection(numbers.table.slice(100, 100), numbers.media)
    mix = Mix({"low": (low, 0.75), "high": (high, 0.25)})

    steps, _ = run(mix, 8, 1)

    assert all(sum(number < 100 for number in step) == 6 for step in steps)
    assert repr(mix) == "Mix({low: 0.75, high: 0.25}, level='sample', stop='first_exhausted')"


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({}, ValueError, "at least one part"),
        ({"a": 7}, TypeError, "part 'a' must be"),
        ({"a": (None, 0)}, ValueError, r"weights\['a'\] must be positive"),
    ],
)
def test_mixes_that_cannot_be_are_refused(parts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Mix(parts)


def test_too_small_buckets_are_told(numbers: Selection, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        loader = loader_of(first(numbers, 7), 3, bucket_by="kind")

    assert "buckets [1, 2] have too few rows for a global batch of 3" in caplog.text
    report = loader.report()
    assert (report["dropped"], report["filled"], report["idle_buckets"]) == (4, 0, [1, 2])


def test_a_rank_computes_its_own_share_of_the_order_and_no_more(
    numbers: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []

    def counting(places: Any, *args: Any, **options: Any) -> Any:
        computed.append(places.size)
        return permute(places, *args, **options)

    monkeypatch.setattr("daft_twinwds.train.order.permute", counting)
    loader = TwinLoader(
        first(numbers, 24), batch_size=2, decode={}, partition=Partition(rank=1, world_size=3)
    )

    assert len(list(loader)) == 4
    assert sum(computed) == 8


def test_a_loader_stays_in_its_process(numbers: Selection) -> None:
    with pytest.raises(TypeError, match="send its selection there"):
        pickle.dumps(TwinLoader(numbers, batch_size=2))


def test_the_order_of_seed_0_never_changes(tmp_path: Path) -> None:
    """A release that reads in another order cannot go on where an older one was."""
    golden = Path(__file__).parent / "golden_keys.json"
    root = make_twin_dataset(tmp_path, num_shards=4, samples_per_shard=25, image_size=(16, 16))
    selection = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root, ["caption"]))

    keys = [batch["__key__"] for batch in TwinLoader(selection, batch_size=8, decode={})]

    assert list(chain.from_iterable(keys))[:64] == json.loads(golden.read_text())


@pytest.mark.parametrize("keep", [True, False])
def test_pictures_of_buckets_share_memory_only_when_dropped(twins: Selection, keep: bool) -> None:
    loader = loader_of(twins, 2, decode=None, epochs=6)
    kept: list[Any] = []
    addresses = set()
    for batch in loader:
        addresses.add(batch["image"].data_ptr())
        if keep:
            kept.append(batch)

    assert len(addresses) == len(loader) if keep else len(addresses) <= 4
