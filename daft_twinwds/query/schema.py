"""Suffixes and declared types -> the columns of the DataFrame."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import daft
import pyarrow as pa
from daft.datatype import MediaType

__all__ = [
    "CAPTION",
    "CAPTION_FIELDS",
    "KEY",
    "URL",
    "Column",
    "InfoColumn",
    "Kind",
    "declared_column",
    "file_column",
    "info_columns",
    "kind_of",
    "media_of",
    "parsed_column",
    "suffixes_of",
]

KEY = "__key__"
URL = "__url__"

CAPTION = "caption"
CAPTION_FIELDS = ("prompt", "prompt_medium", "prompt_short")
"""Fields that captions always have, in the order of PiD's layout."""

Kind = Literal["json", "text", "integer", "binary", "file"]
"""How a member becomes a value: parsed, decoded, counted, copied, or referred to."""

SUFFIXES_OF_MEDIUM: Mapping[str, frozenset[str]] = {
    "image": frozenset(
        [
            "avif",
            "bmp",
            "dib",
            "gif",
            "heic",
            "heif",
            "j2k",
            "jfif",
            "jp2",
            "jpe",
            "jpeg",
            "jpg",
            "jxl",
            "pbm",
            "pgm",
            "png",
            "pnm",
            "ppm",
            "tif",
            "tiff",
            "webp",
        ]
    ),
    "audio": frozenset(["aac", "aif", "aiff", "flac", "m4a", "mp3", "oga", "ogg", "opus", "wav"]),
    "video": frozenset(["avi", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "webm"]),
}
KIND_OF_SUFFIX: Mapping[str, Kind] = {
    "json": "json",
    "txt": "text",
    "text": "text",
    "cls": "integer",
    "id": "integer",
    "index": "integer",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One modality as a column."""

    name: str
    """Column name, which is also the modality's."""
    kind: Kind
    """How members become values."""
    dtype: daft.DataType
    """Daft's type of the values."""
    suffixes: frozenset[str] | None
    """Suffixes that fit; None where the caller declared the type, or any file will do."""
    declared: bool = False
    """Whether the caller gave the type."""

    @property
    def is_text(self) -> bool:
        """Whether values are read by the scan itself, so that a filter can look at them."""
        return self.kind != "file"

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """Arrow type of the values that are parsed."""
        return self.dtype.to_arrow_dtype()


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoColumn:
    """Something about the pictures of a modality, as a column of its own."""

    name: str
    """Column name, ``image_width``."""
    column: str
    """Column of the pictures."""
    what: Literal["width", "height", "format"]
    """Sizes are those of the picture as it is shown, turned by EXIF."""

    @property
    def dtype(self) -> daft.DataType:
        """Daft's type of the values."""
        return daft.DataType.string() if self.what == "format" else daft.DataType.int64()


PLAIN_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
)


def kind_of(suffix: str) -> Kind:
    """Return how members with this suffix become values."""
    return KIND_OF_SUFFIX.get(suffix, "file")


def media_of(suffix: str) -> str:
    """Return the medium of members with this suffix: image, audio, video or unknown."""
    return next((name for name, known in SUFFIXES_OF_MEDIUM.items() if suffix in known), "unknown")


def suffixes_of(kind: Kind) -> frozenset[str]:
    """Return the suffixes of a kind that is parsed."""
    return frozenset(suffix for suffix, other in KIND_OF_SUFFIX.items() if other == kind)


def parsed_column(name: str, kind: Kind, type_: pa.DataType) -> Column:
    """Return a column of texts whose type was inferred."""
    dtype = daft.DataType.from_arrow_type(type_)
    return Column(name=name, kind=kind, dtype=dtype, suffixes=suffixes_of(kind))


def file_column(name: str, suffixes: Iterable[str]) -> Column:
    """Return a column of lazy files, typed if all suffixes are of one medium.

    Only then a member of another kind is refused later: in a column of plain files all fit.
    """
    media = {media_of(suffix) for suffix in suffixes}
    medium = media.pop() if len(media) == 1 else "unknown"
    return Column(
        name=name,
        kind="file",
        dtype=daft.DataType.file(getattr(MediaType, medium)()),
        suffixes=SUFFIXES_OF_MEDIUM.get(medium),
    )


def info_columns(columns: Iterable[Column]) -> tuple[InfoColumn, ...]:
    """Return width, height and format of each column of pictures.

    Raises:
        ValueError: A modality has the name of such a column.
    """
    columns = tuple(columns)
    picture = daft.DataType.file(MediaType.image())
    infos = tuple(
        InfoColumn(name=f"{column.name}_{what}", column=column.name, what=what)
        for column in columns
        if column.dtype == picture
        for what in ("width", "height", "format")
    )
    taken = {column.name for column in columns}
    for info in infos:
        if info.name in taken:
            raise ValueError(
                f"picture_info: {info.name!r} is a modality already; give it another column's "
                "name in modalities={column: folder}"
            )
    return infos


def declared_column(name: str, dtype: daft.DataType) -> Column:
    """Return a column whose type the caller gave; members of any suffix are read as that type.

    Raises:
        TypeError: ``dtype`` is no Daft type.
        ValueError: No member can be read as that type.
    """
    if not isinstance(dtype, daft.DataType):
        raise TypeError(f"schema[{name!r}] must be a daft.DataType, got {dtype!r}")
    kind: Kind
    if dtype.is_file():
        kind = "file"
    elif dtype.is_binary():
        kind = "binary"
    elif dtype.is_string():
        kind = "text"
    elif dtype.is_integer():
        kind = "integer"
    elif _is_plain(dtype.to_arrow_dtype()):
        kind = "json"
    else:
        raise ValueError(
            f"schema[{name!r}]: {dtype} cannot be read from a member; declare a file, binary, "
            "string, number, boolean, list or struct, and convert it in Daft"
        )
    return Column(name=name, kind=kind, dtype=dtype, suffixes=None, declared=True)


def _is_plain(type_: pa.DataType) -> bool:
    """Whether a JSON value can have this type."""
    if pa.types.is_struct(type_):
        return all(_is_plain(field.type) for field in type_)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _is_plain(type_.value_type)
    return any(is_type(type_) for is_type in PLAIN_TYPES)
