import io
import logging
import pickle
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.exif import swaps_sides
from daft_twinwds.testing import encode_jpeg
from daft_twinwds.train.images import DecodeImage

ORIENTED = ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"]
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}

sides = st.integers(1, 40)


def noise(height: int, width: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(pixels: npt.NDArray[np.uint8], name: str, orientation: int = 1, **kw: Any) -> bytes:
    if orientation > 1:
        kw["exif"] = Image.Exif()
        kw["exif"][0x0112] = orientation
    if name == "WEBP":
        kw["lossless"] = True
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, name, **kw)
    return file.getvalue()


@given(
    name=st.sampled_from([*ORIENTED, "GIF", "BMP", "PPM", "JPEG2000"]),
    height=sides,
    width=sides,
    orientation=st.integers(1, 8),
    size=st.none() | st.tuples(sides, sides),
    mode=st.sampled_from(["L", "RGB", "RGBA"]),
    fit=st.sampled_from(["cover", "stretch"]),
    turn=st.booleans(),
)
def test_shape_and_into_agree_with_the_call(
    name: str,
    height: int,
    width: int,
    orientation: int,
    size: tuple[int, int] | None,
    mode: Any,
    fit: Any,
    turn: bool,
) -> None:
    data = encoded(noise(height, width), name, orientation if name in ORIENTED else 1)
    decode = DecodeImage(size=size, mode=mode, fit=fit, orientation=turn)
    swapped = turn and name in ORIENTED and swaps_sides(orientation)

    pixels = decode(data)
    out = np.empty(decode.shape(data), np.uint8)
    decode.into(data, out)

    own = (width, height) if swapped else (height, width)
    assert pixels.shape == (*(size or own), CHANNELS[mode])
    assert pixels.dtype == np.uint8
    assert pixels.flags.owndata
    np.testing.assert_array_equal(out, pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ORIENTED)
def test_pictures_come_upright_as_pillow_turns_them(name: str, orientation: int) -> None:
    data = encoded(noise(24, 40), name, orientation)
    stored = Image.open(io.BytesIO(data))

    np.testing.assert_array_equal(
        DecodeImage()(data), np.asarray(ImageOps.exif_transpose(stored).convert("RGB"))
    )


@pytest.mark.parametrize("name", sorted(set(ORIENTED) - {"AVIF"}))
def test_pictures_come_as_stored_if_asked_for(name: str) -> None:
    data = encoded(noise(24, 40), name, 6)

    pixels = DecodeImage(orientation=False)(data)

    np.testing.assert_array_equal(pixels, DecodeImage()(encoded(noise(24, 40), name)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["JPEG", "PNG"])
@pytest.mark.parametrize("fit", ["cover", "stretch"])
def test_turning_and_resizing_may_change_places(name: str, orientation: int, fit: Any) -> None:
    data = encoded(noise(60, 90), name, orientation)
    decode = DecodeImage(size=(20, 25), fit=fit)
    upright = encoded(DecodeImage()(data), "PNG")

    difference = decode(data).astype(int) - DecodeImage(size=(20, 25), fit=fit)(upright)

    # Rows and columns are filtered and rounded in another order; a JPEG is shrunk by its own
    # decoder first, which is another filter.
    assert np.abs(difference).max() <= (2 if name == "PNG" else 60)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_is_ignored_with_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data = encoded(noise(8, 8), name, exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")

    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        assert DecodeImage()(data).shape == (8, 8, 3)

    assert "broken EXIF block" in caplog.text


def test_impossible_orientation_of_a_tiff_is_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = encoded(noise(8, 10), "TIFF", orientation=6)
    entry = struct.pack("<HHIH", 0x0112, 3, 1, 6)
    assert entry in data

    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        pixels = DecodeImage()(data.replace(entry, struct.pack("<HHIH", 0x0112, 3, 1, 60)))

    np.testing.assert_array_equal(pixels, noise(8, 10))
    assert "orientation 60 ignored; expected 1 to 8" in caplog.text


@pytest.mark.parametrize(
    ("target", "whole", "left", "top"),
    [
        pytest.param((20, 20), (20, 40), 10, 0, id="wide-to-square"),
        pytest.param((20, 10), (20, 40), 15, 0, id="wide-to-tall"),
        pytest.param((10, 40), (20, 40), 0, 5, id="wide-to-wider"),
        pytest.param((80, 80), (80, 160), 40, 0, id="enlarged"),
    ],
)
@pytest.mark.parametrize("interpolation", ["lanczos", "bicubic", "bilinear", "box"])
def test_cover_is_scaling_the_whole_and_cutting_the_centre_out(
    target: tuple[int, int], whole: tuple[int, int], left: int, top: int, interpolation: Any
) -> None:
    pixels = noise(40, 80)
    height, width = whole
    scaled = Image.fromarray(pixels).resize(
        (width, height), Image.Resampling[interpolation.upper()]
    )

    decoded = DecodeImage(size=target, interpolation=interpolation)(encoded(pixels, "PNG"))

    np.testing.assert_array_equal(
        decoded, np.asarray(scaled)[top : top + target[0], left : left + target[1]]
    )


def test_stretch_uses_the_whole_picture() -> None:
    pixels = noise(40, 80)

    decoded = DecodeImage(size=(30, 20), fit="stretch")(encoded(pixels, "PNG"))

    expected = Image.fromarray(pixels).resize((20, 30), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(decoded, np.asarray(expected))


@given(height=st.integers(1, 300), width=st.integers(1, 300), target=st.tuples(sides, sides))
def test_constant_picture_stays_constant_at_every_size(
    height: int, width: int, target: tuple[int, int]
) -> None:
    pixels = np.full((height, width, 3), 77, np.uint8)

    for name in ("JPEG", "PNG"):
        assert (DecodeImage(size=target)(encoded(pixels, name)) == 77).all()


def test_transparent_edges_do_not_bleed_when_resized() -> None:
    rgba = np.zeros((40, 40, 4), np.uint8)
    rgba[:, :20] = (200, 40, 40, 255)
    rgba[:, 20:] = (0, 255, 0, 0)  # green that nobody should ever see

    pixels = DecodeImage(size=(10, 9), mode="RGBA")(encoded(rgba, "PNG"))

    visible = pixels[pixels[..., 3] > 8]
    assert np.abs(visible[:, 1].astype(int) - 40).max() <= 16


@pytest.mark.parametrize("size", [(49, 64), (48, 65), (100, 100)])
def test_too_small_picture_is_enlarged_or_refused(size: tuple[int, int]) -> None:
    data = encoded(noise(48, 64), "JPEG")
    strict = DecodeImage(size=size, too_small="error")

    assert DecodeImage(size=size)(data).shape == (*size, 3)
    message = f"picture of 64 x 48 pixels .*expected at least {size[1]} x {size[0]}"
    with pytest.raises(DecodeError, match=message):
        strict(data)
    with pytest.raises(DecodeError, match=message):
        strict.shape(data)


def test_too_small_is_judged_upright() -> None:
    data = encoded(noise(48, 64), "JPEG", orientation=6)

    assert DecodeImage(size=(64, 48), too_small="error")(data).shape == (64, 48, 3)
    with pytest.raises(DecodeError, match="picture of 48 x 64 pixels"):
        DecodeImage(size=(48, 64), too_small="error")(data)


@pytest.mark.parametrize("name", ["JPEG", "PNG"])
def test_batch_is_filled_in_place(name: str) -> None:
    pictures = [noise(8, 12), noise(8, 12)[::-1]]
    decode = DecodeImage()
    batch = np.zeros((2, 8, 12, 3), np.uint8)

    for slot, pixels in enumerate(pictures):
        decode.into(encoded(pixels, name), batch[slot])

    for slot, pixels in enumerate(pictures):
        np.testing.assert_array_equal(batch[slot], decode(encoded(pixels, name)))


@pytest.mark.parametrize("shape", [(8, 12, 4), (12, 8, 3), (9, 12, 3), (8, 12), (1, 8, 12, 3)])
def test_memory_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    out = np.zeros(shape, np.uint8)

    with pytest.raises(ValueError, match=re.escape("this picture needs (8, 12, 3) (height")):
        DecodeImage().into(encoded(noise(8, 12), "JPEG"), out)
    assert not out.any()


@pytest.mark.parametrize(
    "out",
    [
        pytest.param(np.zeros((8, 12, 3), np.float32), id="float"),
        pytest.param(np.zeros((8, 12, 3), np.int8), id="signed"),
        pytest.param(np.zeros((12, 8, 3), np.uint8).swapaxes(0, 1), id="not-contiguous"),
        pytest.param(np.frombuffer(bytes(288), np.uint8).reshape(8, 12, 3), id="read-only"),
    ],
)
def test_memory_of_another_kind_is_refused(out: Any) -> None:
    with pytest.raises(ValueError, match="out must be writable, C-contiguous uint8; got"):
        DecodeImage().into(encoded(noise(8, 12), "JPEG"), out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 4)}, "size must be (height, width) in whole pixels"),
        ({"size": (4.0, 4)}, "size must be (height, width) in whole pixels"),
        ({"size": (4, 4, 3)}, "size must be (height, width) in whole pixels"),
        ({"size": 512}, "size must be (height, width) in whole pixels"),
        ({"mode": "BGR"}, "mode must be one of ('L', 'RGB', 'RGBA'), got 'BGR'"),
        ({"fit": "contain"}, "fit must be one of ('cover', 'stretch'), got 'contain'"),
        ({"interpolation": "cubic"}, "interpolation must be one of ('nearest', 'box'"),
        ({"too_small": "skip"}, "too_small must be one of ('upscale', 'error'), got 'skip'"),
        ({"reducing_gap": 0.5}, "reducing_gap must be at least 1, or None; got 0.5"),
        ({"background": (0, 0, 256)}, "background must be (red, green, blue) in [0, 255]"),
        ({"background": "white"}, "background must be (red, green, blue) in [0, 255]"),
        ({"max_pixels": 0}, "max_pixels must be at least 1, got 0"),
    ],
)
def test_option_that_does_not_exist_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        DecodeImage(**options)


def test_pickled_copy_decodes_the_same() -> None:
    decode = DecodeImage(size=(5, 7), mode="L", background=None)
    data = encoded(noise(8, 12), "PNG")

    copy = pickle.loads(pickle.dumps(decode))

    assert copy == decode
    np.testing.assert_array_equal(copy(data), decode(data))


def test_threads_share_one_decoder() -> None:
    files = [
        encoded(noise(40 + place, 60), name, orientation)
        for place, (name, orientation) in enumerate(
            zip(ORIENTED * 4, [1, 6, 3, 8] * 5, strict=True)
        )
    ]
    decode = DecodeImage(size=(31, 17))
    alone = [decode(data) for data in files]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(decode, files * 4))

    for pixels, expected in zip(together, alone * 4, strict=True):
        np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("forgiving", [False, True])
def test_switches_of_pillow_stay_as_they_are(
    forgiving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", forgiving)
    data = encoded(noise(48, 64), "JPEG")

    DecodeImage(strict=False)(data[:-200])
    with pytest.raises(DecodeError):
        DecodeImage()(data[:-200])

    assert forgiving is ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize(
    ("size", "expected"),
    [((160, 90), (768, 1344)), ((100, 100), (1024, 1024)), ((90, 160), (1344, 768))],
)
def test_presets_give_each_aspect_class_its_size(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    data = encode_jpeg(np.zeros((size[1], size[0], 3), np.uint8))
    decode = DecodeImage(size="1024")

    assert decode.shape(data) == (*expected, 3)
    assert decode(data).shape == (*expected, 3)


def test_a_class_may_be_fixed_for_all_pictures() -> None:
    assert DecodeImage(size="2048", mode="L").of_class("3_2") == DecodeImage(
        size=(1792, 2688), mode="L"
    )
    assert DecodeImage(size=(3, 4)).of_class("3_2").size == (3, 4)
    with pytest.raises(ValueError, match="no size for the aspect class '7_1'"):
        DecodeImage(size="1024").of_class("7_1")


def test_pictures_that_are_smaller_than_their_preset_can_be_refused() -> None:
    data = encode_jpeg(np.zeros((90, 160, 3), np.uint8))

    with pytest.raises(DecodeError, match="expected at least 1344 x 768"):
        DecodeImage(size="1024", too_small="error").shape(data)


def test_presets_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"a preset \(1024, 2048, 3072, 3840, 4096\)"):
        DecodeImage(size="512")
