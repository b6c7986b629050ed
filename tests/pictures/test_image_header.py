import io
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.image_format import FORMATS
from daft_twinwds.pictures.image_header import read_header
from daft_twinwds.train.images import DecodeImage


def encoded(name: str, *, height: int = 48, width: int = 64, mode: str = "RGB", **kw: Any) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(file, name, **kw)
    return file.getvalue()


def png_bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(64))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def jpeg_bomb(width: int, height: int) -> bytes:
    data = bytearray(encoded("JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.fixture
def no_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail whoever decodes pixels with Pillow."""
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.usefixtures("no_pixels")
def test_size_comes_from_the_header_alone(name: str) -> None:
    header = read_header(encoded(name, height=30, width=50))

    assert (header.format, header.height, header.width) == (name, 30, 50)
    assert header.stored == header.upright == (30, 50)


@pytest.mark.parametrize(
    ("options", "chunk"),
    [
        pytest.param({}, b"VP8 ", id="lossy"),
        pytest.param({"lossless": True}, b"VP8L", id="lossless"),
        pytest.param({"exif": Image.Exif().tobytes()}, b"VP8X", id="extended"),
    ],
)
def test_size_of_each_kind_of_webp(options: dict[str, Any], chunk: bytes) -> None:
    data = encoded("WEBP", height=31, width=57, **options)
    assert data[12:16] == chunk

    assert read_header(data).stored == (31, 57)


def test_gif_frame_beyond_its_screen_enlarges_it_as_in_pillow() -> None:
    data = bytearray(encoded("GIF", mode="P"))
    data[6:10] = struct.pack("<HH", 10, 90)

    assert Image.open(io.BytesIO(bytes(data))).size == (64, 90)
    assert DecodeImage().shape(bytes(data)) == (90, 64, 3)
    assert DecodeImage()(bytes(data)).shape == (90, 64, 3)


def test_gif_extensions_before_the_first_frame_are_passed() -> None:
    data = encoded("GIF", mode="P", comment=b"," * 700, duration=50, loop=0)

    assert DecodeImage()(data).shape == (48, 64, 3)


def test_gif_with_stray_bytes_between_its_blocks_is_read_as_in_pillow() -> None:
    data = encoded("GIF", mode="P")
    frame = data.index(b"," + struct.pack("<4H", 0, 0, 64, 48))

    stray = data[:frame] + b"\x55\x00" + data[frame:]

    np.testing.assert_array_equal(DecodeImage()(stray), DecodeImage()(data))


def test_gif_without_a_frame_is_refused() -> None:
    with pytest.raises(DecodeError, match="GIF of 14 bytes has a damaged header: no frame"):
        DecodeImage()(b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0, 0, 0) + b";")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.usefixtures("no_pixels")
def test_claim_above_the_limit_is_refused_before_pixels_are_decoded(name: str) -> None:
    decode = DecodeImage(max_pixels=64 * 48 - 1)
    data = encoded(name)

    with pytest.raises(DecodeError, match=rf"{name} claims 64 x 48 pixels .*max_pixels=3071"):
        decode(data)
    with pytest.raises(DecodeError, match="claims 64 x 48 pixels"):
        decode.shape(data)


@pytest.mark.parametrize("name", FORMATS)
def test_claim_at_the_limit_is_decoded(name: str) -> None:
    assert DecodeImage(max_pixels=64 * 48)(encoded(name)).shape == (48, 64, 3)


@pytest.mark.parametrize(
    "decode",
    [
        pytest.param(DecodeImage(), id="default"),
        pytest.param(DecodeImage(max_pixels=933_120_000), id="limit-of-pid"),
        pytest.param(DecodeImage(size=(64, 64), max_pixels=933_120_000), id="resized"),
    ],
)
@pytest.mark.parametrize("bomb", [png_bomb, jpeg_bomb])
def test_bomb_is_refused_without_a_large_allocation(bomb: Any, decode: DecodeImage) -> None:
    data = bomb(30000, 30000)

    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="claims 30000 x 30000 pixels"):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


def patched(data: bytes, before: bytes, after: bytes) -> bytes:
    assert data.count(before) == 1
    return data.replace(before, after)


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(png_bomb(8000, 8000), id="png"),
        pytest.param(jpeg_bomb(8000, 8000), id="jpeg"),
        pytest.param(
            patched(encoded("BMP"), struct.pack("<ii", 64, 48), struct.pack("<ii", 8000, 8000)),
            id="bmp",
        ),
        pytest.param(patched(encoded("PPM"), b"64 48", b"8000 8000"), id="ppm"),
        pytest.param(
            patched(
                encoded("GIF", mode="P"),
                b"," + struct.pack("<4H", 0, 0, 64, 48),
                b"," + struct.pack("<4H", 0, 0, 8000, 8000),
            ),
            id="gif",
        ),
        pytest.param(
            patched(
                encoded("TIFF", mode="L"),
                struct.pack("<HHII", 256, 4, 1, 64),
                struct.pack("<HHII", 256, 4, 1, 1_000_000),
            ),
            id="tiff",
        ),
    ],
)
@pytest.mark.usefixtures("no_pixels")
def test_claim_that_the_bytes_cannot_hold_is_refused(forged: bytes) -> None:
    with pytest.raises(DecodeError, match=r"in \d+ bytes; such a picture needs \d+ at the very"):
        DecodeImage()(forged)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_emptiest_honest_picture_is_not_taken_for_forged(name: str, mode: str) -> None:
    file = io.BytesIO()
    options = {"optimize": True} if name == "JPEG" else {}
    Image.new(mode, (3000, 2000)).save(file, name, **options)
    data = file.getvalue()

    assert 0 < read_header(data).least_bytes < len(data)
    assert DecodeImage()(data).shape == (2000, 3000, 3)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png_bomb(0, 7), id="png"),
        pytest.param(b"GIF89a" + struct.pack("<HHBBB", 0, 7, 0, 0, 0) + b"," + bytes(9), id="gif"),
    ],
)
def test_picture_without_pixels_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"claims 0 x 7 pixels .*expected at least 1 x 1"):
        DecodeImage()(data)


@pytest.mark.parametrize("name", FORMATS)
def test_file_cut_in_its_header_is_refused(name: str) -> None:
    data = encoded(name)

    for cut in (12, 16, 22):
        with pytest.raises(DecodeError, match=name):
            DecodeImage()(data[:cut])


@pytest.mark.parametrize("name", FORMATS)
def test_file_cut_in_its_pixels_is_refused(name: str) -> None:
    data = encoded(name)

    for kept in (0.5, 0.8, 0.95):
        with pytest.raises(DecodeError, match=name):
            DecodeImage()(data[: int(len(data) * kept)])


def test_extended_webp_cut_in_its_canvas_size_is_refused() -> None:
    data = encoded("WEBP", exif=Image.Exif().tobytes())

    with pytest.raises(DecodeError, match="cut inside the canvas size"):
        DecodeImage()(data[:26])


def test_webp_that_promises_exif_and_holds_none_is_upright() -> None:
    data = encoded("WEBP", exif=Image.Exif().tobytes()).replace(b"EXIF", b"NONE")
    assert data[20] & 0x08

    assert read_header(data).orientation == 1


def test_png_with_two_headers_is_refused() -> None:
    data, other = encoded("PNG"), encoded("PNG", height=10, width=20)
    twice = data[:33] + other[8:33] + data[33:]

    with pytest.raises(DecodeError, match=r"header states 64 x 48 pixels .*, its content 20 x 10"):
        DecodeImage()(twice)


def test_webp_that_states_no_size_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"WEBP .*first chunk is b'ALPH'"):
        DecodeImage()(b"RIFF\x20\0\0\0WEBPALPH" + bytes(20))


@pytest.mark.parametrize(
    ("data", "guess"),
    [(b"", "no bytes at all"), (b"<html>404", "an HTML page"), (bytes(16), "16 zero bytes")],
)
def test_bytes_that_are_no_picture_are_refused_with_a_guess(data: bytes, guess: str) -> None:
    with pytest.raises(DecodeError, match=rf"this is {guess}; expected a picture \(JPEG, PNG"):
        DecodeImage()(data)


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"WEBP", "GIF"}))
def test_size_limit_of_pillow_is_neither_asked_nor_changed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(name)
    # 3072 pixels are above this limit, which warns, and above its double, which raises.
    for limit in (2000, 1000):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)

        assert DecodeImage()(data).shape == (48, 64, 3)
        assert DecodeImage(size=(20, 20))(data).shape == (20, 20, 3)
        assert limit == Image.MAX_IMAGE_PIXELS
