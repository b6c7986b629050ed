"""Ray Data: references in blocks, and what becomes of them in tasks."""

import importlib
import json
import logging
import pickle
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
import ray.data
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import UserCodeException

import daft_twinwds
from daft_twinwds import errors
from daft_twinwds.errors import (
    DecodeError,
    MissingDependencyError,
    StorageError,
    TwinWebDatasetError,
)
from daft_twinwds.ray import CollateBatch, DecodeBatch
from daft_twinwds.shards.options import S3Options, StorageOptions
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import DecodeImage, PickCaption, Selection, TwinRandomAccessSource
from daft_twinwds.train.blocks import ROW, blocks_of

README = Path(__file__).parents[2] / "README.md"
# Those of plain Python are run by another test, without Ray.
BLOCK = re.compile(r"^```python ray\n(.*?)^```\n\n```text\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
SIZE = (32, 40)
SAMPLES = 24


def table_of(selection: Selection) -> pa.Table:
    """All rows as one batch, as a task gets them."""
    return pa.concat_tables(blocks_of(selection.table, list(selection.media), 5))


def with_path(table: pa.Table, row: int, path: str | None) -> pa.Table:
    """The same rows, one of which refers to another file, or to none."""
    place = table.column_names.index("image")
    refs = table.column("image").to_pylist()
    refs[row] = None if path is None else {**refs[row], "path": path}
    return table.set_column(place, "image", pa.array(refs, table.schema.field(place).type))


def crop(pixels: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    left = int(rng.integers(8))
    return np.ascontiguousarray(pixels[:, left : left + 16])


@given(rows_per_block=st.integers(1, 30))
def test_blocks_hold_all_rows_in_order(selection: Selection, rows_per_block: int) -> None:
    blocks = list(blocks_of(selection.table, list(selection.media), rows_per_block))

    rows = [row for block in blocks for row in block.to_pylist()]
    assert all(0 < len(block) <= rows_per_block for block in blocks)
    assert [row.pop(ROW) for row in rows] == list(range(SAMPLES))
    assert rows == selection.table.to_pylist()


def test_a_selection_without_rows_is_one_block_with_its_columns(selection: Selection) -> None:
    (block,) = blocks_of(selection.table.slice(0, 0), list(selection.media), 5)

    assert len(block) == 0
    assert block.column_names == [*selection.table.column_names, ROW]


def test_blocks_hold_plain_types_alone(selection: Selection) -> None:
    """Dictionaries inside of structs are not what all of Ray Data's steps can join."""
    table = table_of(selection)

    assert str(table.schema.field("image").type) == (
        "struct<path: string, position: int64, size: int64>"
    )


def test_rows_per_block_below_one_are_refused(selection: Selection) -> None:
    with pytest.raises(ValueError, match="rows_per_block must be at least 1, got 0"):
        selection.to_ray_dataset(rows_per_block=0)


def test_a_column_with_the_name_of_row_numbers_is_refused(selection: Selection) -> None:
    table = selection.table.append_column(ROW, pa.array(range(SAMPLES)))

    with pytest.raises(ValueError, match=r"has a column '__row__'.* give it another name"):
        list(blocks_of(table, list(selection.media), 5))


def test_decoding_gives_what_random_access_gives(selection: Selection) -> None:
    decode: dict[str, Any] = {"image": DecodeImage(size=SIZE), "caption": PickCaption()}
    transform = {"image": crop}
    source = TwinRandomAccessSource(selection, decode=decode, transform=transform, seed=3)

    # The order in which rows come is not that of the selection.
    batch = table_of(selection).take(list(range(SAMPLES))[::-1])
    decoded = DecodeBatch(decode, transform=transform, seed=3, num_threads=2)(batch)

    assert decoded.column_names == batch.column_names
    numbers = decoded.column(ROW).to_pylist()
    pictures = decoded.column("image").combine_chunks().to_numpy()
    captions = decoded.column("caption").to_pylist()
    assert numbers == list(range(SAMPLES))[::-1]
    for number, picture, caption in zip(numbers, pictures, captions, strict=True):
        sample = source[number]
        assert np.array_equal(picture, sample["image"])
        assert caption == sample["caption"]


def test_another_epoch_draws_other_captions(selection: Selection) -> None:
    batch = table_of(selection)
    first, second = (
        DecodeBatch({"caption": PickCaption()}, epoch=epoch)(batch).column("caption")
        for epoch in (0, 1)
    )

    assert first != second


def test_columns_that_are_not_named_stay_as_they_are(selection: Selection) -> None:
    batch = table_of(selection)

    decoded = DecodeBatch({"image": DecodeImage(size=SIZE)})(batch)

    names = ["__key__", "__url__", "caption", ROW]
    assert decoded.select(names) == batch.select(names)
    assert DecodeBatch({})(batch) == batch


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        pytest.param(bytes, pa.binary(), id="bytes"),
        pytest.param(len, pa.int64(), id="numbers"),
        pytest.param(lambda data: {"size": len(data)}, pa.struct({"size": pa.int64()}), id="dicts"),
    ],
)
def test_decoders_may_return_what_arrow_can_hold(
    selection: Selection, decoder: Callable[[bytes], Any], expected: pa.DataType
) -> None:
    decoded = DecodeBatch({"image": decoder})(table_of(selection))

    assert decoded.schema.field("image").type == expected


def test_what_arrow_cannot_hold_is_refused(selection: Selection) -> None:
    with pytest.raises(TypeError, match=r"column 'image': Arrow cannot hold .* expected NumPy"):
        DecodeBatch({"image": lambda data: object()})(table_of(selection))


def test_pictures_of_several_shapes_become_ragged_tensors(tmp_path: Path) -> None:
    sizes = [(32, 24), (24, 32)]
    root = make_twin_dataset(tmp_path / "root", samples_per_shard=2, image_size=sizes)
    mixed = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root))

    decoded = DecodeBatch({"image": DecodeImage()})(table_of(mixed))

    shapes = [picture.shape for picture in decoded.column("image").combine_chunks().to_numpy()]
    assert shapes == [(24, 32, 3), (32, 24, 3)] * 2


def test_a_batch_in_another_format_is_refused() -> None:
    with pytest.raises(TypeError, match=r'as dict; expected a pyarrow.Table; .*="pyarrow"'):
        DecodeBatch({})({"__key__": np.array(["a"])})


@pytest.mark.parametrize("name", ["__key__", ROW])
def test_rows_without_what_names_them_are_refused(selection: Selection, name: str) -> None:
    batch = table_of(selection).drop_columns([name])

    with pytest.raises(ValueError, match=f"not \\['{name}'\\]; .* after the files are decoded"):
        DecodeBatch({"image": DecodeImage(size=SIZE)})(batch)


def test_columns_that_hold_no_files_are_refused(selection: Selection) -> None:
    with pytest.raises(ValueError, match="'caption' is no File column; there are"):
        DecodeBatch({"caption": bytes})(table_of(selection))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_error": "ignore"}, "on_error must be one of"),
        ({"num_threads": 0}, "num_threads must be at least 1"),
        ({"epoch": -1}, "epoch must be at least 0"),
        ({"seed": 2**64}, "seed must be below"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecodeBatch({}, **arguments)


def test_a_file_that_is_gone_is_an_error_with_its_place(selection: Selection) -> None:
    batch = with_path(table_of(selection), 3, "/nowhere/0.tar")

    with pytest.raises(StorageError, match=r"/nowhere/0.tar: 'id_3' \(image, byte \d+\): "):
        DecodeBatch({"image": DecodeImage(size=SIZE)})(batch)


@pytest.mark.parametrize("size", [SIZE, None])
def test_bad_samples_are_left_out_and_logged(
    selection: Selection, caplog: pytest.LogCaptureFixture, size: tuple[int, int] | None
) -> None:
    batch = with_path(with_path(table_of(selection), 3, "/nowhere/0.tar"), 5, None)
    decode = DecodeBatch({"image": DecodeImage(size=size)}, num_threads=2, on_error="skip")

    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        decoded = decode(batch)

    whole = DecodeBatch({"image": DecodeImage(size=size)})(table_of(selection))
    kept = [row for row in range(SAMPLES) if row not in (3, 5)]
    assert decoded.column(ROW).to_pylist() == kept
    pictures, expected = (
        table.column("image").combine_chunks().to_numpy() for table in (decoded, whole)
    )
    assert np.array_equal(pictures, expected[kept])
    assert [record.message.split(":")[1].strip() for record in caplog.records] == [
        "StorageError",
        "DecodeError",
    ]


def test_a_batch_of_bad_samples_becomes_no_rows(selection: Selection) -> None:
    batch = with_path(table_of(selection).slice(0, 1), 0, None)

    decoded = DecodeBatch({"image": DecodeImage(size=SIZE)}, on_error="skip")(batch)

    assert len(decoded) == 0
    with pytest.raises(DecodeError, match="'id_0': image is null"):
        DecodeBatch({"image": DecodeImage(size=SIZE)})(batch)


def test_no_credentials_are_in_the_blocks(selection: Selection, cluster: str) -> None:
    url = "https://user:hunter2@host/0.tar?X-Amz-Signature=hunter3"
    place = selection.table.column_names.index("image")
    refs = [{**ref, "path": url} for ref in selection.table.column("image").to_pylist()]
    secret = pa.array(refs, selection.table.schema.field(place).type)
    unsafe = replace(selection, table=selection.table.set_column(place, "image", secret))

    rows = unsafe.to_ray_dataset().take_all()

    assert {row["image"]["path"] for row in rows} == {"https://host/0.tar"}
    assert "hunter" not in json.dumps(rows)


def test_a_decoder_travels_with_credentials_that_it_does_not_show() -> None:
    options = StorageOptions(s3=S3Options(key_id="id", access_key="hunter2"))

    decode = DecodeBatch({"image": DecodeImage(size=SIZE)}, io_config=options)

    assert "hunter2" not in repr(decode)
    assert pickle.loads(pickle.dumps(decode))._storage == options


def test_a_missing_package_is_no_bad_sample(selection: Selection) -> None:
    def decode(data: bytes) -> None:
        raise MissingDependencyError("pip install it")

    with pytest.raises(MissingDependencyError, match="pip install it"):
        DecodeBatch({"image": decode}, on_error="skip")(table_of(selection))


def test_without_ray_the_extra_is_named(
    selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("daft_twinwds.ray", "daft_twinwds.train.blocks"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray.data", None)

    with pytest.raises(MissingDependencyError, match=r"needs Ray Data.* 'daft-twinwds\[ray\]'"):
        selection.to_ray_dataset()
    with pytest.raises(MissingDependencyError, match=r"needs Ray Data.* 'daft-twinwds\[ray\]'"):
        importlib.import_module("daft_twinwds.ray")


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingDependencyError, match="CollateBatch needs torch"):
        CollateBatch()({})


def test_numbers_become_tensors_and_all_else_lists() -> None:
    pixels = np.zeros((2, 4, 5, 3), np.uint8)
    pixels.flags.writeable = False
    batch = {
        "__key__": np.array(["a", "b"]),
        "image": pixels,
        "score": np.array([0.5, 1.5]),
        "caption": np.array([{"prompt": "x"}, None], object),
    }

    collated = CollateBatch()(batch)

    assert collated["__key__"] == ["a", "b"]
    assert collated["image"].shape == (2, 4, 5, 3)
    assert collated["image"].dtype == torch.uint8
    assert collated["score"].tolist() == [0.5, 1.5]
    assert collated["caption"] == [{"prompt": "x"}, None]


@pytest.mark.slow
def test_batches_for_torch_hold_every_sample_once(cluster: str, selection: Selection) -> None:
    source = TwinRandomAccessSource(selection, decode={"image": DecodeImage(size=SIZE)})
    dataset = selection.to_ray_dataset(rows_per_block=7).map_batches(
        DecodeBatch({"image": DecodeImage(size=SIZE)}), batch_format="pyarrow", batch_size=4
    )

    plain = list(dataset.select_columns(["image", ROW]).iter_torch_batches(batch_size=10))
    full = list(dataset.iter_torch_batches(batch_size=10, collate_fn=CollateBatch()))

    for batches in (plain, full):
        assert sorted(row for batch in batches for row in batch[ROW].tolist()) == list(
            range(SAMPLES)
        )
    for batch in full:
        assert batch["image"].dtype == torch.uint8
        assert batch["image"].shape == (len(batch["__key__"]), *SIZE, 3)
        for key, number, pixels in zip(
            batch["__key__"], batch[ROW].tolist(), batch["image"], strict=True
        ):
            assert key == source[number]["__key__"]
            assert np.array_equal(pixels.numpy(), source[number]["image"])


@pytest.mark.slow
def test_a_streaming_split_shares_all_samples_out(cluster: str, selection: Selection) -> None:
    dataset = selection.to_ray_dataset(rows_per_block=4).map_batches(
        DecodeBatch({"image": DecodeImage(size=SIZE)}), batch_format="pyarrow"
    )
    shares: list[list[Any]] = [[], []]

    def consume(number: int, part: Any) -> None:
        shares[number] += part.iter_torch_batches(batch_size=4, collate_fn=CollateBatch())

    readers = [
        threading.Thread(target=consume, args=pair)
        for pair in enumerate(dataset.streaming_split(2, equal=True))
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)

    keys = [[key for batch in share for key in batch["__key__"]] for share in shares]
    assert [len(share) for share in keys] == [SAMPLES // 2] * 2
    assert Counter(keys[0] + keys[1]) == Counter(selection.table.column("__key__").to_pylist())
    for batch in shares[0] + shares[1]:
        assert batch["image"].shape == (len(batch["__key__"]), *SIZE, 3)


@pytest.mark.slow
def test_every_error_of_ours_arrives_from_a_task_with_its_type_and_text(cluster: str) -> None:
    text = "0.tar: 'id_3' (image, byte 5): found; expected; to do"

    @ray.remote
    def fail(kind: type[TwinWebDatasetError]) -> None:
        raise kind(text)

    for name in errors.__all__:
        kind = getattr(errors, name)
        with pytest.raises(kind, match=re.escape(text)) as caught:
            ray.get(fail.remote(kind))
        assert type(caught.value.cause) is kind
        assert str(caught.value.cause) == text


@pytest.mark.slow
def test_errors_arrive_from_ray_data_by_their_text(cluster: str, selection: Selection) -> None:
    batch = with_path(table_of(selection), 3, "/nowhere/0.tar")
    dataset = ray.data.from_arrow(batch).map_batches(
        DecodeBatch({"image": DecodeImage(size=SIZE)}), batch_format="pyarrow"
    )

    # Ray Data has an error of its own for what goes wrong in a function.
    with pytest.raises(UserCodeException, match=r"StorageError: /nowhere/0\.tar: 'id_3'"):
        dataset.take_all()


@pytest.mark.slow
def test_the_code_in_the_readme_prints_what_stands_below_it(
    cluster: str, selection: Selection, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = BLOCK.findall(README.read_text())

    for code, expected in blocks:
        exec(code, {"selection": selection, "DecodeImage": DecodeImage})
        assert capsys.readouterr().out == expected

    assert len(blocks) == 1
