import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from daft_twinwds.errors import DecodeError
from daft_twinwds.train.images import DecodeImage

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)


def png(**options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "PNG", **options)
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunk_before_pixels(data: bytes, kind: bytes, body: bytes) -> bytes:
    place = data.index(b"IDAT") - 4
    return data[:place] + chunk(kind, body) + data[place:]


def test_png_cut_at_any_byte_is_refused() -> None:
    data = png()
    cuts = [*range(1, 64), len(data) // 2, *range(len(data) - 20, len(data))]

    for cut in cuts:
        with pytest.raises(DecodeError):
            DecodeImage()(data[:cut])


def test_missing_end_is_said_and_can_be_forgiven() -> None:
    data = png()[:-12]

    with pytest.raises(DecodeError, match="end without the closing chunk; the file is cut"):
        DecodeImage()(data)
    np.testing.assert_array_equal(DecodeImage(strict=False)(data), PIXELS)


def test_cut_pixels_are_not_forgiven() -> None:
    data = png()

    with pytest.raises(DecodeError, match="PNG cannot be decoded"):
        DecodeImage(strict=False)(data[: len(data) // 2])


@pytest.mark.parametrize("kind", [b"IHDR", b"IDAT"])
def test_wrong_checksum_is_refused_with_its_chunk(kind: bytes) -> None:
    data = bytearray(png())
    start = data.index(kind)
    (size,) = struct.unpack_from(">I", data, start - 4)
    data[start + 4 + size] ^= 0xFF

    with pytest.raises(DecodeError, match=f"chunk {kind.decode()} at byte {start - 4} does not"):
        DecodeImage()(bytes(data))


def test_wrong_checksum_of_pixels_can_be_forgiven() -> None:
    data = bytearray(png())
    data[-13] ^= 0xFF  # the last byte of the checksum before the closing chunk

    np.testing.assert_array_equal(DecodeImage(strict=False)(bytes(data)), PIXELS)


def test_damage_to_a_chunk_that_is_not_pixels_is_no_reason_to_lose_a_picture() -> None:
    data = with_chunk_before_pixels(png(), b"tEXt", b"Comment\0words")
    data = data.replace(b"words", b"swrod")

    np.testing.assert_array_equal(DecodeImage()(data), PIXELS)


def test_long_text_that_pillow_refuses_is_no_reason_to_lose_a_picture() -> None:
    body = b"Comment\0\0" + zlib.compress(bytes(2 * PngImagePlugin.MAX_TEXT_CHUNK))
    data = with_chunk_before_pixels(png(), b"zTXt", body)
    with pytest.raises(ValueError, match="too large"):
        Image.open(io.BytesIO(data)).load()

    np.testing.assert_array_equal(DecodeImage()(data), PIXELS)


def test_animated_png_gives_its_still_picture() -> None:
    other = Image.fromarray(PIXELS[::-1])

    data = png(save_all=True, append_images=[other, other], duration=50)

    np.testing.assert_array_equal(DecodeImage()(data), PIXELS)


@pytest.mark.parametrize("place", ["before", "after"])
def test_exif_counts_on_either_side_of_the_pixels(place: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = png()
    if place == "before":
        data = with_chunk_before_pixels(data, b"eXIf", exif.tobytes()[6:])
    else:
        data = data[:-12] + chunk(b"eXIf", exif.tobytes()[6:]) + data[-12:]

    assert DecodeImage().shape(data) == (32, 24, 3)
    np.testing.assert_array_equal(DecodeImage()(data), np.rot90(PIXELS, -1))


def test_header_that_is_not_first_is_refused() -> None:
    data = png().replace(b"IHDR", b"CgBI")

    with pytest.raises(DecodeError, match="first chunk is b'CgBI', expected b'IHDR'"):
        DecodeImage()(data)
