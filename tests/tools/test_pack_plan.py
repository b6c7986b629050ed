"""Samples are put in order and cut into shards by plain arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.tools.pack_plan import summary_of
from daft_twinwds.tools.pack_report import PackedLeaf
from daft_twinwds.tools.pack_samples import Files, Samples, groups, shuffled
from daft_twinwds.tools.pack_shard import ShardPlan

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
stems = st.lists(text, unique=True, max_size=30)
seeds = st.integers()


def samples_of(stems: list[str]) -> Samples:
    """Samples whose files tell by their suffixes and sizes whose they are."""
    sizes = np.array([len(stem) for stem in stems], np.int64)
    return Samples(stems=stems, files={"x": Files(folder="/x", suffixes=stems, sizes=sizes)})


def is_whole(samples: Samples) -> bool:
    """Whether each sample still has its own files."""
    files = samples.files["x"]
    stems = list(samples.stems)
    return files.suffixes == stems and files.sizes.tolist() == [len(stem) for stem in stems]


@given(
    sizes=st.lists(st.integers(0, 50), max_size=40),
    max_count=st.integers(1, 10),
    max_size=st.integers(1, 100),
)
def test_groups_are_as_full_as_they_may_be(sizes: list[int], max_count: int, max_size: int) -> None:
    cuts = list(groups(sizes, max_count=max_count, max_size=max_size))

    assert [place for cut in cuts for place in cut] == list(range(len(sizes)))
    for cut in cuts:
        assert 1 <= len(cut) <= max_count
        total = sum(sizes[place] for place in cut)
        assert total <= max_size or len(cut) == 1
        if cut.stop < len(sizes):
            assert len(cut) == max_count or total + sizes[cut.stop] > max_size


@given(stems=stems, seed=seeds)
def test_order_depends_on_stems_and_seed_alone(stems: list[str], seed: int) -> None:
    samples = samples_of(stems)

    order = shuffled(samples, seed)

    assert is_whole(order)
    assert sorted(order.stems) == sorted(stems)
    assert shuffled(samples_of(stems[::-1]), seed).stems == order.stems


@given(stems=stems, seed=seeds)
def test_sample_that_goes_moves_no_other_one(stems: list[str], seed: int) -> None:
    order = shuffled(samples_of(stems), seed)

    assert shuffled(samples_of(stems[1:]), seed).stems == [
        stem for stem in order.stems if stem not in stems[:1]
    ]


def shard(leaf: str, name: str) -> ShardPlan:
    return ShardPlan(
        leaf=leaf,
        name=name,
        keys=["a", "b"],
        files={"image": ["a.JPG", "b.v1.PNG"], "text": [None, "b.txt"]},
        sizes={"image": [700, 3], "text": [0, 600]},
    )


def test_members_are_keys_with_small_suffixes() -> None:
    plan = shard("", "part_000000/000000.tar")

    assert list(plan.members("image")) == [("a.jpg", "a.JPG", 700), ("b.png", "b.v1.PNG", 3)]
    assert list(plan.members("text")) == [("b.txt", "b.txt", 600)]


@pytest.mark.parametrize(
    ("leaf", "path"),
    [("", "image/part_000000/000000.tar"), ("x/y", "x/y/image/part_000000/000000.tar")],
)
def test_twins_lie_in_their_leaf(leaf: str, path: str) -> None:
    assert shard(leaf, "part_000000/000000.tar").tar("image") == path


def test_summary_adds_up_shards_samples_and_bytes() -> None:
    assert summary_of([shard("x", "0.tar"), shard("x", "1.tar"), shard("y", "0.tar")]) == (
        PackedLeaf(
            folder="x", num_shards=2, num_samples=4, num_bytes={"image": 1406, "text": 1200}
        ),
        PackedLeaf(folder="y", num_shards=1, num_samples=2, num_bytes={"image": 703, "text": 600}),
    )
