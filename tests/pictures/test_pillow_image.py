import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from daft_twinwds.errors import DecodeError
from daft_twinwds.train.images import DecodeImage

RAMP = np.arange(256, dtype=np.uint32) * 257
"""256 even steps of 16 bits."""


def encoded(picture: Image.Image, name: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, name, **options)
    return file.getvalue()


def png_of(samples: npt.NDArray[Any], *, depth: int, colour: int, key: bytes = b"") -> bytes:
    """Write a PNG of any depth by hand; ``samples`` is (height, width, channels)."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    height, width, _ = samples.shape
    if depth == 16:
        rows = [row.astype(">u2").tobytes() for row in samples]
    else:
        bits = np.unpackbits(samples.reshape(height, -1, 1).astype(np.uint8), axis=2)[..., -depth:]
        rows = [np.packbits(row.reshape(-1)).tobytes() for row in bits]
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + (chunk(b"tRNS", key) if key else b"")
        + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
        + chunk(b"IEND", b"")
    )


def sixteen_bit(name: str) -> bytes:
    values = np.tile(RAMP, (4, 1))
    if name == "PNG":
        return png_of(values[..., None], depth=16, colour=0)
    if name == "TIFF, big-endian":
        picture = Image.frombytes("I;16B", (256, 4), values.astype(">u2").tobytes())
        return encoded(picture, "TIFF")
    if name == "TIFF, 32 bits":
        return encoded(Image.fromarray(values.astype(np.int32)), "TIFF")
    return encoded(Image.fromarray(values.astype(np.uint16)), name)


@pytest.mark.parametrize("name", ["PNG", "TIFF", "TIFF, big-endian", "TIFF, 32 bits", "PPM"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_16_bit_grey_is_scaled_and_not_clipped(name: str, mode: Any) -> None:
    pixels = DecodeImage(mode=mode)(sixteen_bit(name))

    np.testing.assert_array_equal(pixels[0, :, 0], np.arange(256))
    assert (pixels == pixels[:1, :, :1]).all()


def test_16_bit_grey_is_rounded_to_the_nearest_level() -> None:
    values = np.array([[0, 128, 129, 385, 386, 65406, 65407, 65535]])

    pixels = DecodeImage(mode="L")(png_of(values[..., None], depth=16, colour=0))

    assert pixels[0, :, 0].tolist() == [0, 0, 1, 1, 2, 254, 255, 255]


def test_16_bit_colour_keeps_256_levels_and_one_white_column() -> None:
    data = png_of(np.tile(RAMP[None, :, None], (4, 1, 3)), depth=16, colour=2)

    pixels = DecodeImage()(data)

    np.testing.assert_array_equal(pixels[0, :, 1], np.arange(256))


def test_12_bit_tiff_is_scaled_by_its_own_white() -> None:
    values = [0, 2048, 4095, 819]
    packed = int("".join(f"{value:012b}" for value in values), 2).to_bytes(6, "big")
    tags = {256: 4, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8 + 2 + 9 * 12 + 4, 277: 1, 278: 1}
    tags[279] = len(packed)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    data = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + packed

    pixels = DecodeImage(mode="L")(data)

    assert pixels[0, :, 0].tolist() == [0, 128, 255, 51]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        pytest.param(np.ones((2, 2), np.float32), "floating-point pixels", id="float"),
        pytest.param(np.full((2, 2), 65536, np.int32), "pixels from 65536 to 65536", id="above"),
        pytest.param(np.full((2, 2), -1, np.int32), "pixels from -1 to -1", id="below"),
    ],
)
def test_pixels_without_a_defined_white_are_refused(values: npt.NDArray[Any], reason: str) -> None:
    with pytest.raises(DecodeError, match=f"{reason} have no defined white"):
        DecodeImage()(encoded(Image.fromarray(values), "TIFF"))


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *(("1", name) for name in ("PNG", "BMP", "TIFF")),
        *(("L", name) for name in ("PNG", "GIF", "WEBP", "AVIF", "JPEG2000", "PPM")),
        *(("P", name) for name in ("PNG", "GIF", "BMP", "TIFF")),
        *(("RGB", name) for name in ("PNG", "BMP", "TIFF", "WEBP", "AVIF", "JPEG2000", "PPM")),
        *((mode, "TIFF") for mode in ("CMYK", "YCbCr", "RGBX")),
        ("CMYK", "JPEG2000"),
    ],
)
def test_opaque_modes_agree_with_pillow(mode: str, name: str) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(colours).convert(mode), name)
    stored = Image.open(io.BytesIO(data))

    for wanted in ("L", "RGB", "RGBA"):
        pixels = DecodeImage(mode=wanted)(data)
        expected = np.asarray(stored.convert("RGB").convert(wanted))
        np.testing.assert_array_equal(pixels.squeeze(), expected)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_deflate", "packbits"])
def test_lab_tiff_becomes_rgb(compression: str) -> None:
    picture = Image.new("LAB", (4, 4), (255, 128, 128))  # white: no colour, all lightness

    pixels = DecodeImage()(encoded(picture, "TIFF", compression=compression))

    assert (pixels >= 254).all()


def half_red(mode: str) -> Image.Image:
    """Three columns: opaque, half and fully transparent red (grey in modes without colour)."""
    picture = Image.new("RGBA", (3, 2))
    for x, alpha in enumerate((255, 128, 0)):
        picture.paste((200, 40, 40, alpha), (x, 0, x + 1, 2))
    return picture.convert(mode)


@pytest.mark.parametrize("name", ["PNG", "TIFF", "WEBP"])
def test_alpha_is_laid_over_the_background(name: str) -> None:
    options = {"lossless": True, "exact": True} if name == "WEBP" else {}
    data = encoded(half_red("RGBA"), name, **options)

    on_white = DecodeImage()(data)[0].tolist()
    on_blue = DecodeImage(background=(0, 0, 255))(data)[0].tolist()
    dropped = DecodeImage(background=None)(data)[0].tolist()
    kept = DecodeImage(mode="RGBA")(data)[0].tolist()

    assert on_white == [[200, 40, 40], [227, 147, 147], [255, 255, 255]]
    assert on_blue == [[200, 40, 40], [100, 20, 147], [0, 0, 255]]
    assert dropped == [[200, 40, 40]] * 3
    assert kept == [[200, 40, 40, 255], [200, 40, 40, 128], [200, 40, 40, 0]]


def test_opaque_alpha_changes_nothing() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    picture = Image.fromarray(colours)

    opaque = DecodeImage(background=(0, 0, 0))(encoded(picture.convert("RGBA"), "PNG"))

    np.testing.assert_array_equal(opaque, colours)


@pytest.mark.parametrize(("mode", "name"), [("LA", "PNG"), ("LA", "TIFF"), ("PA", "TIFF")])
def test_grey_alpha_and_palette_alpha_are_laid_over_the_background(mode: str, name: str) -> None:
    picture = half_red("LA")
    if mode == "PA":
        picture = Image.merge("LA", picture.split())
        alpha = picture.getchannel("A")
        picture = picture.convert("L").convert("P").convert("PA")
        picture.putalpha(alpha)
    data = encoded(picture, name)

    assert DecodeImage(mode="L")(data)[0, :, 0].tolist() == [88, 171, 255]
    assert DecodeImage(background=(0, 0, 0))(data)[0, :, 1].tolist() == [88, 44, 0]


def test_premultiplied_alpha_is_undone() -> None:
    data = encoded(half_red("RGBA"), "TIFF")
    # ExtraSamples: 2 is plain alpha, 1 is alpha that the colours were multiplied with.
    data = data.replace(struct.pack("<HHII", 338, 3, 1, 2), struct.pack("<HHII", 338, 3, 1, 1))

    assert Image.open(io.BytesIO(data)).mode == "RGBA"
    assert DecodeImage(mode="RGBA")(data)[0, 0].tolist() == [200, 40, 40, 255]


def test_palette_transparency_is_laid_over_the_background() -> None:
    picture = Image.new("P", (3, 1))
    picture.putpalette([200, 40, 40, 10, 20, 30, 0, 0, 250])
    picture.putdata([0, 1, 2])
    by_index = encoded(picture, "PNG", transparency=1)
    by_table = encoded(picture, "PNG", transparency=bytes([255, 128, 0]))

    assert DecodeImage()(by_index)[0].tolist() == [[200, 40, 40], [255, 255, 255], [0, 0, 250]]
    assert DecodeImage()(by_table)[0].tolist() == [[200, 40, 40], [132, 137, 142], [255] * 3]
    assert DecodeImage(background=None)(by_table)[0, 2].tolist() == [0, 0, 250]


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_transparent_grey_of_a_png_is_met_at_every_depth(depth: int) -> None:
    white = (1 << depth) - 1
    data = png_of(np.array([[[0], [white]]]), depth=depth, colour=0, key=struct.pack(">H", white))

    assert DecodeImage(background=(9, 9, 9))(data)[0].tolist() == [[0] * 3, [9] * 3]
    assert DecodeImage(mode="RGBA")(data)[0, :, 3].tolist() == [255, 0]


@pytest.mark.parametrize("depth", [8, 16])
def test_transparent_colour_of_a_png_is_met_at_every_depth(depth: int) -> None:
    white = (1 << depth) - 1
    data = png_of(
        np.array([[[0, white, 0], [white, 0, 0]]]),
        depth=depth,
        colour=2,
        key=struct.pack(">HHH", 0, white, 0),
    )

    assert DecodeImage(mode="RGBA")(data)[0].tolist() == [[0, 255, 0, 0], [255, 0, 0, 255]]


@pytest.mark.parametrize("name", ["GIF", "WEBP", "TIFF", "AVIF"])
def test_first_of_several_frames_is_taken(name: str) -> None:
    first, second = Image.new("RGB", (16, 16), "red"), Image.new("RGB", (16, 16), "blue")
    data = encoded(first, name, save_all=True, append_images=[second])
    assert getattr(Image.open(io.BytesIO(data)), "n_frames", 1) == 2

    pixels = DecodeImage()(data).astype(int)

    assert np.abs(pixels - (255, 0, 0)).max() <= 4


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_deflate", "packbits"])
@pytest.mark.parametrize("rows", [21, 4000])
def test_tiff_with_missing_strips_is_refused(compression: str, rows: int) -> None:
    data = encoded(Image.new("RGB", (30, 20), "red"), "TIFF", compression=compression)
    # Pillow writes the height as a long, libtiff as a short.
    heights = [struct.pack("<HHII", 257, kind, 1, 20) for kind in (3, 4)]
    (height,) = (entry for entry in heights if entry in data)
    taller = height[:8] + struct.pack("<I", rows)

    with pytest.raises(DecodeError, match="TIFF"):
        DecodeImage()(data.replace(height, taller))


def test_planar_tiff_is_read_whole() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    planes = [pixels[..., channel].tobytes() for channel in range(3)]
    tags = [(256, 6), (257, 4), (258, 8), (259, 1), (262, 2), (273, 0), (277, 3), (278, 4)]
    tags += [(279, 0), (284, 2)]
    tables = 8 + 2 + 12 * len(tags) + 4
    start = tables + 6 + 12 + 12
    places = {258: (3, tables), 273: (4, tables + 6), 279: (4, tables + 18)}
    entries = b"".join(
        struct.pack("<HHII", tag, places[tag][0], 3, places[tag][1])
        if tag in places
        else struct.pack("<HHII", tag, 4, 1, value)
        for tag, value in tags
    )
    data = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    data += struct.pack("<3H", 8, 8, 8) + struct.pack("<3I", start, start + 24, start + 48)
    data += struct.pack("<3I", 24, 24, 24) + b"".join(planes)

    np.testing.assert_array_equal(DecodeImage()(data), pixels)


def test_tiff_with_a_giant_tile_is_refused() -> None:
    tags = {256: 16, 257: 16, 258: 8, 259: 5, 262: 1, 277: 1, 322: 1 << 15, 323: 1 << 15}
    tags |= {324: 8, 325: 8}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    data = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)

    with pytest.raises(DecodeError, match="tiles of 32768 x 32768 pixels are larger"):
        DecodeImage()(data)
