"""Headers of pictures that are not in memory: the same, from few bytes."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from daft_twinwds.errors import DecodeError, StorageError
from daft_twinwds.pictures.byte_ranges import FIRST, HEAD, as_file, iter_heads
from daft_twinwds.pictures.image_format import FORMATS
from daft_twinwds.pictures.image_header import read_header


class Remote:
    """Bytes that count what is asked for."""

    def __init__(self, data: bytes, *, fails_behind: int | None = None) -> None:
        self.data = data
        self.asked = 0
        self.fails_behind = fails_behind

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: slice, /) -> bytes:
        piece = self.data[index]
        self.asked += len(piece)
        if self.fails_behind is not None and (index.stop or len(self)) > self.fails_behind:
            raise StorageError("the network is down")
        return piece


def encoded(name: str, *, side: int = 400, exif: bytes = b"", **kw: Any) -> bytes:
    """A picture of noise, which does not compress, twice as wide as high."""
    noise = np.random.default_rng(0).integers(0, 256, (side, 2 * side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, name, **({"exif": exif} if exif else {}), **kw)
    return file.getvalue()


def exif(orientation: int, *, padding: int = 0) -> bytes:
    tiff = b"II*\0" + struct.pack("<IHHHIII", 8, 1, 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0" + tiff + bytes(padding)


def jpeg_with(*segments: tuple[int, bytes]) -> bytes:
    data = encoded("JPEG")
    inserted = b"".join(
        struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in segments
    )
    return data[:2] + inserted + data[2:]


def png_with_late_exif() -> bytes:
    data = encoded("PNG")
    body = exif(6)[6:]
    chunk = struct.pack(">I", len(body)) + b"eXIf" + body
    chunk += struct.pack(">I", zlib.crc32(chunk[4:]))
    comment = struct.pack(">I", HEAD * 2) + b"tEXt" + bytes(HEAD * 2)
    comment += struct.pack(">I", zlib.crc32(comment[4:]))
    return data[:-12] + chunk + comment + data[-12:]


def late_tiff() -> bytes:
    """A directory behind the pixels, as many writers have it."""
    data = encoded("TIFF")
    (directory,) = struct.unpack_from("<I", data, 4)
    assert directory < HEAD
    (entries,) = struct.unpack_from("<H", data, directory)
    moved = data[directory : directory + 2 + 12 * entries + 4]
    padding = bytes(-len(data) % 2)
    return data[:4] + struct.pack("<I", len(data) + len(padding)) + data[8:] + padding + moved


def gif_with_a_long_comment() -> bytes:
    data = encoded("GIF", side=60)
    frame = data.index(b"\x21\xf9") if b"\x21\xf9" in data else data.index(b"\x2c", 13 + 768)
    return data[:frame] + b"\x21\xfe" + (b"\xff" + bytes(255)) * 600 + b"\0" + data[frame:]


PICTURES = {
    **{name: encoded(name) for name in FORMATS if name != "GIF"},
    "GIF": encoded("GIF", side=200),
    "JPEG turned": jpeg_with((0xE1, exif(6))),
    "JPEG with a long head": jpeg_with(*[(0xE2, bytes(60000))] * 3, (0xE1, exif(8))),
    "JPEG whose EXIF block is cut by the first read": jpeg_with(
        (0xE2, bytes(HEAD - 40)), (0xE1, exif(6))
    ),
    "progressive JPEG": encoded("JPEG", progressive=True),
    "PNG turned": encoded("PNG", exif=exif(6)),
    "PNG turned at its end": png_with_late_exif(),
    "WebP turned at its end": encoded("WEBP", exif=exif(6), lossless=True),
    "AVIF turned": encoded("AVIF", exif=exif(6)),
    "TIFF with its directory at the end": late_tiff(),
    "GIF with a long comment": gif_with_a_long_comment(),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_header_read_by_range_is_that_of_the_whole_file(name: str) -> None:
    data = PICTURES[name]
    remote = Remote(data)

    header = read_header(remote)

    assert header == read_header(data)
    assert (header.orientation > 4) == ("turned" in name or "EXIF" in name or "long head" in name)
    assert remote.asked < 4 * len(data)


@pytest.mark.parametrize("name", ["JPEG", "progressive JPEG", "WEBP", "BMP", "PPM", "GIF"])
def test_most_headers_need_the_first_kilobytes_alone(name: str) -> None:
    remote = Remote(PICTURES[name] + bytes(10 * HEAD))

    read_header(remote)

    assert remote.asked <= 2 * HEAD + 200


@given(cut=st.integers(0, 5000), name=st.sampled_from(sorted(PICTURES)))
def test_a_cut_picture_is_refused_or_read_alike(cut: int, name: str) -> None:
    data = PICTURES[name][:cut]

    assert outcome(Remote(data)) == outcome(data)


def outcome(data: Any) -> Any:
    try:
        return read_header(data)
    except DecodeError as error:
        return str(error)


@pytest.mark.parametrize("name", PICTURES)
def test_a_failing_disk_is_not_taken_for_a_damaged_picture(name: str) -> None:
    remote = Remote(PICTURES[name], fails_behind=10)

    with pytest.raises(StorageError, match="the network is down"):
        read_header(remote)


def test_beginnings_grow_until_they_are_whole() -> None:
    sizes = [len(head) for head in iter_heads(Remote(bytes(10 * HEAD)))]

    assert sizes == [FIRST, HEAD, 8 * HEAD, 10 * HEAD]
    assert [len(head) for head in iter_heads(bytes(10 * HEAD))] == [10 * HEAD]


@given(data=st.binary(max_size=50), start=st.integers(0, 60), size=st.integers(0, 60))
def test_a_file_over_ranges_reads_as_one_in_memory(data: bytes, start: int, size: int) -> None:
    with as_file(Remote(data)) as file:
        assert file.seek(start) == start
        assert file.read(size) == data[start : start + size]
        assert file.seek(0, io.SEEK_END) == len(data)
        file.seek(-len(data), io.SEEK_CUR)
        assert file.read() == data
