"""Everything that libjpeg-turbo does not read goes through Pillow, to 8 bits and one of three modes.

No switch of Pillow is touched. Its size limit is one number for the whole process and warns from
half of it on; so files are opened by their plugins' classes, which do not ask for it, and sizes
are checked by our own limit, before. (Two plugins ask all the same: WebP and some GIFs above twice
`PIL.Image.MAX_IMAGE_PIXELS`, 178,956,970 pixels unless that was changed, are an error.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from typing_extensions import override

from daft_twinwds.errors import DecodeError, TwinWebDatasetError
from daft_twinwds.pictures.byte_ranges import Bytes, as_file
from daft_twinwds.pictures.jpeg import Mode
from daft_twinwds.pictures.png import PNG_DEPTH, essential_png

__all__ = ["Colour", "decode_with_pillow", "open_lazily"]

Colour = tuple[int, int, int]

_BITS_PER_SAMPLE, _PLANAR, _TILE_WIDTH, _TILE_HEIGHT = 258, 284, 322, 323
_LARGEST_TILE = 4096 * 4096
"""Pixels. A tile is allocated whole, however small the picture."""


class _StoredTiff(TiffImagePlugin.TiffImageFile):
    """A TIFF as it is stored; Pillow's own turns it by EXIF and warns by the global size limit."""

    @override
    def _open(self) -> None:
        super()._open()
        self._size = self._tile_size
        pixels = self.width * self.height
        tile = self.tag_v2.get(_TILE_WIDTH, 1), self.tag_v2.get(_TILE_HEIGHT, 1)
        if tile[0] * tile[1] > max(_LARGEST_TILE, pixels):
            raise ValueError(f"tiles of {tile[0]} x {tile[1]} pixels are larger than the picture")
        if self.use_load_libtiff:
            return
        # Strips that are missing would be black, without a word.
        layers = len(self.getbands()) if self.tag_v2.get(_PLANAR) == 2 else 1
        extents = (part.extents or (0, 0, 0, 0) for part in self.tile)
        if sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in extents) < pixels * layers:
            raise ValueError("its strips or tiles cover only a part of the picture")

    @override
    def load_prepare(self) -> None:
        # Where there is memory already, Pillow does not ask for its limit.
        self.im = Image.new(self.mode, self._tile_size, None).im
        super().load_prepare()

    @override
    def load_end(self) -> None:
        pass


_PLUGINS: dict[str, type[ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": _StoredTiff,
    "AVIF": AvifImagePlugin.AvifImageFile,
    "JPEG2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
    "PPM": PpmImagePlugin.PpmImageFile,
}


@contextmanager
def _faults_named(name: str) -> Iterator[None]:
    """Turn whatever a plugin lets out for bad bytes into one kind of error."""
    try:
        yield
    except TwinWebDatasetError:  # among them those of the storage that the bytes come from
        raise
    except Exception as error:
        raise DecodeError(
            f"{name} cannot be decoded: {type(error).__name__}: {error}; "
            "expected whole, undamaged data; copy the file again or leave it out"
        ) from error


def open_lazily(data: Bytes, name: str) -> ImageFile.ImageFile:
    """Return a picture of format ``name`` whose header is read and whose pixels are not.

    Raises:
        DecodeError: The header is damaged.
    """
    with _faults_named(name):
        return _PLUGINS[name](as_file(data))


def decode_with_pillow(
    data: bytes,
    name: str,
    stored: tuple[int, int],
    *,
    mode: Mode,
    background: Colour | None,
    strict: bool,
) -> Image.Image:
    """Return the first picture of a file, as stored: EXIF is not looked at.

    Args:
        data: The whole file.
        name: Its format.
        stored: (height, width) that was checked; the file must keep to it.
        mode: Mode of the result.
        background: What transparent pixels of "L" and "RGB" are laid over; None drops the alpha.
        strict: Raise for a PNG with wrong checksums or without its end.

    Raises:
        DecodeError: The data are cut or damaged, or have no defined white (see `_to_8_bits`).
    """
    if name == "PNG":
        data = essential_png(data, strict=strict)
    picture = open_lazily(data, name)
    if picture.size != stored[::-1]:
        raise DecodeError(
            f"{name}: its header states {stored[1]} x {stored[0]} pixels (width x height), its "
            f"content {picture.width} x {picture.height}; expected one size; leave it out"
        )
    with _faults_named(name):
        picture.load()
        if name == "PNG":
            _scale_colour_key(picture, depth=data[PNG_DEPTH])
        return _to_mode(_to_8_bits(picture), mode, background)


def _scale_colour_key(picture: Image.Image, depth: int) -> None:
    """Bring a PNG's transparent colour to the scale that Pillow has brought the pixels to."""
    key = picture.info.get("transparency")
    if isinstance(key, tuple) and depth == 16:
        # Pillow keeps the high byte of 16-bit colours, so neighbours of the key vanish with it.
        picture.info["transparency"] = tuple(sample >> 8 for sample in key)
    elif isinstance(key, int) and picture.mode == "L" and depth < 8 and key < 1 << depth:
        picture.info["transparency"] = key * 255 // ((1 << depth) - 1)


def _to_8_bits(picture: Image.Image) -> Image.Image:
    """Return the picture in mode L, RGB or RGBA.

    Grey of 16 bits is divided by 257 and rounded, so that white stays white and no two of 256 even
    steps fall together. 16-bit colour has lost its low byte in Pillow, which is at most one level
    away from that. Colour profiles are not applied. CMYK is converted without one.

    Raises:
        DecodeError: Floating-point pixels, or 32-bit ones outside [0, 65535]: which value would
            be white is not known.
    """
    if picture.mode == "F":
        raise DecodeError(
            "floating-point pixels have no defined white; expected 8 or 16 bits per sample; "
            "convert the picture or decode it yourself"
        )
    if picture.mode.startswith("I"):
        return _grey_to_8_bits(picture)
    if picture.has_transparency_data:
        return picture.convert("RGBA")
    if picture.mode in {"L", "RGB"}:
        return picture
    return picture.convert("L" if picture.mode == "1" else "RGB")


def _grey_to_8_bits(picture: Image.Image) -> Image.Image:
    values = np.asarray(picture)
    tags = picture.tag_v2 if isinstance(picture, _StoredTiff) else {}
    white = 4095 if tags.get(_BITS_PER_SAMPLE) == (12,) else 65535
    if values.min() < 0 or values.max() > white:
        raise DecodeError(
            f"pixels from {values.min()} to {values.max()} have no defined white; expected values "
            f"in [0, {white}]; convert the picture or decode it yourself"
        )
    grey = Image.fromarray(_levels(white)[values])
    key = picture.info.get("transparency")
    if key is None:
        return grey
    alpha = Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8))
    return Image.merge("RGBA", (grey, grey, grey, alpha))


@lru_cache(maxsize=2)
def _levels(white: int) -> npt.NDArray[np.uint8]:
    """Return the 8-bit level of each value in [0, white], rounded."""
    values = np.arange(white + 1, dtype=np.uint32)
    return ((values * 255 + white // 2) // white).astype(np.uint8)


def _to_mode(picture: Image.Image, mode: Mode, background: Colour | None) -> Image.Image:
    if picture.mode == "RGBA" and mode != "RGBA" and background is not None:
        picture = _laid_over(picture, background)
    return picture if picture.mode == mode else picture.convert(mode)


def _laid_over(picture: Image.Image, background: Colour) -> Image.Image:
    alpha = picture.getchannel("A")
    opaque = picture.convert("RGB")
    if alpha.getextrema() == (255, 255):
        return opaque
    canvas = Image.new("RGB", picture.size, background)
    canvas.paste(opaque, mask=alpha)
    return canvas
