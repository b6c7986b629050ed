"""What a data set holds: counted by the tars and by the index alike, and never an error."""

import builtins
import io
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

import daft_twinwds
from daft_twinwds.cli import main
from daft_twinwds.errors import LayoutError, MissingDependencyError, StorageError
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.index import build_index
from daft_twinwds.tools.info import DatasetInfo, InfoProgress, info
from daft_twinwds.tools.info_classes import (
    ASPECTS,
    MEGAPIXELS,
    aspect_labels,
    length_ranges,
    megapixel_labels,
    preset_labels,
)
from daft_twinwds.tools.info_plot import write_info_png
from daft_twinwds.tools.info_table import info_table
from daft_twinwds.tools.info_units import bytes_text
from daft_twinwds.train.buckets import aspect_class, largest_preset

SHARD = "part_000000/000000.tar"


def picture(width: int, height: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (20, 90, 160)).save(file, kind)
    return file.getvalue()


def document(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def shown(found: DatasetInfo, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(info_table(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def without_index(found: DatasetInfo) -> DatasetInfo:
    return replace(found, has_index=False, num_indexed=0)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Two shards; keys missing here and there, an unreadable picture, texts of two kinds."""
    root = tmp_path / "odd"
    write_tar(
        root / "image" / SHARD,
        [
            ("a.png", picture(1600, 900)),
            ("b.JPG", picture(100, 100, "JPEG")),
            ("c.png", b"\x89PNG no picture"),
        ],
    )
    write_tar(
        root / "caption" / SHARD,
        [
            ("a.json", document(prompt="four", width=1)),
            ("b.json", document(prompt_short="x", width=2)),
            ("d.json", b"null"),
        ],
    )
    write_tar(root / "title" / SHARD, [("a.txt", "\u5c71\u3068\u6e56".encode()), ("b.txt", b"")])
    write_tar(root / "image/part_000000/000001.tar", [("e.png", picture(64, 128))])
    write_tar(root / "caption/part_000000/000001.tar", [("e.json", document(prompt="seven!!"))])
    write_tar(root / "title/part_000000/000001.tar", [])
    return root


def test_everything_is_counted(odd: Path) -> None:
    found = info(odd)

    assert (found.num_shards, found.num_samples, found.num_complete) == (2, 5, 2)
    assert [(leaf.root, leaf.num_samples) for leaf in found.leaves] == [(str(odd), 5)]
    image = found.modalities["image"]
    assert (image.num_members, image.num_missing) == (4, 1)
    assert image.suffixes == {"png": 3, "jpg": 1}
    assert image.tar_bytes == sum(tar.stat().st_size for tar in odd.glob("image/*/*.tar"))
    assert found.modalities["title"].num_bytes == len("\u5c71\u3068\u6e56".encode())
    assert found.modalities["title"].num_missing == 3
    pictures = found.pictures["image"]
    assert (pictures.num_pictures, pictures.num_unreadable) == (3, 1)
    assert (pictures.smallest, pictures.largest) == ((64, 128), (1600, 900))
    assert pictures.formats == {"PNG": 2, "JPEG": 1}
    assert {name: number for name, number in pictures.aspect_ratios.items() if number} == {
        "16:9": 1,
        "1:1": 1,
        "9:16": 1,
    }
    assert {name: number for name, number in pictures.megapixels.items() if number} == {
        "< 0.25 MP": 2,
        "1-2 MP": 1,
    }
    assert {name: number for name, number in pictures.presets.items() if number} == {
        "smaller": 2,
        "1024": 1,
    }
    assert (found.oddities, found.faults) == ({}, {})


def test_texts_are_measured_in_characters_and_told_from_absent_ones(odd: Path) -> None:
    texts = info(odd).texts

    assert list(texts) == ["caption.prompt", "caption.prompt_short", "title"]
    prompt = texts["caption.prompt"]
    assert (prompt.num_texts, prompt.num_absent) == (2, 2)
    assert (prompt.shortest, prompt.median, prompt.longest) == (4, 4, 7)
    assert prompt.lengths == {"4": 1, "5": 0, "6": 0, "7": 1}
    title = texts["title"]
    assert (title.num_texts, title.num_absent) == (2, 0)
    assert (title.shortest, title.longest) == (0, 3)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_the_median_is_a_length_in_the_middle(lengths: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        members = [(f"{place}.txt", b"x" * length) for place, length in enumerate(lengths)]
        write_tar(Path(folder, "title", SHARD), members)

        found = info(folder).texts["title"]

    assert found.median == statistics.median_low(lengths)
    assert (found.shortest, found.longest) == (min(lengths), max(lengths))


def test_columns_are_those_that_a_query_sees(odd: Path) -> None:
    df = daft_twinwds.read_twin_webdataset(odd, on_missing="null")

    assert info(odd).columns == {field.name: str(field.dtype) for field in df.schema()}


@pytest.mark.parametrize("text", [True, False])
def test_an_index_gives_the_same_counts(odd: Path, text: bool) -> None:
    expected = info(odd)
    build_index(odd, text=text)

    found = info(odd)

    assert (expected.index_state, found.index_state) == ("none", "fresh")
    assert found.num_indexed == 2
    assert without_index(found) == without_index(expected)


def test_with_an_index_no_tar_is_opened(odd: Path) -> None:
    build_index(odd)
    expected = info(odd)
    for tar in odd.glob("*/*/*.tar"):
        status = tar.stat()
        tar.write_bytes(bytes(status.st_size))
        # As if nothing had happened: whoever opens it finds no member.
        os.utime(tar, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert replace(info(odd), columns={}) == replace(expected, columns={})


def test_a_shard_that_changed_is_read_and_counted_as_out_of_date(odd: Path) -> None:
    build_index(odd)
    write_tar(odd / "title" / SHARD, [("a.txt", b"another one")])

    found = info(odd)

    assert found.index_state == "out of date"
    assert (found.num_indexed, found.texts["title"].longest) == (1, 11)


def test_a_damaged_index_is_no_index(odd: Path) -> None:
    expected = info(odd)
    build_index(odd)
    index = odd / ".twin_index/part_000000.parquet"
    data = bytearray(index.read_bytes())
    data[8:200] = bytes(192)
    index.write_bytes(data)

    found = info(odd)

    assert found.index_state == "out of date"
    assert without_index(found) == without_index(expected)


def test_a_damaged_tar_is_a_fault_of_its_shard_alone(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "twins", num_shards=3, samples_per_shard=2)
    tar = root / "image/part_000000/000001.tar"
    tar.write_bytes(tar.read_bytes()[:700])

    found = info(root)

    assert (found.num_shards, found.num_samples) == (3, 4)
    assert found.oddities == {"shards that could not be read": 1}
    assert list(found.faults) == [str(root / "part_000000/000001.tar")]
    assert "000001.tar" in shown(found)
    assert found.modalities["image"].tar_bytes == sum(
        one.stat().st_size for one in root.glob("image/*/*.tar")
    )


def test_a_shard_that_a_modality_lacks_is_counted_as_missing(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "twins", num_shards=2, samples_per_shard=2)
    (root / "image/part_000000/000001.tar").unlink()

    found = info(root)

    assert (found.num_samples, found.num_complete) == (4, 2)
    assert found.modalities["image"].num_missing == 2


def test_a_tar_that_cannot_be_read_is_a_fault_of_its_shard_alone(
    tmp_path: Path, range_server: Any
) -> None:
    root = make_twin_dataset(tmp_path / "twins", num_shards=20, samples_per_shard=1)
    url = range_server.serve(root)
    daft_twinwds.read_twin_webdataset(url)
    # Without those that tell what the columns are there is nothing to be told.
    needed = {request.path for request in range_server.requests}
    failing = [f"/image/part_000000/{shard:06d}.tar" for shard in range(20)]
    failing = [path for path in failing if path not in needed]
    for path in failing:
        range_server.fail_always(path, status=403)

    found = info(url)

    assert len(failing) > 5
    assert (found.num_shards, found.num_samples) == (20, 20 - len(failing))
    assert found.oddities == {"shards that could not be read": len(failing)}
    assert all("/image/" in why for why in found.faults.values())
    assert f"and {len(failing) - 5} more; --json has all" in shown(found)


def test_texts_that_make_no_column_leave_the_rest_to_be_told(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "twins", num_shards=2, samples_per_shard=2)
    write_tar(
        root / "caption/part_000000/000000.tar",
        [("id_0.json", b"[1]"), ("id_1.json", document(prompt="x"))],
    )

    found = info(root)

    assert (found.num_samples, found.num_complete, found.columns) == (4, 4, {})
    assert "declare the column's type" in found.faults[str(root)]
    assert found.pictures["image"].formats == {"JPEG": 4}
    assert "cannot be read as it is" in shown(found)


def test_texts_that_cannot_be_parsed_are_a_fault_of_their_shard_alone(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "twins", num_shards=2, samples_per_shard=2)
    write_tar(
        root / "caption/part_000000/000001.tar",
        [("id_2.json", b"{"), ("id_3.json", document(prompt="x"))],
    )

    found = info(root)

    assert found.oddities == {"shards whose texts could not be read": 1}
    assert "id_2.json" in found.faults[str(root / "part_000000/000001.tar")]
    assert found.num_samples == 4
    assert found.texts["caption.prompt"].num_texts == 2


def test_leaves_are_counted_each(tmp_path: Path) -> None:
    for name, shards in (("aspect_ratio_16_9", 1), ("aspect_ratio_1_1", 2)):
        make_twin_dataset(tmp_path / name, num_shards=shards, samples_per_shard=3)

    found = info(tmp_path)

    assert {Path(leaf.root).name: (leaf.num_shards, leaf.num_samples) for leaf in found.leaves} == {
        "aspect_ratio_16_9": (1, 3),
        "aspect_ratio_1_1": (2, 6),
    }
    assert "aspect_ratio_1_1: 6 samples in 2 shards" in shown(found)
    only = info(tmp_path, aspect_ratios=["1,1"])
    assert (only.num_shards, only.num_samples) == (2, 6)
    many = replace(found, leaves=found.leaves * 10)
    assert "and 8 more" in shown(many)


def test_pictures_alone_and_texts_alone_are_data_sets_too(tmp_path: Path) -> None:
    write_tar(tmp_path / "pictures/image" / SHARD, [("a.png", picture(8, 8))])
    write_tar(tmp_path / "texts/caption" / SHARD, [("a.txt", b"word")])

    pictures, texts = info(tmp_path / "pictures"), info(tmp_path / "texts")

    assert (pictures.num_complete, list(pictures.texts)) == (1, [])
    assert (texts.num_complete, list(texts.pictures)) == (1, [])
    for found in (pictures, texts):
        assert "samples" in shown(found)
        write_info_png(found, tmp_path / "plots.png")


def test_pictures_without_one_readable_header_are_shown_as_such(tmp_path: Path) -> None:
    write_tar(tmp_path / "image" / SHARD, [("a.png", b"no"), ("b.png", b"neither")])

    found = info(tmp_path)

    assert found.pictures["image"].smallest is None
    assert "headers that cannot be read: 2" in shown(found)
    write_info_png(found, tmp_path / "plots.png")


def test_what_is_no_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="not found"):
        info(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="workers must be at least 1"):
        info(tmp_path, workers=0)


def test_a_server_that_tells_no_versions_will_do(tmp_path: Path, range_server: Any) -> None:
    root = make_twin_dataset(tmp_path / "twins", num_shards=2, samples_per_shard=2)
    range_server.has_tags = False

    found = info(range_server.serve(root))

    assert (found.num_samples, found.faults) == (4, {})


def test_progress_tells_of_each_shard(odd: Path) -> None:
    seen: list[InfoProgress] = []

    info(odd, progress=seen.append)

    assert [(state.done, state.total) for state in seen] == [(1, 2), (2, 2)]


def test_names_from_the_data_move_no_cursor(tmp_path: Path) -> None:
    write_tar(tmp_path / "im\x1b[31mage" / SHARD, [("a.\x1b[2j", b"x"), ("b.[bold]", b"x")])

    text = shown(info(tmp_path))

    assert "\x1b" not in text
    assert "[bold] 1" in text


def test_the_table_tells_of_all_parts(odd: Path) -> None:
    text = shown(info(odd))

    for part in ("5, 3 of them without all twins", "png 3, jpg 1", "64 x 128 to 1600 x 900"):
        assert part in text
    for part in ("caption.prompt   2 texts; absent from 2; 4 to 7 characters", "File[Image]"):
        assert part in text


def test_plots_are_drawn_without_touching_what_others_see(odd: Path, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)

    write_info_png(replace(info(odd), root="$x_{$ \u5c71"), tmp_path / "plots.png")

    assert dict(matplotlib.rcParams) == before
    with Image.open(tmp_path / "plots.png") as file:
        pixels = np.asarray(file.convert("RGB"))
    assert pixels.shape[1] > 1500
    assert (pixels == (0x25, 0x63, 0xC9)).all(axis=2).sum() > 10_000


def test_plots_name_the_extra_that_they_need(
    odd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without_matplotlib(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments)

    found = info(odd)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_matplotlib)

    with pytest.raises(MissingDependencyError, match=r"pip install 'daft-twinwds\[plots\]'"):
        write_info_png(found, tmp_path / "plots.png")


def test_a_plot_that_cannot_be_written_is_an_error(odd: Path, tmp_path: Path) -> None:
    (tmp_path / "plots.png").mkdir()

    with pytest.raises(StorageError, match="cannot be written"):
        write_info_png(info(odd), tmp_path / "plots.png")


def test_command_prints_a_table_and_draws_plots(odd: Path, tmp_path: Path) -> None:
    png = tmp_path / "plots.png"

    done = CliRunner().invoke(main, ["info", str(odd), "--png", str(png)])

    assert done.exit_code == 0, done.output
    assert "caption.prompt_short" in done.output
    assert png.read_bytes().startswith(b"\x89PNG")


def test_command_prints_json(odd: Path) -> None:
    done = CliRunner().invoke(main, ["info", str(odd), "--json", "--workers", "1"])

    facts = json.loads(done.stdout)
    expected = json.loads(json.dumps(asdict(info([odd]))))
    assert facts.pop("storage")["bytes"] > 0
    assert facts == {**expected, "index_state": "none"}


sides = st.lists(st.tuples(st.integers(1, 6000), st.integers(1, 6000)), min_size=1, max_size=20)


@given(sides)
def test_classes_are_those_of_single_pictures(sizes: list[tuple[int, int]]) -> None:
    widths, heights = np.array(sizes, np.int64).T

    assert preset_labels(widths, heights).tolist() == [
        largest_preset(width, height) or "smaller" for width, height in sizes
    ]
    classes = ("21_9", "16_9", "3_2", "4_3", "1_1", "3_4", "2_3", "9_16")
    assert aspect_labels(widths, heights).tolist() == [
        aspect_class(width, height, classes=classes).replace("_", ":") for width, height in sizes
    ]
    assert set(aspect_labels(widths, heights)) <= set(ASPECTS)


@pytest.mark.parametrize(
    ("width", "height", "label"),
    [
        pytest.param(499, 500, "< 0.25 MP", id="below"),
        pytest.param(500, 500, "0.25-0.5 MP", id="border"),
        pytest.param(3840, 2160, "8-16 MP", id="4K"),
        pytest.param(8000, 8000, ">= 64 MP", id="open"),
        pytest.param(60000, 60000, ">= 64 MP", id="beyond 32 bits"),
    ],
)
def test_megapixels_lie_in_half_open_classes(width: int, height: int, label: str) -> None:
    assert label in MEGAPIXELS
    assert megapixel_labels(np.array([width]), np.array([height])).tolist() == [label]


def test_lengths_of_long_texts_are_exact(tmp_path: Path) -> None:
    lengths = [5000, 6000, 7000, 10000, 20000]
    texts = [(f"id_{n}.json", document(prompt="x" * n)) for n in lengths]
    write_tar(tmp_path / "caption" / "0.tar", texts)
    write_tar(tmp_path / "image" / "0.tar", [(f"id_{n}.png", picture(2, 2)) for n in lengths])

    prompt = info(tmp_path).texts["caption.prompt"]

    assert (prompt.shortest, prompt.median, prompt.longest) == (5000, 7000, 20000)
    assert prompt.lengths == {">= 4096": 5}


@given(st.dictionaries(st.integers(0, 5000), st.integers(1, 9), min_size=1))
def test_length_ranges_hold_every_length_once(lengths: dict[int, int]) -> None:
    cut = 4096

    ranges = length_ranges(lengths, cut=cut)

    closed = [label for label in ranges if not label.startswith(">=")]
    borders = [[int(side) for side in label.split("-")] for label in closed]
    assert len(closed) <= 8
    assert all(after[0] == before[-1] + 1 for before, after in pairwise(borders))
    for label, (low, *high) in zip(closed, borders, strict=True):
        inside = range(low, (high or [low])[0] + 1)
        assert ranges[label] == sum(
            number for length, number in lengths.items() if length < cut and length in inside
        )
    assert sum(ranges.values()) == sum(lengths.values())


def test_bytes_are_told_in_decimal_units() -> None:
    assert [bytes_text(size) for size in (0, 999, 1000, 2_150_000, 3 * 10**9, 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "2.1 MB",
        "3.0 GB",
        "1.0 TB",
    ]
