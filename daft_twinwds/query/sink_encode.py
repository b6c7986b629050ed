"""Values of a column -> the bytes of members."""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import simplejpeg
from daft.series import Series
from numpy.typing import NDArray
from PIL import Image

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.json_types import INT64, load_json
from daft_twinwds.query.sink_columns import OutColumn
from daft_twinwds.query.sink_suffix import BYTES, HEAD, suffix_of_bytes
from daft_twinwds.query.text import MAX_TEXT_BYTES

__all__ = ["Payload", "Payloads", "ValuePayloads"]

_BYTE_ORDER_MARK: Final = "\ufeff"
_LARGE_AT_ONCE: Final = 1
_SMALL_AT_ONCE: Final = 256
_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The content of one member."""

    suffix: str
    size: int
    pieces: Iterable[bytes]
    """Its bytes, each piece read when it is asked for."""


class Payloads(Protocol):
    """One column of some rows."""

    def payload(self, row: int) -> Payload | None:
        """Return what a row has, None for null; rows are asked for in order.

        Raises:
            SchemaError: The value cannot be written so that it is read back.
            StorageError: A file cannot be read.
        """

    def close(self) -> None:
        """Release what is held."""


class ValuePayloads:
    """A column whose values are in the DataFrame.

    Args:
        column: How it is written.
        values: The rows.
        jpeg_quality: From 1 to 100.
    """

    def __init__(self, column: OutColumn, values: Series, *, jpeg_quality: int) -> None:
        self._column = column
        self._values = values
        self._jpeg_quality = jpeg_quality
        is_large = column.form in ("bytes", "picture", "array")
        self._at_once = _LARGE_AT_ONCE if is_large else _SMALL_AT_ONCE
        self._start = 0
        self._chunk: list[Any] = []

    def payload(self, row: int) -> Payload | None:
        """See `Payloads.payload`."""
        if not self._start <= row < self._start + len(self._chunk):
            self._start = row
            self._chunk = self._values.slice(row, row + self._at_once).to_pylist()
        value = self._chunk[row - self._start]
        if value is None:
            return None
        suffix, data = self._encoded(value)
        return Payload(suffix=suffix, size=len(data), pieces=(data,))

    def close(self) -> None:
        """Forget the values."""
        self._chunk = []

    def _encoded(self, value: Any) -> tuple[str, bytes]:
        column = self._column
        if column.form == "bytes":
            return column.suffix or suffix_of_bytes(value[:HEAD]) or BYTES, value
        suffix = column.suffix
        assert suffix is not None
        if column.form == "text":
            return suffix, _text(value, suffix)
        if column.form == "picture":
            return suffix, _picture(np.asarray(value), suffix, self._jpeg_quality)
        if column.form == "array":
            return suffix, _array(np.asarray(value))
        if column.form == "integer":
            _require_int64(value)
            return suffix, b"%d" % value
        return suffix, _json(value)


def _text(value: str, suffix: str) -> bytes:
    if suffix == "json":
        load_json(value.encode())
    elif value.startswith(_BYTE_ORDER_MARK):
        # Readers take one mark away.
        value = _BYTE_ORDER_MARK + value
    return _not_too_large(value.encode())


def _json(value: Any) -> bytes:
    _require_int64(value)
    # Embeddings are arrays; all else in such columns is JSON's own.
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=lambda array: array.tolist()
    )
    return _not_too_large(text.encode())


def _require_int64(value: Any) -> None:
    if type(value) is int:
        if value not in INT64:
            raise SchemaError(
                f"integer {value} found; expected it within int64, as readers have it; write it as "
                "a string"
            )
    elif isinstance(value, dict):
        for item in value.values():
            _require_int64(item)
    elif isinstance(value, list):
        for item in value:
            _require_int64(item)


def _not_too_large(data: bytes) -> bytes:
    if len(data) > MAX_TEXT_BYTES:
        raise SchemaError(
            f"a text of {len(data)} bytes found; expected at most {MAX_TEXT_BYTES}, as readers "
            "take; write it as bytes, which are read lazily"
        )
    return data


def _array(value: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=False)
    return buffer.getvalue()


def _picture(pixels: NDArray[Any], suffix: str, jpeg_quality: int) -> bytes:
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    _require_pixels(pixels, pixels.shape, suffix)
    if suffix == "png":
        buffer = io.BytesIO()
        _image(pixels).save(buffer, "PNG")
        return buffer.getvalue()
    colorspace = "GRAY" if pixels.shape[2] == 1 else "RGB"
    data: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), quality=jpeg_quality, colorspace=colorspace
    )
    return data


def _require_pixels(pixels: NDArray[Any], shape: Sequence[int], suffix: str) -> None:
    channels = shape[2] if len(shape) == 3 and all(shape) else 0
    fits = pixels.dtype == np.uint8 and channels in ((1, 2, 3, 4) if suffix == "png" else (1, 3))
    fits = fits or (pixels.dtype == np.uint16 and channels == 1 and suffix == "png")
    if not fits:
        wanted = (
            "1 to 4 channels of uint8 or one of uint16" if suffix == "png" else "1 or 3 of uint8"
        )
        raise SchemaError(
            f"an array of shape {tuple(shape)} and type {pixels.dtype} found; .{suffix} takes "
            f"(height, width, channels) with {wanted}; convert it"
        )


def _image(pixels: NDArray[Any]) -> Image.Image:
    if pixels.dtype == np.uint16:
        return Image.fromarray(np.ascontiguousarray(pixels[:, :, 0]))
    height, width, channels = pixels.shape
    return Image.frombytes(_MODES[channels], (width, height), pixels.tobytes())
