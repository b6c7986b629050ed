"""Twins are joined by key, never by place, and nothing is left out uncounted."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import AlignmentError, TarFormatError
from daft_twinwds.shards.align import Alignment, OnMissing, align
from daft_twinwds.shards.samples import BadKey, Samples, read_samples
from daft_twinwds.shards.storage import LocalFile
from daft_twinwds.testing import write_tar

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "alignment.json"

POLICIES = st.sampled_from(get_args(OnMissing))
KEYS = [f"id_{number}" for number in range(6)]
SUFFIXES = {"image": "jpg", "caption": "json", "mask": "png", "label": "cls"}

Twins = Mapping[str, Samples]


def samples_of(
    column: str, keys: Sequence[str], *, bad: Iterable[str] = (), is_damaged: bool = False
) -> Samples:
    """What a tar with these keys gives; its members stand 1000 bytes apart."""
    path = f"{column}/000000.tar"
    return Samples(
        path=path,
        keys=list(keys),
        names=[f"{key}.{SUFFIXES[column]}" for key in keys],
        positions=np.arange(len(keys), dtype=np.int64) * 1000,
        sizes=np.ones(len(keys), np.int64),
        bad=dict.fromkeys(bad, BadKey("duplicate key", "twice")),
        fault=TarFormatError(f"{path}: cut") if is_damaged else None,
    )


def twins_of(**keys: Sequence[str]) -> Twins:
    return {column: samples_of(column, own) for column, own in keys.items()}


def has_all(key: str, twins: Twins) -> bool:
    return all(key in samples.keys for samples in twins.values())


def in_order(twins: Twins) -> list[str]:
    """Good keys in the order of the first modality, then of the second, and so on."""
    bad = {key for samples in twins.values() for key in samples.bad}
    return [
        key
        for key in dict.fromkeys(key for samples in twins.values() for key in samples.keys)
        if key not in bad
    ]


def members_of(alignment: Alignment, twins: Twins) -> list[tuple[str | None, ...]]:
    """Per row, the names of its members; None where it has none."""
    return [
        tuple(
            None if alignment.rows[column][row] < 0 else samples.names[alignment.rows[column][row]]
            for column, samples in twins.items()
        )
        for row in range(len(alignment.keys))
    ]


@st.composite
def some_twins(draw: st.DrawFn, *, is_spoilt: bool = True) -> Twins:
    """Two to four modalities whose keys overlap somehow, in any order."""
    twins = {}
    for column in list(SUFFIXES)[: draw(st.integers(2, 4))]:
        places = st.lists(st.sampled_from(KEYS), unique=True)
        keys = draw(st.just(KEYS) | st.permutations(KEYS) | places)
        bad = draw(st.sets(st.sampled_from(KEYS), max_size=1)) if is_spoilt else set[str]()
        twins[column] = samples_of(
            column,
            [key for key in keys if key not in bad],
            bad=bad,
            is_damaged=is_spoilt and draw(st.booleans()),
        )
    return twins


RANKS = st.none() | st.lists(st.sampled_from([*KEYS, "id_7"]), unique=True).map(
    lambda keys: {key: rank for rank, key in enumerate(keys)}
)


@given(twins=some_twins(is_spoilt=False))
def test_skipping_gives_exactly_the_intersection(twins: Twins) -> None:
    alignment = align(twins, on_missing="skip")

    assert alignment.keys == [key for key in in_order(twins) if has_all(key, twins)]


@given(twins=some_twins(is_spoilt=False))
def test_nulls_give_exactly_the_union(twins: Twins) -> None:
    alignment = align(twins, on_missing="null")

    assert alignment.keys == in_order(twins)
    assert not alignment.dropped


@given(twins=some_twins(is_spoilt=False), wanted=RANKS)
def test_an_error_is_raised_exactly_if_twins_disagree_on_a_wanted_key(
    twins: Twins, wanted: Mapping[str, int] | None
) -> None:
    asked_for = [key for key in in_order(twins) if wanted is None or key in wanted]

    if all(has_all(key, twins) for key in asked_for):
        assert set(align(twins, on_missing="error", wanted=wanted).keys) == set(asked_for)
    else:
        with pytest.raises(AlignmentError, match="expected the same keys in all twins"):
            align(twins, on_missing="error", wanted=wanted)


@given(twins=some_twins(), on_missing=POLICIES, wanted=RANKS)
def test_each_key_becomes_one_row_or_is_counted_once(
    twins: Twins, on_missing: OnMissing, wanted: Mapping[str, int] | None
) -> None:
    try:
        alignment = align(twins, on_missing=on_missing, wanted=wanted)
    except AlignmentError:
        assert on_missing == "error"
        return

    union = {key for samples in twins.values() for key in [*samples.keys, *samples.bad]}
    assert len(set(alignment.keys)) == len(alignment.keys)
    assert len(alignment.keys) + sum(alignment.dropped.values()) == len(union)
    assert set(alignment.keys) <= union
    assert all(number > 0 for number in alignment.dropped.values())


@given(twins=some_twins(), on_missing=POLICIES, wanted=RANKS)
def test_a_row_holds_only_members_of_its_own_key(
    twins: Twins, on_missing: OnMissing, wanted: Mapping[str, int] | None
) -> None:
    try:
        alignment = align(twins, on_missing=on_missing, wanted=wanted)
    except AlignmentError:
        assert on_missing == "error"
        return

    assert alignment.rows.keys() == twins.keys()
    assert members_of(alignment, twins) == [
        tuple(
            f"{key}.{SUFFIXES[column]}" if key in samples.keys else None
            for column, samples in twins.items()
        )
        for key in alignment.keys
    ]


@given(twins=some_twins(), on_missing=POLICIES, wanted=RANKS)
def test_rows_come_in_the_order_of_the_first_modality_or_of_the_ranks(
    twins: Twins, on_missing: OnMissing, wanted: Mapping[str, int] | None
) -> None:
    try:
        alignment = align(twins, on_missing=on_missing, wanted=wanted)
    except AlignmentError:
        assert on_missing == "error"
        return

    expected = in_order(twins) if wanted is None else list(wanted)
    assert alignment.keys == [key for key in expected if key in set(alignment.keys)]


@given(twins=some_twins(), on_missing=POLICIES)
def test_what_one_twin_spoils_or_lost_becomes_no_row(twins: Twins, on_missing: OnMissing) -> None:
    damaged = {name: samples for name, samples in twins.items() if samples.fault is not None}
    sound = [key for key in in_order(twins) if has_all(key, damaged)]
    try:
        alignment = align(twins, on_missing=on_missing)
    except AlignmentError:
        assert on_missing == "error"
        assert not all(has_all(key, twins) for key in sound)
        return

    if on_missing == "null":
        assert alignment.keys == sound
    else:
        assert alignment.keys == [key for key in sound if has_all(key, twins)]


def test_twins_in_another_order_are_joined_by_key() -> None:
    twins = twins_of(image=KEYS, caption=KEYS[::-1])

    alignment = align(twins, on_missing="error")

    assert alignment.keys == KEYS
    assert alignment.rows["image"].tolist() == [0, 1, 2, 3, 4, 5]
    assert alignment.rows["caption"].tolist() == [5, 4, 3, 2, 1, 0]
    assert all(places.dtype == np.int64 for places in alignment.rows.values())


def test_one_modality_alone_is_aligned_with_itself() -> None:
    assert align(twins_of(image=KEYS), on_missing="error").keys == KEYS


def test_gaps_are_null_places() -> None:
    twins = twins_of(image=["id_0", "id_1"], caption=["id_2", "id_1"])

    alignment = align(twins, on_missing="null")

    assert alignment.keys == ["id_0", "id_1", "id_2"]
    assert alignment.rows["image"].tolist() == [0, 1, -1]
    assert alignment.rows["caption"].tolist() == [-1, 1, 0]


def test_a_modality_without_the_shard_is_all_null() -> None:
    twins = {"image": samples_of("image", KEYS), "caption": Samples.none("caption/000000.tar")}

    alignment = align(twins, on_missing="null")

    assert alignment.keys == KEYS
    assert set(alignment.rows["caption"].tolist()) == {-1}


def test_a_missing_member_is_refused_with_key_and_tar_and_member() -> None:
    twins = twins_of(image=KEYS[:5], caption=["id_0", "id_1", "id_3", "id_4"])

    with pytest.raises(
        AlignmentError,
        match=r"^caption/000000.tar \(caption\) lacks 1 of 5 keys: 'id_2' \(image has 'id_2.jpg'\); "
        r"expected the same keys in all twins; pack the missing members, or pass "
        r"on_missing='skip' .* or on_missing='null'",
    ):
        align(twins, on_missing="error")


def test_gaps_on_both_sides_are_refused_with_examples_of_each() -> None:
    keys = [f"id_{number}" for number in range(9)]
    twins = twins_of(image=keys[:5], caption=keys[4:])

    with pytest.raises(AlignmentError) as caught:
        align(twins, on_missing="error")

    gaps, _, _ = str(caught.value).partition("; expected")
    assert gaps == (
        "image/000000.tar (image) lacks 4 of 9 keys: 'id_5' (caption has 'id_5.json'), 'id_6' "
        "(caption has 'id_6.json'), 'id_7' (caption has 'id_7.json'), ...; "
        "caption/000000.tar (caption) lacks 4 of 9 keys: 'id_0' (image has 'id_0.jpg'), 'id_1' "
        "(image has 'id_1.jpg'), 'id_2' (image has 'id_2.jpg'), ..."
    )


def test_only_twins_with_gaps_are_named() -> None:
    twins = twins_of(image=KEYS, caption=KEYS, mask=KEYS[1:], label=KEYS)

    with pytest.raises(
        AlignmentError, match=r"^mask/000000.tar \(mask\) lacks 1 of 6 keys: 'id_0'"
    ):
        align(twins, on_missing="error")


def test_what_is_left_out_is_counted_by_reason() -> None:
    twins = {
        "image": samples_of("image", ["id_0", "id_1", "id_2", "id_3", "id_4"]),
        "caption": samples_of("caption", ["id_1", "id_2", "id_3", "id_5"], bad=["id_0"]),
        "mask": samples_of("mask", ["id_1", "id_3", "id_4", "id_5"], is_damaged=True),
    }

    alignment = align(twins, on_missing="skip", wanted={"id_4": 0, "id_2": 1, "id_1": 2, "id_5": 3})

    assert alignment.keys == ["id_1"]
    assert alignment.dropped == {
        "duplicate key": 1,  # id_0
        "key not in sample_keys": 1,  # id_3
        "key lost in a damaged tar": 1,  # id_2
        "key missing in a modality": 2,  # id_4, id_5
    }


def test_a_key_that_is_spoilt_in_one_twin_is_no_gap() -> None:
    twins = {
        "image": samples_of("image", ["id_0", "id_2"], bad=["id_1"]),
        "caption": samples_of("caption", ["id_0", "id_1", "id_2"]),
    }

    alignment = align(twins, on_missing="error")

    assert alignment.keys == ["id_0", "id_2"]
    assert alignment.rows["caption"].tolist() == [0, 2]
    assert alignment.dropped == {"duplicate key": 1}


def test_sample_keys_restrict_and_order_the_rows() -> None:
    twins = twins_of(image=KEYS, caption=KEYS[::-1])

    alignment = align(twins, on_missing="error", wanted={"id_4": 0, "elsewhere": 1, "id_1": 5})

    assert alignment.keys == ["id_4", "id_1"]
    assert alignment.rows["image"].tolist() == [4, 1]
    assert alignment.rows["caption"].tolist() == [1, 4]
    assert alignment.dropped == {"key not in sample_keys": 4}


def test_gaps_at_keys_that_are_not_wanted_do_no_harm() -> None:
    twins = twins_of(image=["id_0", "id_1"], caption=["id_1", "id_2"])

    alignment = align(twins, on_missing="error", wanted={"id_1": 0})

    assert alignment.keys == ["id_1"]


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    """What PiD's two alignment modes made of lists of keys."""
    if not GOLDEN.is_file():
        pytest.skip(f"the recorded outputs of PiD's alignment are not there: {GOLDEN}")
    cases: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
    return cases


def read_twins(folder: Path, case: Mapping[str, Sequence[str]]) -> Twins:
    """Twins of real tars with the keys of a recorded case; equal keys hold equal bytes."""
    twins = {}
    for column in ("image", "caption"):
        members = [(f"{key}.{SUFFIXES[column]}", key.encode()) for key in case[column]]
        with LocalFile(str(write_tar(folder / f"{column}.tar", members))) as file:
            twins[column] = read_samples(file, key_split="last", strict=False)
    return twins


def test_skipping_loses_no_sample_that_pid_finds(
    recorded: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert recorded
    for number, case in enumerate(recorded):
        twins = read_twins(tmp_path / str(number), case)
        ranks = {key: rank for rank, key in enumerate(dict.fromkeys(case["keys"]))}
        indexed = {key for key, *_ in case["indexed"]}

        alignment = align(twins, on_missing="skip")
        restricted = align(twins, on_missing="skip", wanted=ranks)

        intersection = [key for key in dict.fromkeys(case["image"]) if key in set(case["caption"])]
        assert alignment.keys == intersection, f"case {number}"
        assert indexed <= set(alignment.keys), f"case {number}"
        assert restricted.keys == [key for key in ranks if key in set(intersection)]
        assert indexed <= set(restricted.keys), f"case {number}"


def test_of_recorded_duplicates_with_the_same_bytes_one_stays(
    recorded: list[dict[str, Any]], tmp_path: Path
) -> None:
    doubled = [case for case in recorded if len(set(case["image"])) < len(case["image"])]

    assert doubled
    for number, case in enumerate(doubled):
        image = read_twins(tmp_path / str(number), case)["image"]

        assert image.keys == list(dict.fromkeys(case["image"]))
        assert image.notes == {
            "surplus copy of a member": len(case["image"]) - len(set(case["image"]))
        }
