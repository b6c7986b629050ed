import io
import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.jpeg import FULL_SCALE, scale_for
from daft_twinwds.train.images import DecodeImage

ADOBE = b"\xff\xee"


def jpeg(picture: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", **options)
    return file.getvalue()


def noise(height: int = 48, width: int = 64, channels: int = 3) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def smooth(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Broad waves with a little grain, as a photograph has."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 80 * np.sin(x / 37 + c) * np.cos(y / 29) for c in range(3)]
    grain = np.random.default_rng(0).normal(0, 4, (height, width, 1))
    return np.clip(np.stack(waves, axis=-1) + grain, 0, 255).astype(np.uint8)


def without_adobe_marker(data: bytes) -> bytes:
    start = data.index(ADOBE)
    return data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0", "4:1:1"]),
    progressive=st.booleans(),
)
def test_rgb_equals_pillow_bit_for_bit(
    height: int, width: int, subsampling: str, progressive: bool
) -> None:
    data = jpeg(
        Image.fromarray(noise(height, width)), subsampling=subsampling, progressive=progressive
    )

    np.testing.assert_array_equal(DecodeImage()(data), np.asarray(Image.open(io.BytesIO(data))))


@given(height=st.integers(1, 40), width=st.integers(1, 40), progressive=st.booleans())
def test_grey_equals_pillow_bit_for_bit(height: int, width: int, progressive: bool) -> None:
    data = jpeg(Image.fromarray(noise(height, width)[..., 0]), progressive=progressive)
    stored = Image.open(io.BytesIO(data))

    np.testing.assert_array_equal(DecodeImage(mode="L")(data)[..., 0], np.asarray(stored))
    np.testing.assert_array_equal(DecodeImage()(data), np.asarray(stored.convert("RGB")))


def test_l_of_a_colour_jpeg_is_its_own_luma() -> None:
    data = jpeg(Image.fromarray(noise()))
    luma = Image.open(io.BytesIO(data))
    luma.draft("L", None)

    np.testing.assert_array_equal(DecodeImage(mode="L")(data)[..., 0], np.asarray(luma))


def test_alpha_of_a_jpeg_is_opaque() -> None:
    data = jpeg(Image.fromarray(noise()))

    for decode in (DecodeImage(mode="RGBA"), DecodeImage(mode="RGBA", size=(20, 30))):
        pixels = decode(data)
        assert pixels.shape[2] == 4
        assert (pixels[..., 3] == 255).all()


@pytest.mark.parametrize("marked", [True, False], ids=["adobe-marker", "no-marker"])
@pytest.mark.parametrize("size", [None, (12, 16)], ids=["own-size", "resized"])
def test_four_inks_are_taken_as_inverted(marked: bool, size: tuple[int, int] | None) -> None:
    orange = jpeg(Image.new("CMYK", (64, 48), (0, 128, 255, 0)), quality=95)
    data = orange if marked else without_adobe_marker(orange)

    pixels = DecodeImage(size=size)(data)

    assert pixels.shape[2] == 3
    assert np.abs(pixels.astype(int) - (255, 127, 0)).max() <= 2


def test_ycck_agrees_with_pillow() -> None:
    picture = Image.fromarray(noise(8, 8, 4), "CMYK").resize((64, 48))
    data = bytearray(jpeg(picture, quality=95))
    data[data.index(b"Adobe") + 11] = 2  # the marker's transform: YCCK
    stored = Image.open(io.BytesIO(bytes(data)))

    difference = DecodeImage()(bytes(data)).astype(int) - np.asarray(stored.convert("RGB"))

    assert np.abs(difference).max() <= 2


@pytest.mark.parametrize("kept", [0.6, 0.99], ids=["sixty-percent", "almost-whole"])
def test_cut_jpeg_is_refused_unless_forgiven(kept: float) -> None:
    data = jpeg(Image.fromarray(noise()))
    data = data[: int(len(data) * kept)]

    with pytest.raises(DecodeError, match=r"JPEG of 64 x 48 pixels.*Premature end of JPEG file"):
        DecodeImage()(data)
    assert DecodeImage(strict=False)(data).shape == (48, 64, 3)


def test_missing_end_marker_is_refused() -> None:
    data = jpeg(Image.fromarray(noise()))

    with pytest.raises(DecodeError, match="Premature end"):
        DecodeImage()(data[:-2])


def test_early_end_marker_that_pillow_does_not_see_is_refused() -> None:
    whole = jpeg(Image.fromarray(smooth(192, 256)), quality=90)
    middle = len(whole) // 2
    data = whole[:middle] + b"\xff\xd9" + bytes(200) + whole[middle + 202 :]
    Image.open(io.BytesIO(data)).load()  # half a picture, no error

    with pytest.raises(DecodeError, match=r"premature end of data segment.*strict=False"):
        DecodeImage()(data)


@pytest.mark.parametrize("claimed", [24, 96], ids=["too-few-rows", "too-many-rows"])
def test_jpeg_whose_header_claims_another_height_is_refused(claimed: int) -> None:
    data = bytearray(jpeg(Image.fromarray(noise())))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 7] = claimed.to_bytes(2, "big")

    with pytest.raises(DecodeError, match="Corrupt JPEG data"):
        DecodeImage()(bytes(data))


def test_bytes_after_the_end_are_no_damage() -> None:
    data = jpeg(Image.fromarray(noise()))

    np.testing.assert_array_equal(DecodeImage()(data + b"padding"), DecodeImage()(data))


def test_exif_is_found_behind_other_segments_bare_markers_and_fill_bytes() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = jpeg(Image.fromarray(noise()), exif=exif)
    other = b"\xff\xe1" + (2 + 29).to_bytes(2, "big") + b"http://ns.adobe.com/xap/1.0/\0"
    data = data[:2] + other + b"\xff\x01" + b"\xff" + data[2:]

    assert DecodeImage().shape(data) == (64, 48, 3)
    assert DecodeImage()(data).shape == (64, 48, 3)


@pytest.mark.parametrize("length", [0, 1])
def test_segment_too_short_for_its_own_length_hides_nothing(length: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = jpeg(Image.fromarray(noise()), exif=exif)
    data = data[:2] + b"\xff\xe5" + length.to_bytes(2, "big") + data[2:]

    assert DecodeImage()(data).shape == (64, 48, 3)


def test_segment_that_ends_beyond_the_file_is_refused() -> None:
    data = jpeg(Image.fromarray(noise()))
    data = data[:2] + b"\xff\xe5" + (60_000).to_bytes(2, "big") + data[2:]

    with pytest.raises(DecodeError, match="JPEG"):
        DecodeImage()(data)


def test_chroma_layout_that_libjpeg_turbo_does_not_know_is_read_by_pillow() -> None:
    # Three luma blocks beside each other for one of each chroma: 24 x 8 pixels of mid grey.
    data = bytearray(jpeg(Image.new("RGB", (8, 8), (128, 128, 128)), subsampling="4:4:4"))
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    data[frame + 7 : frame + 9] = (24).to_bytes(2, "big")
    data[frame + 11] = 0x31
    payload = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
    # Standard tables: "00 1010" is a flat luma block, "00 00" a flat chroma block.
    bits = "001010" * 3 + "0000" * 2 + "111111"
    data[payload:] = int(bits, 2).to_bytes(4, "big") + b"\xff\xd9"

    pixels = DecodeImage()(bytes(data))

    assert pixels.shape == (8, 24, 3)
    assert (pixels == 128).all()
    assert DecodeImage(mode="L", size=(4, 4))(bytes(data)).shape == (4, 4, 1)


@given(share=st.floats(0.01, 1.5))
def test_scale_is_the_smallest_fast_one_that_is_large_enough(share: float) -> None:
    scale = scale_for(share)

    assert scale in {1, 2, 3, 4, FULL_SCALE}
    assert scale == FULL_SCALE or scale / FULL_SCALE >= share
    assert scale == 1 or (min(scale, 5) - 1) / FULL_SCALE < share


@pytest.mark.parametrize("size", [(270, 480), (200, 200), (135, 100), (60, 300)])
def test_scaled_decoding_is_close_to_filtering_the_whole_picture(size: tuple[int, int]) -> None:
    data = jpeg(Image.fromarray(smooth(540, 960)), quality=90)

    fast = DecodeImage(size=size)(data)
    exact = DecodeImage(size=size, reducing_gap=None)(data)

    assert not np.array_equal(fast, exact)
    assert np.abs(fast.astype(int) - exact).mean() < 2


def test_without_a_gap_the_whole_picture_is_filtered() -> None:
    data = jpeg(Image.fromarray(smooth(540, 960)))
    whole = Image.open(io.BytesIO(data))

    pixels = DecodeImage(size=(135, 240), reducing_gap=None)(data)

    np.testing.assert_array_equal(
        pixels, np.asarray(whole.resize((240, 135), Image.Resampling.LANCZOS))
    )


def test_reason_names_the_size_and_the_cure() -> None:
    data = jpeg(Image.fromarray(noise()))[:-40]

    with pytest.raises(
        DecodeError, match=re.escape("expected whole, undamaged data; copy the file again")
    ):
        DecodeImage()(data)
