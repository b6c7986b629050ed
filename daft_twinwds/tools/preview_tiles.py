"""Samples -> what a preview shows of them: thumbnails, and texts that are short enough."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import simplejpeg

from daft_twinwds.errors import DecodeError, StorageError
from daft_twinwds.pictures.image_header import read_header
from daft_twinwds.query.schema import CAPTION_FIELDS, KEY, URL
from daft_twinwds.shards.options import StorageOptions, options_of
from daft_twinwds.shards.storage import read_range
from daft_twinwds.shards.urls import shown
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.refs import FileRef

__all__ = ["Field", "PictureTile", "SampleTile", "TileMaker"]

LONGEST_TEXT: Final = 10_000
"""Characters of a value that are shown."""
QUALITY: Final = 82
"""Of the thumbnails' JPEGs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A value of a sample."""

    name: str
    """Of the column, or of a field in it as ``caption.prompt``."""
    text: str | None
    """Value; None for null."""
    is_code: bool = False
    """Whether it is no prose but JSON, a path or a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureTile:
    """One picture of a sample."""

    column: str
    """Its modality."""
    thumbnail: bytes | None = None
    """JPEG, upright; None where there is no picture to show."""
    thumbnail_size: tuple[int, int] = (0, 0)
    """(width, height) in pixels."""
    size: tuple[int, int] | None = None
    """(width, height) of the picture itself, turned by EXIF; None where that is not known."""
    format: str | None = None
    """By content, as ``"JPEG"``."""
    num_bytes: int | None = None
    """Of the file."""
    fault: str | None = None
    """Why it cannot be shown; None where it can, or the sample has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTile:
    """One sample."""

    key: str
    pictures: tuple[PictureTile, ...]
    """One per modality of pictures."""
    caption: str | None
    """The first text that there is."""
    fields: tuple[Field, ...]
    """All values but the pictures' pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileMaker:
    """Makes tiles; any thread may use it."""

    pictures: Sequence[str]
    """Columns of pictures, in order."""
    others: Sequence[str]
    """Columns of other files."""
    texts: Sequence[str]
    """Columns of values, in order, without key and URL."""
    side: int
    """Longest side of a thumbnail, in pixels."""
    storage: StorageOptions | Mapping[str, StorageOptions]
    """How files are accessed, or column -> how its files are."""

    def make(self, row: Mapping[str, Any]) -> SampleTile:
        """Return what is shown of a sample.

        Args:
            row: As `Selection.rows` gives it.

        Raises:
            MissingDependencyError: A scheme's package is not installed.
        """
        pictures = tuple(self._picture(column, row[column]) for column in self.pictures)
        return SampleTile(
            key=row[KEY],
            pictures=pictures,
            caption=_caption_of(row, self.texts),
            fields=(*self._values(row), *self._files(row)),
        )

    def _picture(self, column: str, ref: FileRef | None) -> PictureTile:
        if ref is None:
            return PictureTile(column=column)
        try:
            data = _read(ref, options_of(self.storage, column))
        except StorageError as error:
            return PictureTile(column=column, num_bytes=ref.size, fault=_one_line(error))
        try:
            header = read_header(data)
        except DecodeError as error:
            return PictureTile(column=column, num_bytes=len(data), fault=_one_line(error))
        height, width = header.upright
        scale = min(1.0, self.side / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        thumbnail = fault = None
        try:
            decode = DecodeImage(size=size[::-1], fit="stretch")
            thumbnail = bytes(simplejpeg.encode_jpeg(decode(data), QUALITY, colorspace="RGB"))
        except DecodeError as error:
            fault = _one_line(error)
        return PictureTile(
            column=column,
            thumbnail=thumbnail,
            thumbnail_size=size,
            size=(width, height),
            format=header.format,
            num_bytes=len(data),
            fault=fault,
        )

    def _values(self, row: Mapping[str, Any]) -> list[Field]:
        made = []
        for column in self.texts:
            value = row[column]
            if isinstance(value, Mapping):
                made += [_field(f"{column}.{name}", part) for name, part in value.items()]
            else:
                made.append(_field(column, value))
        return made

    def _files(self, row: Mapping[str, Any]) -> list[Field]:
        made = []
        if isinstance(row.get(URL), str):
            made.append(Field(name="shard", text=shown(row[URL]), is_code=True))
        for column in (*self.pictures, *self.others):
            ref = row[column]
            text = None
            if ref is not None:
                end = "" if ref.size is None else ref.position + ref.size
                text = f"{shown(ref.path)} [{ref.position}:{end}]"
            made.append(Field(name=column, text=text, is_code=True))
        return made


def _read(ref: FileRef, options: StorageOptions) -> bytes:
    # Daft takes what follows literally, without percent-decoding.
    return read_range(ref.path.removeprefix("file://"), ref.position, ref.size, options)


def _caption_of(row: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    for column in columns:
        value = row[column]
        texts = [value]
        if isinstance(value, Mapping):
            texts = [value.get(name) for name in CAPTION_FIELDS]
        for text in texts:
            if isinstance(text, str) and text.strip():
                return _shortened(text)
    return None


def _field(name: str, value: Any) -> Field:
    if value is None or isinstance(value, str):
        return Field(name=name, text=None if value is None else _shortened(value))
    if isinstance(value, bytes):
        return Field(name=name, text=f"{len(value)} bytes", is_code=True)
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > 80:
        text = json.dumps(value, ensure_ascii=False, default=str, indent=1)
    return Field(name=name, text=_shortened(text), is_code=True)


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]} ... ({len(text) - LONGEST_TEXT:,} more characters)"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
