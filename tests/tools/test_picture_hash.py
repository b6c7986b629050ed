"""Hashes of what a picture shows."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from daft_twinwds._scenery.painting import paint
from daft_twinwds._scenery.words import scene_of
from daft_twinwds.errors import DecodeError
from daft_twinwds.testing import encode_jpeg
from daft_twinwds.tools.picture_hash import (
    THUMBNAIL_SIZE,
    are_close,
    difference_hash,
    thumbnail,
)


def slopes(rises: Sequence[bool], width: int, height: int) -> Image.Image:
    """A picture of eight bands, each with even steps up or down, none near the threshold."""
    up = np.arange(20, 246, 25, dtype=np.uint8)[:9]
    levels = np.stack([up if rise else up[::-1] for rise in rises])
    return Image.fromarray(np.stack([levels] * 3, axis=2)).resize(
        (width, height), Image.Resampling.NEAREST
    )


RISES = (True, True, False, True, False, False, False, True)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@settings(max_examples=20)
@given(rises=st.lists(st.booleans(), min_size=8, max_size=8), scale=st.integers(8, 40))
def test_sizes_formats_and_compression_do_not_change_the_hash(
    rises: list[bool], scale: int
) -> None:
    image = slopes(rises, 9 * scale, 8 * scale)

    data = [
        encode_jpeg(np.asarray(image), 85),
        encoded(image, "WEBP", lossless=True),
        encoded(image.convert("L"), "PNG"),
    ]

    up, down = ("".join("ff" if r is want else "00" for r in rises) for want in (True, False))
    assert [difference_hash(one) for one in data] == [up + down] * 3


@pytest.mark.parametrize(
    ("orientation", "stored"),
    [
        (3, Image.Transpose.ROTATE_180),
        (6, Image.Transpose.ROTATE_90),
        (8, Image.Transpose.ROTATE_270),
    ],
)
def test_pictures_are_compared_as_they_are_shown(orientation: int, stored: Image.Transpose) -> None:
    image = slopes(RISES, 144, 128)
    exif = Image.Exif()
    exif[0x0112] = orientation

    turned = encoded(image.transpose(stored), "JPEG", quality=95, exif=exif)

    assert difference_hash(turned) == difference_hash(encoded(image, "PNG"))
    assert difference_hash(encoded(image.transpose(stored), "PNG")) != difference_hash(turned)


def test_even_pictures_are_alike_only_if_their_bytes_are() -> None:
    white, black = (
        encoded(Image.new("RGB", (64, 48), colour), "PNG") for colour in ("white", "black")
    )

    assert difference_hash(white) != difference_hash(black)
    assert difference_hash(white) == difference_hash(bytes(white))
    assert difference_hash(white).startswith("bytes:")


def test_a_mirrored_picture_has_another_hash() -> None:
    image = slopes(RISES, 144, 128)

    mirrored = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    assert difference_hash(encoded(mirrored, "PNG")) != difference_hash(encoded(image, "PNG"))


def test_a_picture_that_was_cut_has_no_hash() -> None:
    data = encode_jpeg(np.asarray(slopes(RISES, 144, 128)), 90)

    with pytest.raises(DecodeError, match="expected whole"):
        difference_hash(data[: len(data) // 2])


def test_a_thumbnail_is_small_upright_and_over_white() -> None:
    pixels = np.zeros((32, 64, 4), np.uint8)
    pixels[:, :32] = (200, 100, 50, 255)
    exif = Image.Exif()
    exif[0x0112] = 3

    seen = thumbnail(encoded(Image.fromarray(pixels), "PNG", exif=exif))

    assert len(seen) == THUMBNAIL_SIZE == 768
    cells = np.frombuffer(seen, np.uint8).reshape(16, 16, 3)
    assert (cells[:, :7] == 255).all()
    assert (cells[:, 9:] == (200, 100, 50)).all()


def test_thumbnails_are_close_up_to_a_mean_and_a_largest_difference() -> None:
    one = np.full(THUMBNAIL_SIZE, 100, np.uint8)
    others = np.tile(one, (6, 1))
    others[1, 5] = 80
    others[2, 5] = 121
    others[3, ::2] += 5
    others[4] += 3
    others[5] = 0

    assert are_close(others, one).tolist() == [True, True, False, True, False, False]
    many = np.repeat(others, 2000, axis=0)
    assert are_close(many, one).tolist() == [n // 2000 in {0, 1, 3} for n in range(12_000)]
    assert are_close(others[:0], one).tolist() == []


def test_thumbnails_of_copies_are_close_and_of_other_scenes_not() -> None:
    size = (640, 360)
    seen = []
    for number in range(12):
        image = Image.fromarray(paint(scene_of(0, number), *size))
        small = image.resize((200, 113), Image.Resampling.BICUBIC)
        copies = [
            encoded(image, "PNG"),
            encoded(image, "JPEG", quality=30),
            encoded(image, "WEBP", quality=60),
            encoded(image, "GIF"),
            encoded(small, "JPEG", quality=80),
        ]
        seen += [np.frombuffer(thumbnail(copy), np.uint8) for copy in copies]

    close = np.stack([are_close(np.stack(seen), one) for one in seen])

    assert (close == np.kron(np.eye(12, dtype=bool), np.ones((5, 5), bool))).all()
