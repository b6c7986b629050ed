"""Buckets of selections: where the shape of a picture is known from, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import daft_twinwds
from daft_twinwds.errors import DecodeError
from daft_twinwds.partition import Partition
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import Selection, TwinLoader
from daft_twinwds.train.labels import ASPECT_RATIO, Labeller

REF = pa.struct({"path": pa.string(), "position": pa.int64(), "size": pa.int64()})


def labeller(
    bucket_by: str | None = ASPECT_RATIO, *, picture: str | None = "image", skip_bad: bool = False
) -> Labeller:
    return Labeller(
        bucket_by=bucket_by,
        picture=picture,
        storage=StorageOptions(),
        num_threads=2,
        skip_bad=skip_bad,
    )


def selection_of(paths: Sequence[Path | None], **columns: Any) -> Selection:
    refs = [path and {"path": str(path), "position": 0, "size": None} for path in paths]
    keys = [f"id_{number}" for number in range(len(paths))]
    table = pa.table({"__key__": keys, "image": pa.array(refs, REF), **columns})
    return Selection(table, {"image": "image"})


def labels_of(labeller: Labeller, selection: Selection) -> list[str | int]:
    """Return each row's label."""
    buckets = labeller.buckets_of(selection)
    found: dict[int, str | int] = {}
    rows = range(len(selection)) if buckets.rows is None else buckets.rows.tolist()
    names: list[str | int] = list(buckets.labels)
    for bucket, label in enumerate(names):
        start = int(buckets.offsets[bucket])
        found |= dict.fromkeys(rows[start : start + int(buckets.sizes[bucket])], label)
    return [found[row] for row in range(len(selection))]


def test_without_buckets_all_rows_are_together() -> None:
    assert labels_of(labeller(None), selection_of([None, None])) == ["", ""]


@pytest.mark.parametrize("values", [["b", "a", "b"], [3, 1, 3]])
def test_a_column_may_say_it(values: list[Any]) -> None:
    assert labels_of(labeller("kind"), selection_of([None] * 3, kind=values)) == values


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.large_string(), ["b", "a", "", "a"]),
        (pa.string_view(), ["b", "a", "", "a"]),
        (pa.dictionary(pa.int8(), pa.string()), ["b", "a", "", "a"]),
        (pa.dictionary(pa.int8(), pa.int16()), [7, -1, 3, 7]),
        (pa.int8(), [7, -1, 3, 7]),
        (pa.uint64(), [7, 2**40, 3, 7]),
    ],
)
def test_labels_are_the_same_however_arrow_holds_them(type_: pa.DataType, values: Any) -> None:
    unused = 9 if isinstance(values[0], int) else "unused"
    column = pa.array([unused, *values], type_).slice(1)
    kind = pa.chunked_array([column.slice(0, 1), column.slice(1, 0), column.slice(1)])

    selection = selection_of([None] * 4, kind=kind)

    assert labels_of(labeller("kind"), selection) == values
    assert labeller("kind").buckets_of(selection).labels == tuple(sorted(set(values)))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        pytest.param(pa.array([1.5, 2.5]), "1.5", id="floats"),
        pytest.param(pa.array([True, False]), "True", id="bools"),
        pytest.param(pa.array([["a"], ["b"]]), r"\['a'\]", id="lists"),
        pytest.param(pa.array([{"a": 1}, {"a": 2}]), "{'a': 1}", id="structs"),
        pytest.param(pa.array([b"a", b"b"]), "b'a'", id="bytes"),
        pytest.param(pa.nulls(2), "None", id="nulls"),
        pytest.param(pa.array([None, 1.5]), "None", id="null-and-float"),
    ],
)
def test_columns_that_can_be_no_labels_are_refused(values: pa.Array, shown: str) -> None:
    with pytest.raises(TypeError, match=f"row 0: its bucket label is {shown}; expected all"):
        labeller("kind").buckets_of(selection_of([None] * 2, kind=values))


def test_a_selection_without_rows_has_labels_of_any_type() -> None:
    texts, numbers = (
        selection_of([None] * len(values), kind=pa.array(values, type_))
        for values, type_ in (([], pa.float64()), ([3, 1], pa.int64()))
    )

    buckets = labeller("kind").buckets_of_all([texts, numbers])

    assert buckets.labels == (1, 3)
    assert labeller("kind").buckets_of(texts).labels == ()


def test_selections_with_labels_of_two_types_are_refused_with_the_row() -> None:
    texts = selection_of([None] * 3, kind=["a", "b", "a"])
    numbers = selection_of([None] * 2, kind=[1, 2])

    with pytest.raises(TypeError, match="row 3: its bucket label is 1; expected all labels"):
        labeller("kind").buckets_of_all([texts, numbers])


def test_many_selections_have_the_buckets_of_one_with_all_rows() -> None:
    wide, tall = ({"image_width": [w, 50], "image_height": [h, 50]} for w, h in ((16, 9), (9, 16)))
    parts = [selection_of([None] * 2, **sides) for _ in range(15) for sides in (wide, tall)]
    all_rows = Selection(pa.concat_tables([part.table for part in parts]), parts[0].media)

    many, one = labeller().buckets_of_all(parts), labeller().buckets_of(all_rows)

    assert many.labels == one.labels == ("16_9", "1_1", "9_16")
    assert many.sizes.tolist() == one.sizes.tolist() == [15, 30, 15]
    assert many.rows is not None
    assert one.rows is not None
    assert many.rows.tolist() == one.rows.tolist()


def test_plans_of_buckets_never_change() -> None:
    """A release with other ones cannot go on where an older one was."""
    rows = range(60)
    columns = {
        "kind": ["10" if row % 5 == 0 else ["b", "ä", "a", "10"][row * row % 4] for row in rows],
        "__url__": [f"/r/aspect_ratio_{['16_9', '21_9', '3_4'][row % 3]}/x" for row in rows],
        "number": pa.array([row % 4 - 1 for row in rows], pa.int8()),
    }
    one = selection_of([Path("/x")] * 60, **columns)
    sides = selection_of(
        [Path("/x")] * 60,
        image_width=[96 + row for row in rows],
        image_height=[150 - row for row in rows],
    )
    cases: list[tuple[Any, str]] = [
        (one, "kind"),
        (one, ASPECT_RATIO),
        (one, "number"),
        (sides, ASPECT_RATIO),
        ([one, one], "kind"),
    ]

    plans = [
        TwinLoader(
            data, batch_size=2, decode={}, bucket_by=by, partition=Partition(), remainder="wrap"
        ).state_dict()["plan"]
        for data, by in cases
    ]

    assert [plan.rsplit(", ")[-1] for plan in plans] == [
        "c6fe2cce9180",
        "166ea67678fd",
        "dbac5d23638b",
        "e9cff51a271d",
        "2161f07e0d0b",
    ]


def test_labels_that_are_null_are_refused_with_their_row() -> None:
    with pytest.raises(TypeError, match="row 1: its bucket label is None"):
        labeller("kind").buckets_of(selection_of([None] * 2, kind=["a", None]))


def test_headers_are_read_where_nothing_else_knows(tmp_path: Path) -> None:
    root = make_twin_dataset(
        tmp_path, num_shards=2, samples_per_shard=3, image_size=[(96, 54), (54, 96)]
    )
    df = daft_twinwds.read_twin_webdataset(root).select("__key__", "image")

    labels = labels_of(labeller(), Selection.from_dataframe(df))

    assert labels == ["16_9", "9_16"] * 3


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"image_width": [96, None], "image_height": [54, 54]}, id="null-side"),
        pytest.param({"image_width": [96, 0], "image_height": [54, 54]}, id="no-pixels"),
        pytest.param({"image_width": ["96", "54"], "image_height": [54, 96]}, id="texts"),
        pytest.param({"__url__": ["/root/aspect_ratio_1_1/0", "/root/0"]}, id="no-folder"),
        pytest.param({"__url__": ["/root/aspect_ratio_1_1/0", None]}, id="null-url"),
        pytest.param({"caption": ["wide", "tall"]}, id="caption-of-text"),
        pytest.param({"caption": [{"width": 1, "height": None}] * 2}, id="caption-null"),
        pytest.param({"caption": [{"width": 1}] * 2}, id="caption-without-height"),
    ],
)
def test_what_is_known_of_some_rows_only_is_not_taken(
    tmp_path: Path, columns: dict[str, Any]
) -> None:
    root = make_twin_dataset(
        tmp_path, num_shards=1, samples_per_shard=2, image_size=[(96, 54), (54, 96)]
    )
    plain = Selection.from_dataframe(
        daft_twinwds.read_twin_webdataset(root).select("__key__", "image")
    )
    table = plain.table
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))

    assert labels_of(labeller(), Selection(table, plain.media)) == ["16_9", "9_16"]


def test_captions_are_taken_where_they_are_complete() -> None:
    captions = [{"width": 160, "height": 90}, {"width": 90, "height": 160}]

    labels = labels_of(labeller(), selection_of([Path("/gone")] * 2, caption=captions))

    assert labels == ["16_9", "9_16"]


def test_pictures_that_cannot_be_looked_at_are_errors_or_left_to_the_decoder(
    tmp_path: Path,
) -> None:
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    for selection in (selection_of([text]), selection_of([None])):
        with pytest.raises(DecodeError, match=r"'id_0' \(image\): no width and height"):
            labeller().buckets_of(selection)
        assert labels_of(labeller(skip_bad=True), selection) == ["1_1"]


def test_selections_without_pictures_have_no_aspect_ratio() -> None:
    with pytest.raises(ValueError, match="has no column of pictures"):
        labeller(picture=None).buckets_of(selection_of([None]))


def test_a_selection_that_is_listed_twice_has_its_rows_twice() -> None:
    selection = selection_of([None] * 3, kind=["b", "a", "b"])

    buckets = labeller("kind").buckets_of_all([selection, selection])

    assert buckets.labels == ("a", "b")
    assert buckets.sizes.tolist() == [2, 4]
    assert buckets.rows is not None
    assert buckets.rows.tolist() == [1, 4, 0, 2, 3, 5]
