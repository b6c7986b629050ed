"""Samples go into folders by what their pictures hold, and broken pictures nowhere."""

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import daft_twinwds
from daft_twinwds.errors import StorageError
from daft_twinwds.shards import local
from daft_twinwds.testing import encode_jpeg
from daft_twinwds.tools import pack_classify
from daft_twinwds.tools.pack import PackProgress, PackReport, pack

WriteFiles = Callable[[Mapping[str, bytes]], Path]


def pixels(width: int, height: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Noise, so that files are large."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def jpeg(width: int = 48, height: int = 32) -> bytes:
    return encode_jpeg(pixels(width, height))


def turned(format_: str, width: int, height: int, **options: Any) -> bytes:
    """A picture that is shown turned by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(pixels(width, height)).save(file, format_, exif=exif, **options)
    return file.getvalue()


def png(width: int = 48, height: int = 32) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(width, height)).save(file, "PNG")
    return file.getvalue()


def leaves_of(report: PackReport) -> dict[str, int]:
    return {leaf.folder: leaf.num_samples for leaf in report.leaves}


def test_pictures_are_divided_by_their_shape_as_shown(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    pictures = {
        "cinema.jpg": jpeg(210, 90),
        "wide.jpg": jpeg(160, 90),
        "square.png": png(50, 50),
        "turned.jpg": turned("JPEG", 160, 90),
    }
    source = write_files({f"image/{name}": data for name, data in pictures.items()})

    report = pack(source, tmp_path / "out")

    assert leaves_of(report) == {
        "aspect_ratio_16_9": 1,
        "aspect_ratio_1_1": 1,
        "aspect_ratio_21_9": 1,
        "aspect_ratio_9_16": 1,
    }
    assert (tmp_path / "out" / "aspect_ratio_9_16" / "wdinfo.json").exists()
    rows = daft_twinwds.read_twin_webdataset(tmp_path / "out", aspect_ratios=["9,16"]).to_pylist()
    assert [row["__key__"] for row in rows] == ["turned"]


@pytest.mark.parametrize(
    ("format_", "options"),
    [
        pytest.param("JPEG", {"quality": 95, "icc_profile": bytes(200_000)}, id="behind-a-profile"),
        pytest.param("PNG", {}, id="png"),
        pytest.param("WEBP", {"quality": 95}, id="exif-behind-the-pixels"),
        pytest.param("TIFF", {"compression": "tiff_deflate"}, id="header-behind-the-pixels"),
        pytest.param("AVIF", {"quality": 95}, id="avif"),
    ],
)
def test_large_pictures_of_all_formats_are_turned(
    tmp_path: Path, write_files: WriteFiles, format_: str, options: dict[str, Any]
) -> None:
    data = turned(format_, 480, 270, **options)
    assert len(data) > 1 << 16
    source = write_files({f"image/a.{format_}": data})

    assert leaves_of(pack(source, tmp_path / "out")) == {"aspect_ratio_9_16": 1}


def test_classes_are_read_from_the_heads_of_files(
    tmp_path: Path, write_files: WriteFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_files({"image/a.jpg": jpeg(1600, 900), "image/b.jpg": jpeg(900, 1600)})
    reads: list[dict[str, float]] = []
    monkeypatch.setattr(local, "record", lambda **counts: reads.append(counts))

    report = pack(source, tmp_path / "out")

    assert leaves_of(report) == {"aspect_ratio_16_9": 1, "aspect_ratio_9_16": 1}
    assert 0 < sum(read["num_bytes"] for read in reads) < report.num_bytes / 4


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("size", [0, 20, 300])
def test_a_picture_that_is_cut_after_it_was_listed_is_an_error(
    tmp_path: Path, write_files: WriteFiles, format_: str, size: int
) -> None:
    file = io.BytesIO()
    Image.fromarray(pixels(160, 90)).save(file, format_)
    content = {f"image/{number:03}.{format_}": file.getvalue() for number in range(100)}
    source = write_files(content)

    def cut(step: PackProgress) -> None:
        if step.stage == "inspect" and step.done < 100:
            for path in (source / "image").iterdir():
                os.truncate(path, size)

    # Its header may be whole still, or be left out; its bytes are missed at the latest.
    with pytest.raises(StorageError, match=r"fewer bytes than the \d+ that it had"):
        pack(source, tmp_path / "out", progress=cut)


def test_pictures_that_nobody_can_read_are_left_out(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({"image/a.jpg": jpeg(), "image/b.jpg": b"<html>"})

    report = pack(source, tmp_path / "out")

    assert report.num_samples == 1
    (item,) = report.left_out
    assert (item.key, item.modality, item.reason) == ("b", "image", "unreadable picture")
    assert "an HTML page" in item.detail


def test_check_finds_pictures_whose_header_alone_is_sound(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({"image/a.jpg": jpeg(), "image/b.jpg": jpeg()[:-200]})

    assert pack(source, tmp_path / "fast").num_samples == 2
    report = pack(source, tmp_path / "sure", check=True)

    assert report.num_samples == 1
    assert [(item.key, item.reason) for item in report.left_out] == [("b", "unreadable picture")]


def test_check_looks_at_pictures_of_all_modalities_without_dividing_them(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    images = {"image/a.jpg": jpeg(), "image/b.jpg": jpeg()}
    source = write_files({**images, "depth/a.png": png(), "depth/b.png": png()[:-20]})

    report = pack(source, tmp_path / "out", check=True, classify_aspect_ratio=False)

    assert leaves_of(report) == {"": 1}
    assert [(item.key, item.modality) for item in report.left_out] == [("b", "depth")]


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        pytest.param("caption/b.json", b'{"prompt":', "no readable JSON", id="cut"),
        pytest.param("caption/b.JSON", b'{"a": 1} {"b": 2}', "no readable JSON", id="two"),
        pytest.param("caption/b.json", b"\xff\xfe\x00", "no readable JSON", id="no-text"),
        pytest.param("caption/b.txt", b"caf\xe9", "utf-8", id="latin-1"),
        pytest.param("caption/b.cls", b"cat", "'cat'", id="no-integer"),
        pytest.param("caption/b.json", b'"' + b"x" * 50 + b'"', "52 bytes; a text", id="large"),
    ],
)
def test_check_finds_texts_that_cannot_be_read(
    tmp_path: Path,
    write_files: WriteFiles,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: bytes,
    detail: str,
) -> None:
    monkeypatch.setattr(pack_classify, "MAX_TEXT_BYTES", 50)
    source = write_files({"image/a.jpg": jpeg(), "image/b.jpg": jpeg(), name: content})
    write_files({"caption/a.json": b'\xef\xbb\xbf{"prompt": "x"}'})

    assert pack(source, tmp_path / "fast").num_samples == 2
    report = pack(source, tmp_path / "sure", check=True)

    assert report.num_samples == 1
    (item,) = report.left_out
    assert (item.key, item.modality, item.reason) == ("b", "caption", "unreadable text")
    assert detail in item.detail
