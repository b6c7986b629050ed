"""Buckets of selections: where the shape of a picture is known from, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import daft_twinwds
from daft_twinwds.errors import DecodeError
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import Selection
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
