"""Buckets of rows, and the classes that pictures fall into by their sides."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.train.buckets import (
    ASPECT_CLASSES,
    PACKED_CLASSES,
    PRESETS,
    Buckets,
    aspect_class,
    aspect_classes,
    class_of_path,
    largest_preset,
    target_size,
)

sides = st.integers(1, 30_000)


def rows_of(buckets: Buckets) -> dict[Any, list[int]]:
    return {
        label: buckets.rows_at(bucket, np.arange(buckets.sizes[bucket])).tolist()
        for bucket, label in enumerate(buckets.labels)
    }


def expected_rows(labels: list[Any]) -> dict[Any, list[int]]:
    return {
        label: [row for row, value in enumerate(labels) if value == label]
        for label in sorted(set(labels))
    }


@given(st.lists(st.integers(-3, 3)) | st.lists(st.sampled_from(["16_9", "1_1", "", "a/b"])))
def test_each_bucket_holds_the_rows_of_its_label_in_order(labels: list[Any]) -> None:
    buckets = Buckets.from_labels(labels)

    assert rows_of(buckets) == expected_rows(labels)
    assert buckets.num_rows == len(labels)
    assert len(buckets) == len(set(labels))


@given(
    names=st.lists(st.integers(-3, 3), min_size=1, max_size=300)
    | st.lists(st.sampled_from(["16_9", "1_1", "", "a/b", "a\0"]), min_size=1),
    data=st.data(),
)
def test_codes_make_the_buckets_of_their_labels(names: list[Any], data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(0, len(names) - 1), max_size=20))

    found = Buckets.from_codes(names, np.array(codes, np.int32))

    expected = Buckets.from_labels([names[code] for code in codes])
    assert found.labels == expected.labels
    assert found.sizes.tolist() == expected.sizes.tolist()
    assert found.rows is not None
    assert expected.rows is not None
    assert found.rows.tolist() == expected.rows.tolist()
    assert found.rows.dtype == found.sizes.dtype == np.int64


def test_of_codes_the_first_row_without_a_proper_label_is_named() -> None:
    with pytest.raises(TypeError, match="row 2: its bucket label is None; expected"):
        Buckets.from_codes(["unused", None, "a"], np.array([2, 2, 1, 1]))
    with pytest.raises(TypeError, match="row 3: its bucket label is 5; expected"):
        Buckets.from_codes(["a", "b", 5], np.array([1, 1, 0, 2]))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(np.array, id="typed-array"),
        pytest.param(lambda labels: np.array(labels, object), id="object-array"),
        pytest.param(iter, id="iterator"),
        pytest.param(tuple, id="tuple"),
    ],
)
@pytest.mark.parametrize("labels", [["b", "a", "b"], [7, 1, 7]], ids=["text", "integers"])
def test_labels_come_in_any_container(make: Callable[[Any], Any], labels: list[Any]) -> None:
    assert rows_of(Buckets.from_labels(make(labels))) == {labels[1]: [1], labels[0]: [0, 2]}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        pytest.param(["a", None], "row 1: its bucket label is None", id="missing"),
        pytest.param([1, 2, "a"], "row 2: its bucket label is 'a'", id="text-after-integers"),
        pytest.param(["a", 1], "row 1: its bucket label is 1", id="integer-after-text"),
        pytest.param([1.5], "row 0: its bucket label is 1.5", id="float"),
        pytest.param([True], "row 0: its bucket label is True", id="bool"),
        pytest.param(np.array([0.0]), "row 0: its bucket label is 0.0", id="float-array"),
    ],
)
def test_a_row_without_a_proper_label_is_named(labels: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"{message}; expected all labels to be text or all"):
        Buckets.from_labels(labels)


def test_one_bucket_of_all_rows_holds_no_index() -> None:
    buckets = Buckets.whole(10**12)

    assert buckets.rows is None
    assert buckets.num_rows == 10**12
    assert buckets.rows_at(0, np.array([5, 10**12 - 1])).tolist() == [5, 10**12 - 1]


@pytest.mark.parametrize(
    ("num_rows", "error"), [(-1, ValueError), (1.0, TypeError), (True, TypeError)]
)
def test_a_number_of_rows_that_is_none_is_refused(num_rows: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="num_rows must be"):
        Buckets.whole(num_rows)


def test_buckets_travel_to_other_processes() -> None:
    buckets = Buckets.from_labels(["x", "y", "x"])

    assert rows_of(pickle.loads(pickle.dumps(buckets))) == {"x": [0, 2], "y": [1]}


@pytest.mark.parametrize("name", PACKED_CLASSES)
def test_a_picture_of_exactly_a_ratio_is_of_its_class(name: str) -> None:
    width, height = (100 * int(side) for side in name.split("_"))

    assert aspect_class(width, height, classes=PACKED_CLASSES) == name


@given(width=sides, height=sides)
def test_the_class_is_the_nearest_by_logarithm(width: int, height: int) -> None:
    def distance(name: str) -> float:
        wide, tall = name.split("_")
        return abs(math.log(width / height * int(tall) / int(wide)))

    assert aspect_class(width, height) == min(ASPECT_CLASSES, key=distance)
    assert aspect_class(width, height, classes=PACKED_CLASSES) == min(PACKED_CLASSES, key=distance)


@given(width=sides, height=sides)
def test_a_picture_on_its_side_is_of_the_mirrored_class(width: int, height: int) -> None:
    wide, tall = aspect_class(width, height).split("_")

    assert aspect_class(height, width) == f"{tall}_{wide}"


@given(st.lists(st.tuples(sides, sides)))
def test_many_pictures_are_classed_as_one_by_one(pictures: list[tuple[int, int]]) -> None:
    widths, heights = np.array(pictures, np.int64).reshape(-1, 2).T

    classes = aspect_classes(widths, heights)

    assert classes.tolist() == [aspect_class(width, height) for width, height in pictures]


def test_only_the_packer_has_a_class_of_very_wide_pictures() -> None:
    assert aspect_class(3440, 1440) == "16_9"
    assert aspect_class(3440, 1440, classes=PACKED_CLASSES) == "21_9"


@pytest.mark.parametrize(
    ("width", "height", "message"),
    [
        (0, 5, r"widths\[0\]: a picture of 0 pixels"),
        (5, -1, r"heights\[0\]: a picture of -1 pixels"),
    ],
)
def test_a_picture_without_pixels_has_no_class(width: int, height: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aspect_class(width, height)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("aspect_ratio_16_9/image/part_000000/000000.tar", "16_9"),
        ("/data/x/aspect_ratio_1_1", "1_1"),
        ("s3://bucket/aspect_ratio_3_4/duration_0_5/image", "3_4"),
        ("aspect_ratio_4_3/old/aspect_ratio_3_4/image", "3_4"),
        ("root/my_aspect_ratio_16_9/image", None),
        ("root/aspect_ratio_16_9_old/image", None),
        ("image/part_000000/000000.tar", None),
        ("", None),
    ],
)
def test_the_class_is_read_from_the_folder(path: str, expected: str | None) -> None:
    assert class_of_path(path) == expected


def test_presets_hold_a_size_for_every_class() -> None:
    assert list(PRESETS) == ["1024", "2048", "3072", "3840", "4096"]
    assert all(list(sizes) == list(ASPECT_CLASSES) for sizes in PRESETS.values())


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ASPECT_CLASSES)
def test_presets_mirror_wide_and_tall(preset: str, name: str) -> None:
    wide, tall = name.split("_")

    width, height = PRESETS[preset][name]

    assert PRESETS[preset][f"{tall}_{wide}"] == (height, width)
    assert (width > height) == (int(wide) > int(tall))
    assert width % 16 == height % 16 == 0


@pytest.mark.parametrize(
    ("preset", "name", "expected"),
    [
        ("1024", "1_1", (1024, 1024)),
        ("1024", "16_9", (768, 1344)),
        ("1024", "3_4", (1152, 896)),
        ("2048", "4_3", (1728, 2304)),
        ("2048", "2_3", (2688, 1792)),
        ("3072", "3_2", (2496, 3776)),
        ("3840", "1_1", (3584, 3584)),
        ("3840", "9_16", (4096, 2176)),
        ("4096", "4_3", (3072, 4096)),
    ],
)
def test_target_sizes_are_height_then_width(
    preset: str, name: str, expected: tuple[int, int]
) -> None:
    assert target_size(preset, name) == expected


def test_unknown_presets_and_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="no size preset '512'; there are 1024, 2048, 3072"):
        target_size("512", "1_1")
    with pytest.raises(ValueError, match="no size for the aspect class '21_9'; there are 16_9"):
        target_size("1024", "21_9")


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        pytest.param(1023, 1023, None, id="too-small"),
        pytest.param(1024, 1024, "1024", id="just-enough"),
        pytest.param(2047, 2048, "1024", id="one-pixel-short"),
        pytest.param(3000, 2250, "2048", id="between"),
        pytest.param(3840, 2160, "2048", id="4k-television"),
        pytest.param(4096, 2304, "4096", id="wide"),
        pytest.param(8192, 8192, "4096", id="more-than-all"),
    ],
)
def test_the_largest_preset_that_a_picture_covers(
    width: int, height: int, expected: str | None
) -> None:
    assert largest_preset(width, height) == expected
