"""Bytes of one picture to pixels: sized, cropped, the right way up."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from daft_twinwds.errors import DecodeError
from daft_twinwds.pictures.exif import UPRIGHT, swaps_sides, turned
from daft_twinwds.pictures.image_header import PictureHeader, check_claims, read_header
from daft_twinwds.pictures.jpeg import FULL_SCALE, Mode, decode_jpeg, scale_for
from daft_twinwds.pictures.pillow_image import Colour, decode_with_pillow
from daft_twinwds.train.buckets import PRESETS, aspect_class, target_size

__all__ = ["DecodeImage"]

Fit = Literal["cover", "stretch"]
Interpolation = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
TooSmall = Literal["upscale", "error"]
Pixels = npt.NDArray[np.uint8]
Size = tuple[int, int]
Box = tuple[float, float, float, float]

_CHANNELS: dict[Mode, int] = {"L": 1, "RGB": 3, "RGBA": 4}
_JPEG_MODES = {1: "L", 3: "RGB", 4: "RGBX"}
"""Channels -> Pillow's mode for resizing; a JPEG's alpha is constant and needs no weighting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeImage:
    """Bytes of one picture -> uint8 pixels ``(height, width, channels)``.

    The content decides how it is read, not the name: JPEG by libjpeg-turbo, bit for bit as Pillow
    would; PNG, WebP, GIF, BMP, TIFF, AVIF, JPEG 2000 and PPM by Pillow. Of several frames the
    first is taken. 16-bit grey is scaled to 8 bits, not clipped. CMYK becomes RGB by plain
    arithmetic, JPEGs of four inks are taken as inverted, with or without Adobe's marker. Colour
    profiles are ignored. Broken EXIF is ignored with a warning in the log.

    Values are safe to share between threads, and can be pickled. Nothing process-wide is changed,
    Pillow's limits and switches included; decoding lets other threads run.

    Raises:
        ValueError: An option has a value that does not exist.

    Example:
        >>> decode = DecodeImage(size=(768, 1344))
        >>> decode(data).shape  # doctest: +SKIP
        (768, 1344, 3)
    """

    size: Size | str | None = None
    """Target (height, width) in pixels; or a preset as ``"1024"``, which has one for each aspect
    class (see `daft_twinwds.train.buckets.PRESETS`); None keeps each picture's own."""
    mode: Mode = "RGB"
    """Channels. "L" of a JPEG is the luma that the file holds, of all else Rec. 601 luma."""
    fit: Fit = "cover"
    """"cover" keeps the shape: scale until both sides cover the target, cut the centre out.
    "stretch" does not keep it."""
    interpolation: Interpolation = "lanczos"
    """Pillow's resampling filter; all but "nearest" are antialiased."""
    reducing_gap: float | None = 1.0
    """Let libjpeg shrink a JPEG while it decodes, to eighths that stay at least this many times
    the target on both sides, before the filter does the rest. Twice as fast and more for 4K to one
    megapixel. Larger is nearer to filtering the whole picture, None is exactly that."""
    too_small: TooSmall = "upscale"
    """What happens to a picture with a side smaller than its target: "error" is a `DecodeError`,
    so that a loader's ``on_error="skip"`` leaves such pictures out, as PiD does."""
    orientation: bool = True
    """Turn pictures upright as their EXIF says; else as stored."""
    background: Colour | None = (255, 255, 255)
    """RGB colour that "L" and "RGB" lay transparent pixels over; None drops the alpha unseen."""
    max_pixels: int = 16384 * 16384
    """Largest height x width that a header may claim; checked before memory is taken. PiD allows
    933_120_000. WebP and some GIFs stop at twice Pillow's own limit, if that is lower."""
    strict: bool = True
    """Refuse JPEGs and PNGs that were cut or damaged though something could be shown. Other
    formats always do."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("mode", self.mode, get_args(Mode)),
            ("fit", self.fit, get_args(Fit)),
            ("interpolation", self.interpolation, get_args(Interpolation)),
            ("too_small", self.too_small, get_args(TooSmall)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
        if not (self.size is None or self.size in PRESETS or _is_size(self.size)):
            raise ValueError(
                f"size must be (height, width) in whole pixels, each at least 1, a preset "
                f"({', '.join(PRESETS)}), or None; got {self.size!r}"
            )
        if self.reducing_gap is not None and not self.reducing_gap >= 1:
            raise ValueError(f"reducing_gap must be at least 1, or None; got {self.reducing_gap!r}")
        if self.background is not None and not _is_colour(self.background):
            raise ValueError(
                f"background must be (red, green, blue) in [0, 255], or None; got "
                f"{self.background!r}"
            )
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, got {self.max_pixels}")

    def of_class(self, aspect: str) -> Self:
        """Return the decoder that gives all pictures a preset's size for one aspect class.

        Raises:
            ValueError: There is no such class.
        """
        if not isinstance(self.size, str):
            return self
        return replace(self, size=target_size(self.size, aspect))

    def __call__(self, data: bytes) -> Pixels:
        """Decode one picture into memory of its own.

        Args:
            data: The whole file.

        Returns:
            ``(height, width, channels)`` uint8.

        Raises:
            DecodeError: Not a picture, cut, damaged, too large, or (if asked for) too small. The
                message does not know where the bytes came from.
        """
        header = self._checked_header(data)
        out = np.empty(self._shape(header), np.uint8)
        self._decode(data, header, out)
        return out

    def shape(self, data: bytes) -> tuple[int, int, int]:
        """Return the (height, width, channels) that decoding gives, from the header alone.

        Raises:
            DecodeError: As decoding would, as far as the header shows it.
        """
        return self._shape(self._checked_header(data))

    def into(self, data: bytes, out: Pixels) -> None:
        """Decode one picture into given memory; a JPEG that needs no resizing without a copy.

        Args:
            data: The whole file.
            out: ``(height, width, channels)`` uint8, C-contiguous and writable; one picture of a
                batch, say. After an error its content is undefined.

        Raises:
            ValueError: ``out`` is not such memory, or has another shape than `shape` says.
            DecodeError: As for a call.
        """
        if out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError(
                f"out must be writable, C-contiguous uint8; got {out.dtype}, "
                f"C-contiguous: {out.flags.c_contiguous}, writable: {out.flags.writeable}"
            )
        header = self._checked_header(data)
        shape = self._shape(header)
        if out.shape != shape:
            raise ValueError(
                f"out has shape {out.shape}; this picture needs {shape} (height, width, channels)"
            )
        self._decode(data, header, out)

    def _checked_header(self, data: bytes) -> PictureHeader:
        header = read_header(data)
        check_claims(header, size=len(data), max_pixels=self.max_pixels)
        if self.too_small == "error":
            height, width = header.upright if self.orientation else header.stored
            size = self._target((height, width))
            if height < size[0] or width < size[1]:
                raise DecodeError(
                    f"picture of {width} x {height} pixels (width x height) is smaller than its "
                    f"target; expected at least {size[1]} x {size[0]}; leave it out, or "
                    'pass too_small="upscale"'
                )
        return header

    def _shape(self, header: PictureHeader) -> tuple[int, int, int]:
        own = header.upright if self.orientation else header.stored
        return (*self._target(own), _CHANNELS[self.mode])

    def _target(self, own: Size) -> Size:
        if isinstance(self.size, str):
            return target_size(self.size, aspect_class(own[1], own[0]))
        return self.size or own

    def _decode(self, data: bytes, header: PictureHeader, out: Pixels) -> None:
        orientation = header.orientation if self.orientation else UPRIGHT
        height, width, channels = out.shape
        # All is done as stored; the result, mostly smaller, is turned at the end.
        target = (width, height) if swaps_sides(orientation) else (height, width)
        if header.turbo and target == header.stored and orientation == UPRIGHT:
            decode_jpeg(data, header.stored, mode=self.mode, strict=self.strict, out=out)
            return
        pixels = (self._by_turbo if header.turbo else self._by_pillow)(data, header, target)
        _write_turned(pixels.reshape(*target, channels), orientation, out)

    def _by_turbo(self, data: bytes, header: PictureHeader, target: Size) -> Pixels:
        stored = header.stored
        if target == stored:
            return decode_jpeg(data, stored, mode=self.mode, strict=self.strict)
        box = _box(stored, target, self.fit)
        scale = FULL_SCALE
        if self.reducing_gap is not None:
            # The box shrinks with the picture, and has to stay this much larger than the target.
            rows = self.reducing_gap * target[0] / (box[3] - box[1])
            columns = self.reducing_gap * target[1] / (box[2] - box[0])
            scale = scale_for(max(rows, columns))
        pixels = decode_jpeg(data, stored, mode=self.mode, strict=self.strict, scale=scale)
        height, width, channels = pixels.shape
        mode = _JPEG_MODES[channels]
        picture = Image.frombuffer(mode, (width, height), pixels, "raw", mode, 0, 1)
        left, top, right, bottom = (side * scale / FULL_SCALE for side in box)
        return self._resized(picture, target, (left, top, right, bottom))

    def _by_pillow(self, data: bytes, header: PictureHeader, target: Size) -> Pixels:
        picture = decode_with_pillow(
            data,
            header.format,
            header.stored,
            mode=self.mode,
            background=self.background,
            strict=self.strict,
        )
        if target == header.stored:
            return np.asarray(picture)
        return self._resized(picture, target, _box(header.stored, target, self.fit))

    def _resized(self, picture: Image.Image, target: Size, box: Box) -> Pixels:
        filter_ = Image.Resampling[self.interpolation.upper()]
        return np.asarray(picture.resize(target[::-1], filter_, box))


def _is_size(size: Any) -> bool:
    return (
        isinstance(size, tuple)
        and len(size) == 2
        and all(isinstance(side, int) and side >= 1 for side in size)
    )


def _is_colour(colour: Any) -> bool:
    return (
        isinstance(colour, tuple)
        and len(colour) == 3
        and all(isinstance(part, int) and 0 <= part <= 255 for part in colour)
    )


def _box(stored: Size, target: Size, fit: Fit) -> Box:
    """Return the part of the stored picture that becomes the target: (left, top, right, bottom).

    One resampling of this part equals scaling the whole and cropping it, without the rounding of
    the size in between.
    """
    height, width = stored
    if fit == "stretch":
        return 0, 0, width, height
    if target[0] * width >= target[1] * height:
        kept = target[1] * height / target[0]
        return (width - kept) / 2, 0, (width + kept) / 2, height
    kept = target[0] * width / target[1]
    return 0, (height - kept) / 2, width, (height + kept) / 2


def _write_turned(pixels: Pixels, orientation: int, out: Pixels) -> None:
    # Whole pixels, not their channels, are moved: half the time.
    pixel = np.dtype((np.void, out.shape[2]))
    np.copyto(out.view(pixel), turned(pixels.view(pixel), orientation))
